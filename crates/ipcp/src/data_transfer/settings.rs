//! The DIF's configuration as data transfer takes it: what is wrong with it, how long a PDU may be,
//! and the policies that are made of it, at the start and while the DIF runs.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_efcp::{CongestionControl, RttEstimator};
use carina_wire::dif::{Syntax, Widths};
use carina_wire::{FlowSpec, Payload};

use super::DataPath;
use crate::config::{DifConfig, QosCube};
use crate::policy::{Fifo, QueuePolicy, Scheduler, TailDrop, component};

/// Most cubes of a DIF: a bit each in the state of an N-1 flow.
const CUBES_MAX: usize = 64;
/// Smallest PDU that a DIF may have, in bytes.
const PDU_LEAST: usize = 128;
/// What protection may add, in bytes, where the longest PDU is derived from an N-1 flow.
const PROTECTION_RESERVE: usize = 64;

impl<P: Payload> DataPath<P> {
    pub(super) fn syntax_of(&self, config: &DifConfig) -> Syntax {
        Syntax {
            dialect: self.rmt.syntax.dialect,
            widths: Widths::from(config.widths),
        }
    }

    /// What is wrong with a configuration, also against the one in force.
    pub(super) fn check(&self, config: &DifConfig) -> Result<(), String> {
        self.syntax_of(config).check()?;
        self.catalogue.check(config)?;
        let checksum = self
            .catalogue
            .make_for::<bool>(component::PCI_CHECKSUM, config)?;
        if checksum && !self.syntax_of(config).has_checksum() {
            return Err(format!(
                "{}: the PCI of dialect {} has no checksum; use policy none",
                component::PCI_CHECKSUM,
                self.rmt.syntax.dialect.name()
            ));
        }
        if config.cubes.is_empty() || config.cubes.len() > CUBES_MAX {
            return Err(format!("a DIF has 1 to {CUBES_MAX} QoS cubes"));
        }
        for (index, cube) in config.cubes.iter().enumerate() {
            let is_double = config.cubes[..index]
                .iter()
                .any(|other| other.id == cube.id);
            if cube.id == 0 || is_double {
                return Err(format!(
                    "QoS cube {}: ids are 1 or more, each once",
                    cube.id
                ));
            }
            if config.widths.qos == 1 && cube.id > 255 {
                return Err(format!("QoS cube {}: the id needs 2 bytes", cube.id));
            }
            makes_sense(cube).map_err(|what| format!("QoS cube {}: {what}", cube.id))?;
        }
        let max_pdu = config.max_pdu as usize;
        let most = self.syntax_of(config).pdu_bytes_max();
        if max_pdu != 0 && !(PDU_LEAST..=most).contains(&max_pdu) {
            return Err(format!("max-pdu is {PDU_LEAST} to {most} bytes, or 0"));
        }
        if self.is_configured && config.widths != self.config.widths {
            return Err("field widths cannot be changed while the DIF runs".to_string());
        }
        Ok(())
    }

    /// Fixes the longest PDU as soon as it can be known.
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
            let most = usize::from(u16::MAX).min(self.rmt.syntax.pdu_bytes_max());
            self.max_pdu = least.saturating_sub(reserve).clamp(PDU_LEAST, most);
        }
    }

    #[expect(clippy::type_complexity, reason = "a pair of policies")]
    pub(super) fn port_policies(
        &self,
    ) -> Result<(Box<dyn Scheduler>, Box<dyn QueuePolicy>), String> {
        let config = &self.config;
        Ok((
            self.catalogue.make_for(component::RMT_SCHEDULING, config)?,
            self.catalogue.make_for(component::RMT_QUEUE, config)?,
        ))
    }

    pub(super) fn renew_port_policies(&mut self) -> Result<(), String> {
        // Parameters are checked even when there is no N-1 flow yet.
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

    pub(super) fn apply_policy(&mut self, name: &str) -> Result<(), String> {
        let config = &self.config;
        match name {
            component::RMT_SCHEDULING | component::RMT_QUEUE => self.renew_port_policies(),
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
            other => Err(format!("{other} is no component of data transfer")),
        }
    }
}

/// What serves N-1 flows before the DIF's policies are known.
pub(super) fn bare_policies() -> (Box<dyn Scheduler>, Box<dyn QueuePolicy>) {
    let queue = TailDrop {
        pdus: 1024,
        bytes: 1 << 20,
        own_pdus: 128,
        own_bytes: 1 << 18,
    };
    (Box::new(Fifo), Box::new(queue))
}

/// What a connection or a flow would stumble over.
fn makes_sense(cube: &QosCube) -> Result<(), String> {
    if let Some(window) = cube.window
        && (window.credit_max == 0 || window.initial_credit == 0)
    {
        return Err("a window of 0 PDUs never opens".to_string());
    }
    if let Some(rate) = cube.rate
        && (rate.pdus == 0 || rate.frame_ms == 0)
    {
        return Err("a rate of 0 PDUs, or in a frame of 0 ms, sends nothing".to_string());
    }
    if cube.max_loss > FlowSpec::MAX_LOSS {
        return Err(format!(
            "max_loss is {}; it counts 1/10000 and is at most {}",
            cube.max_loss,
            FlowSpec::MAX_LOSS
        ));
    }
    Ok(())
}
