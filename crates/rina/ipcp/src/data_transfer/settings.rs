//! The DIF's configuration in data transfer: checks it, derives the longest PDU, and makes or
//! exchanges policies.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use carina_efcp::{CongestionControl, RttEstimator};
use carina_wire::dif::{Syntax, Widths};
use carina_wire::{FlowSpec, Payload};

use super::DataPath;
use super::error::{CubeError, SettingsError};
use crate::config::{DifConfig, QosCube};
use crate::policy::{Fifo, PolicyError, QueuePolicy, Scheduler, TailDrop, component};

/// Largest number of cubes: the state of an N-1 flow has one bit for each.
const CUBES_MAX: usize = 64;
/// Smallest value of the DIF's longest PDU, in bytes.
const PDU_LEAST: usize = 128;
/// Bytes reserved for protection when the longest PDU is derived from an N-1 flow.
const PROTECTION_RESERVE: usize = 64;

impl<P: Payload> DataPath<P> {
    pub(super) fn syntax_of(&self, config: &DifConfig) -> Syntax {
        Syntax {
            dialect: self.rmt.syntax.dialect,
            widths: Widths::from(config.widths),
        }
    }

    /// Checks a configuration, by itself and against the one in force.
    pub(super) fn check(&self, config: &DifConfig) -> Result<(), SettingsError> {
        let syntax = self.syntax_of(config);
        syntax.check().map_err(SettingsError::Widths)?;
        self.catalogue.check(config)?;
        let checksum = self
            .catalogue
            .make_for::<bool>(component::PCI_CHECKSUM, config)?;
        if checksum && !syntax.has_checksum() {
            return Err(SettingsError::NoChecksum(syntax.dialect));
        }
        if config.cubes.is_empty() || config.cubes.len() > CUBES_MAX {
            return Err(SettingsError::CubeCount { max: CUBES_MAX });
        }
        for (index, cube) in config.cubes.iter().enumerate() {
            let is_double = config.cubes[..index]
                .iter()
                .any(|other| other.id == cube.id);
            if cube.id == 0 || is_double {
                return Err(SettingsError::CubeId(cube.id));
            }
            if config.widths.qos == 1 && cube.id > 255 {
                return Err(SettingsError::CubeIdWidth(cube.id));
            }
            makes_sense(cube).map_err(|error| SettingsError::Cube { id: cube.id, error })?;
        }
        let max_pdu = config.max_pdu as usize;
        let pdu_max = syntax.pdu_bytes_max();
        if max_pdu != 0 && !(PDU_LEAST..=pdu_max).contains(&max_pdu) {
            let least = PDU_LEAST;
            return Err(SettingsError::MaxPdu {
                min: least,
                max: pdu_max,
            });
        }
        if self.is_configured && config.widths != self.config.widths {
            return Err(SettingsError::WidthsInUse);
        }
        Ok(())
    }

    /// Sets the longest PDU of the DIF as soon as it can be determined.
    pub(super) fn fix_max_pdu(&mut self) {
        if !self.is_configured {
            return;
        }
        if self.config.max_pdu != 0 {
            self.max_pdu = self.config.max_pdu as usize;
            return;
        }
        if self.max_pdu != 0 {
            return;
        }
        let is_protected = self
            .config
            .policies
            .get(component::SDU_PROTECTION)
            .is_some_and(|spec| !matches!(spec.name.as_str(), "" | "none"));
        let reserve = if is_protected { PROTECTION_RESERVE } else { 0 };
        let least = self.rmt.ports().map(|port| port.props.sdu_max).min();
        if let Some(least) = least {
            let pdu_max = usize::from(u16::MAX).min(self.rmt.syntax.pdu_bytes_max());
            self.max_pdu = least.saturating_sub(reserve).clamp(PDU_LEAST, pdu_max);
        }
    }

    #[expect(clippy::type_complexity, reason = "a pair of policies")]
    pub(super) fn port_policies(
        &self,
    ) -> Result<(Box<dyn Scheduler>, Box<dyn QueuePolicy>), PolicyError> {
        let config = &self.config;
        Ok((
            self.catalogue.make_for(component::RMT_SCHEDULING, config)?,
            self.catalogue.make_for(component::RMT_QUEUE, config)?,
        ))
    }

    pub(super) fn renew_port_policies(&mut self) -> Result<(), PolicyError> {
        // Checks the parameters even if there is no N-1 flow yet.
        self.port_policies()?;
        let numbers: Vec<u32> = self.rmt.ports().map(|port| port.n1.0).collect();
        for number in numbers {
            let (scheduler, queue) = self.port_policies()?;
            if let Some(port) = self.rmt.port_mut(number) {
                port.set_scheduler(scheduler);
                port.set_policy(queue);
            }
        }
        Ok(())
    }

    pub(super) fn apply_policy(&mut self, name: &str) -> Result<(), SettingsError> {
        let config = &self.config;
        match name {
            component::RMT_SCHEDULING | component::RMT_QUEUE => Ok(self.renew_port_policies()?),
            component::FORWARDING => {
                let policy = self.catalogue.make_for(component::FORWARDING, config)?;
                self.rmt.set_forwarding_policy(policy);
                self.wake_all();
                Ok(())
            }
            component::CONGESTION_CONTROL => {
                let make = || {
                    self.catalogue.make_for::<Box<dyn CongestionControl>>(
                        component::CONGESTION_CONTROL,
                        config,
                    )
                };
                make()?;
                for instance in self.connections.iter_mut() {
                    instance.efcp.set_congestion(make()?);
                }
                Ok(())
            }
            component::RTT_ESTIMATION => {
                let make = || {
                    self.catalogue
                        .make_for::<Box<dyn RttEstimator>>(component::RTT_ESTIMATION, config)
                };
                make()?;
                for instance in self.connections.iter_mut() {
                    instance.efcp.set_rtt(make()?);
                }
                Ok(())
            }
            other => Err(SettingsError::OtherComponent(other.to_string())),
        }
    }
}

/// Policies of N-1 flows before the DIF's policies are known.
pub(super) fn bare_policies() -> (Box<dyn Scheduler>, Box<dyn QueuePolicy>) {
    let queue = TailDrop {
        pdus: 1024,
        bytes: 1 << 20,
        own_pdus: 128,
        own_bytes: 1 << 18,
    };
    (Box::new(Fifo), Box::new(queue))
}

/// Checks that connections of this cube can work.
fn makes_sense(cube: &QosCube) -> Result<(), CubeError> {
    if let Some(window) = cube.window
        && (window.credit_max == 0 || window.initial_credit == 0)
    {
        return Err(CubeError::WindowZero);
    }
    if let Some(rate) = cube.rate
        && (rate.pdus == 0 || rate.frame_ms == 0)
    {
        return Err(CubeError::RateZero);
    }
    if cube.max_loss > FlowSpec::MAX_LOSS {
        return Err(CubeError::MaxLoss(cube.max_loss));
    }
    Ok(())
}
