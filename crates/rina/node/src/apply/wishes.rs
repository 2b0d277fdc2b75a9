//! The IPCPs, VM ports and members that a configuration asks for, and the checks of a configuration
//! that need no running node.

use std::collections::BTreeMap;
use std::ops::Range;

use carina_api::control::{IpcpCreate, IpcpType, VmCreate};
use carina_api::{DifName, ErrorBody, ErrorCode, LocalName};
use toml::Spanned;

use crate::config::{Config, ConfigError, LOOPBACK, on_line};
use crate::ipcp_kinds::{self, expected_capacity};
use crate::ipcps::{IPCPS_MAX, IpcpError};
use crate::layers::{Layer, check_below, check_doors};
use crate::member_spec::{MemberSpec, app_name, load_auth, wire_dialect};
use crate::members::{bad_request, check_rules, ipcp_name};
use crate::rules::Rules;
use crate::sdu_capacity::{SduCapacity, resolve_max_pdu};
use crate::vm_port::default_dif;

/// The IPCPs, VM ports and members that a configuration asks for.
pub(super) struct Wishes {
    /// The shim IPCPs to create.
    pub ipcps: Vec<Spanned<IpcpCreate>>,
    /// The VM ports to create.
    pub vms: Vec<Spanned<VmCreate>>,
    /// Members of normal DIFs, in the order in which the node creates them.
    pub members: Vec<Spanned<MemberSpec>>,
}

/// Why a table of a configuration (`[[ipcp]]`, `[[vm]]`, `[[dif]]`) is refused, and its position in
/// the text.
pub(super) struct Fault {
    /// Position of the faulty table in the text, as a range of bytes; empty for a table that the
    /// text does not contain.
    pub span: Range<usize>,
    /// What is wrong with the table.
    pub error: ErrorBody,
}

impl Fault {
    /// Returns a function that adds the position of a table (`[[ipcp]]`, `[[vm]]`, `[[dif]]`) to an
    /// error about that table.
    pub(super) fn of<T>(part: &Spanned<T>) -> impl FnOnce(ErrorBody) -> Fault {
        let span = part.span();
        |error| Fault { span, error }
    }

    /// The error, with the line of the table in `config` in front of its message.
    pub(super) fn with_line(self, config: &Config) -> ErrorBody {
        let line = on_line(config.origin.line_of(&self.span));
        let message = format!("{line}{}", self.error.message);
        ErrorBody {
            message,
            ..self.error
        }
    }
}

/// The IPCPs of a node, as far as they are known before the node creates them.
#[derive(Default)]
pub(super) struct World {
    /// The DIF of each IPCP, and the N-1 DIFs below it.
    pub layers: Vec<Layer>,
    /// Longest SDUs of the DIFs that the node will create.
    pub capacities: BTreeMap<DifName, SduCapacity>,
}

/// Checks a configuration as a node called `system` without IPCPs would check it. Reads the files
/// that `auth` names; opens no device and no socket.
///
/// # Errors
/// The first table of the configuration that the node would refuse, and the reason.
pub(crate) fn check_alone(config: &Config, system: &str) -> Result<(), ConfigError> {
    let checked = Wishes::of(config)
        .and_then(|(wishes, rules)| wishes.check(system, &rules, &mut World::default()));
    checked.map_err(|fault| config.meaning_error(&fault.span, fault.error.message))
}

impl Wishes {
    /// Collects the IPCPs, VM ports and members of a configuration, and its access rules.
    ///
    /// # Errors
    /// Two shims would receive each other's frames or use the same address.
    pub(super) fn of(config: &Config) -> Result<(Wishes, Rules), Fault> {
        let mut ipcps = Vec::new();
        if config.wants_implicit_loopback() {
            ipcps.push(implicit_loopback());
        }
        ipcps.extend(config.ipcps.iter().cloned());
        for (index, create) in ipcps.iter().enumerate() {
            let before = ipcps[..index].iter().map(Spanned::get_ref);
            ipcp_kinds::check_beside(create.get_ref(), before).map_err(Fault::of(create))?;
        }
        let node_uid = rustix::process::geteuid().as_raw();
        let rules = Rules::new(config.rules.clone(), node_uid);
        let wishes = Wishes {
            ipcps,
            vms: config.vms.clone(),
            members: config.difs.clone(),
        };
        Ok((wishes, rules))
    }

