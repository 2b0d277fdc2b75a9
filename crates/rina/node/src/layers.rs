//! The DIFs of this system, and which of them run over which.

use carina_api::control::VmCreate;
use carina_api::{DifName, ErrorBody, ErrorCode, LocalName};

use crate::ipcps::{Ipcp, IpcpError, Ipcps};
use crate::member_spec::MemberSpec;

/// The place of an IPCP among the DIFs. The IPCP exists, or a configuration asks for it.
pub(crate) struct Layer {
    /// Name of the IPCP, for error messages.
    pub ipcp: String,
    /// Name of the DIF of the IPCP.
    pub dif: DifName,
    /// Names of the N-1 DIFs of a member of a normal DIF; `None` for a shim.
    pub over: Option<Vec<DifName>>,
    /// Whether the IPCP leads to a VM with a door to the network of this host (`internet`, `ip`).
    pub has_door: bool,
}

impl Layer {
    /// The layer of a shim.
    pub(crate) fn of_shim(ipcp: &LocalName, dif: DifName) -> Layer {
        Layer {
            ipcp: ipcp.to_string(),
            dif,
            over: None,
            has_door: false,
        }
    }

    /// The layer of a VM port in this DIF.
    pub(crate) fn of_vm(create: &VmCreate, dif: DifName) -> Layer {
        Layer {
            has_door: !create.internet.is_empty() || !create.ip.is_empty(),
            ..Layer::of_shim(&create.name, dif)
        }
    }

    /// The layer of a member whose IPCP has the name `ipcp`.
    pub(crate) fn of_member(ipcp: String, spec: &MemberSpec) -> Layer {
        Layer {
            ipcp,
            dif: spec.name.clone(),
            over: Some(spec.over.clone()),
            has_door: false,
        }
    }

    pub(crate) fn of(ipcp: &Ipcp) -> Layer {
        match (&ipcp.member, &ipcp.vm) {
            (Some(member), _) => Layer::of_member(ipcp.name.to_string(), &member.made_from),
            (None, Some(vm)) => Layer::of_vm(&vm.create, ipcp.dif.clone()),
            (None, None) => Layer::of_shim(&ipcp.name, ipcp.dif.clone()),
        }
    }
}

/// Checks that the DIF of a VM with a door has no other IPCP of this system: the door is a name in
/// the DIF, which every system of the DIF reaches.
///
/// # Errors
/// [`IpcpError::SharedDoor`].
pub(crate) fn check_doors(new: &Layer, layers: &[Layer]) -> Result<(), IpcpError> {
    let others = layers.iter().filter(|other| other.dif == new.dif);
    let door = |vm: &Layer, other: &Layer| IpcpError::SharedDoor {
        vm: vm.ipcp.clone(),
        other: other.ipcp.clone(),
        dif: new.dif.clone(),
    };
    for other in others {
        if new.has_door {
            return Err(door(new, other));
        }
        if other.has_door {
            return Err(door(other, new));
        }
    }
    Ok(())
}

/// The layers of all existing IPCPs.
pub(crate) fn layers(ipcps: &Ipcps) -> Vec<Layer> {
    ipcps.values().map(Layer::of).collect()
}

/// Checks that the N-1 DIFs of a new member exist, and that no DIF would run over itself.
///
/// # Errors
/// The N-1 DIF that does not exist, the loop, or the shim whose DIF has the same name.
pub(crate) fn check_below(new: &MemberSpec, existing: &[Layer]) -> Result<(), ErrorBody> {
    let is_other = |layer: &&Layer| layer.dif == new.name && layer.over.is_none();
    if let Some(shim) = existing.iter().find(is_other) {
        let what = format!(
            "{} is the name of an existing shim DIF (of IPCP {})",
            new.name, shim.ipcp
        );
        return Err(ErrorBody::new(ErrorCode::Conflict, what));
    }
    for dif in &new.over {
        if !existing.iter().any(|layer| layer.dif == *dif) {
            return Err(unknown_dif(dif, existing));
        }
    }
    let (mut todo, mut seen) = (new.over.clone(), Vec::new());
    while let Some(dif) = todo.pop() {
        if dif == new.name {
            let what = format!("DIF {dif} would be its own N-1 DIF");
            return Err(ErrorBody::new(ErrorCode::BadRequest, what));
        }
        if !seen.contains(&dif) {
            let members = existing.iter().filter(|layer| layer.dif == dif);
            todo.extend(members.flat_map(|layer| layer.over.iter().flatten().cloned()));
            seen.push(dif);
        }
    }
    Ok(())
}

/// The error for a DIF in which this system has no IPCP.
pub(crate) fn unknown_dif(dif: &DifName, existing: &[Layer]) -> ErrorBody {
    let mut known: Vec<DifName> = existing.iter().map(|layer| layer.dif.clone()).collect();
    known.sort_unstable();
    known.dedup();
    let dif = dif.clone();
    IpcpError::UnknownDif { dif, known }.into()
}
