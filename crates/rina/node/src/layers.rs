//! The DIFs of this system, and which of them run over which.

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
}

impl Layer {
    /// The layer of a shim.
    pub(crate) fn of_shim(ipcp: &LocalName, dif: DifName) -> Layer {
        Layer {
            ipcp: ipcp.to_string(),
            dif,
            over: None,
        }
    }

    /// The layer of a member whose IPCP has the name `ipcp`.
    pub(crate) fn of_member(ipcp: String, spec: &MemberSpec) -> Layer {
        Layer {
            ipcp,
            dif: spec.name.clone(),
            over: Some(spec.over.clone()),
        }
    }

    fn of(ipcp: &Ipcp) -> Layer {
        match &ipcp.member {
            Some(member) => Layer::of_member(ipcp.name.to_string(), &member.made_from),
            None => Layer::of_shim(&ipcp.name, ipcp.dif.clone()),
        }
    }
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