    /// Checks every table against `world`, and adds its IPCP to `world`.
    ///
    /// # Errors
    /// The first table that is refused, and the reason.
    pub(super) fn check(
        &self,
        system: &str,
        rules: &Rules,
        world: &mut World,
    ) -> Result<(), Fault> {
        for part in &self.ipcps {
            let create = part.get_ref();
            let capacity = expected_capacity(create);
            let added = world.add_shim(&create.name, create.dif.clone(), capacity);
            added.map_err(Fault::of(part))?;
        }
        for part in &self.vms {
            world.add_vm(part.get_ref()).map_err(Fault::of(part))?;
        }
        for part in &self.members {
            let added = world.add_member(system, rules, part.get_ref());
            let added = added.map_err(|error| of_dif(part.get_ref(), error));
            added.map_err(Fault::of(part))?;
        }
        Ok(())
    }
}

impl World {
    fn is_free(&self, name: &str) -> bool {
        self.layers.iter().all(|layer| layer.ipcp != name)
    }

    fn check_name(&self, name: &LocalName) -> Result<(), IpcpError> {
        match self.is_free(name.as_str()) {
            true => Ok(()),
            false => Err(IpcpError::NameInUse(name.clone())),
        }
    }

    fn add_layer(&mut self, layer: Layer) -> Result<(), ErrorBody> {
        if self.layers.len() >= IPCPS_MAX {
            return Err(IpcpError::TooMany.into());
        }
        check_doors(&layer, &self.layers)?;
        self.layers.push(layer);
        Ok(())
    }

    fn add_vm(&mut self, create: &VmCreate) -> Result<(), ErrorBody> {
        let dif = create.dif.clone().or_else(|| default_dif(&create.name));
        let dif = dif.ok_or_else(|| {
            let what = format!("VM {}: the name is too long for its DIF's", create.name);
            ErrorBody::new(ErrorCode::BadRequest, what)
        })?;
        self.check_name(&create.name)?;
        self.add_layer(Layer::of_vm(create, dif.clone()))?;
        self.add_capacity(dif, SduCapacity::ANY);
        Ok(())
    }

    fn add_shim(
        &mut self,
        name: &LocalName,
        dif: DifName,
        capacity: SduCapacity,
    ) -> Result<(), ErrorBody> {
        self.check_name(name)?;
        self.add_layer(Layer::of_shim(name, dif.clone()))?;
        self.add_capacity(dif, capacity);
        Ok(())
    }

    fn add_capacity(&mut self, dif: DifName, capacity: SduCapacity) {
        let known = self.capacities.entry(dif).or_insert(capacity);
        *known = known.least(capacity);
    }

    fn add_member(
        &mut self,
        system: &str,
        rules: &Rules,
        spec: &MemberSpec,
    ) -> Result<(), ErrorBody> {
        check_below(spec, &self.layers)?;
        let name = ipcp_name(spec, system, |name| self.is_free(name))?;
        let own = app_name(&name);
        check_rules(rules, &own, &spec.name, &spec.over)?;
        let (authentication, _) = load_auth(spec.auth.as_deref()).map_err(bad_request)?;
        let config = spec.prepare(&own, authentication).map_err(bad_request)?;
        self.add_layer(Layer::of_member(name.to_string(), spec))?;
        let Some(mut config) = config.dif_config else {
            return Ok(());
        };
        let capacities = &self.capacities;
        let resolved = resolve_max_pdu(spec, &mut config, &|dif| capacities.get(dif).copied());
        resolved.map_err(|error| ErrorBody::new(ErrorCode::BadRequest, error.to_string()))?;
        if config.max_pdu != 0 {
            let dialect = wire_dialect(spec.dialect);
            let capacity = SduCapacity::of_member(&config, dialect, config.max_pdu, false);
            self.add_capacity(spec.name.clone(), capacity);
        }
        Ok(())
    }
}

/// Adds the name of a `[[dif]]` table to the message of an error that concerns the table.
pub(super) fn of_dif(spec: &MemberSpec, error: ErrorBody) -> ErrorBody {
    let message = format!("[[dif]] {}: {}", spec.name, error.message);
    ErrorBody { message, ..error }
}

/// The loopback IPCP that a node has by default.
fn implicit_loopback() -> Spanned<IpcpCreate> {
    let create = IpcpCreate::new(
        LocalName::new(LOOPBACK).expect("a valid name"),
        IpcpType::Loopback,
        DifName::new("local").expect("a valid name"),
    );
    Spanned::new(0..0, create)
}
