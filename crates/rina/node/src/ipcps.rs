//! The table of the IPCPs of this system, with the node's state of each.

use std::collections::{BTreeMap, BTreeSet};

use carina_api::control::{HvSide, IpcpCreate, IpcpType, LinkState};
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, IpcpId, LocalName};
use carina_dataplane::{IpcProcess, NormalIpcp};
use carina_vmpi::ll::PciAddress;
use thiserror::Error;

use crate::connections::ConnectionId;
use crate::membership::Membership;
use crate::vm_port::VmPort;

/// An IPCP of this system.
pub(crate) struct Ipcp {
    pub name: LocalName,
    pub dif: DifName,
    pub kind: IpcpType,
    pub side: Option<HvSide>,
    /// The configuration of a shim; `None` for an IPCP over a device that was already open, and for
    /// a member of a normal DIF.
    pub made_from: Option<IpcpCreate>,
    pub process: Process,
    /// Longest part of an SDU that the medium carries at a time, in bytes.
    pub piece_bytes_max: usize,
    /// Whether systems other than the members can listen to the medium or write to it.
    pub is_exposed: bool,
    pub state: LinkState,
    pub reason: Option<String>,
    pub peer: Option<String>,
    pub peer_names: BTreeSet<AppName>,
    /// Names registered in this IPCP by applications and IPCPs of this system.
    pub names: BTreeMap<AppName, Registrant>,
    pub vmpi_id: Option<u16>,
    /// Address of the PCI device that the IPCP uses, if it uses one.
    pub pci: Option<PciAddress>,
    pub vm: Option<VmPort>,
    /// The state of a member of a normal DIF; `None` for a shim.
    pub member: Option<Membership>,
}

/// The application or IPCP that has registered a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Registrant {
    /// An application, by its connection.
    App(ConnectionId),
    /// A normal IPCP.
    Ipcp(IpcpId),
}

/// The control side of an IPCP.
pub(crate) enum Process {
    /// A shim of any kind.
    Shim(Box<dyn IpcProcess + Send>),
    /// A member of a normal DIF, which also takes commands of its own.
    Normal(NormalIpcp),
}

impl Process {
    /// The interface common to both, with mutable access.
    pub(crate) fn as_dyn_mut(&mut self) -> &mut dyn IpcProcess {
        match self {
            Self::Shim(shim) => shim.as_mut(),
            Self::Normal(normal) => normal,
        }
    }

    /// The interface common to both.
    pub(crate) fn as_dyn(&self) -> &dyn IpcProcess {
        match self {
            Self::Shim(shim) => shim.as_ref(),
            Self::Normal(normal) => normal,
        }
    }
}

/// All IPCPs of this system.
pub(crate) struct Ipcps {
    table: BTreeMap<IpcpId, Ipcp>,
    creation_order: Vec<IpcpId>,
    next_id: u16,
}

/// Why an IPCP does not exist, or cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IpcpError {
    #[error("there is an IPCP or VM named {0} already")]
    NameInUse(LocalName),
    #[error("there are {IPCPS_MAX} IPCPs; that is the limit")]
    TooMany,
    #[error("this system is in no DIF {dif}; it is in: {}", list(known))]
    UnknownDif { dif: DifName, known: Vec<DifName> },
    #[error(
        "{other} would share DIF {dif} with VM {vm}, and reach what `internet` or `ip` allows {vm} \
         alone; give each a DIF of its own (a VM's is hv.NAME by default), or {vm} no `internet` \
         and no `ip`"
    )]
    SharedDoor {
        vm: String,
        other: String,
        dif: DifName,
    },
}

fn list(difs: &[DifName]) -> String {
    match difs {
        [] => "none".to_owned(),
        difs => {
            let difs: Vec<&str> = difs.iter().map(DifName::as_str).collect();
            difs.join(", ")
        }
    }
}

impl From<IpcpError> for ErrorBody {
    fn from(error: IpcpError) -> ErrorBody {
        let code = match error {
            IpcpError::NameInUse(_) => ErrorCode::DuplicateName,
            IpcpError::TooMany => ErrorCode::LimitReached,
            IpcpError::UnknownDif { .. } => ErrorCode::NotFound,
            IpcpError::SharedDoor { .. } => ErrorCode::Conflict,
        };
        ErrorBody::new(code, error.to_string())
    }
}

impl Default for Ipcps {
    fn default() -> Ipcps {
        Ipcps {
            table: BTreeMap::new(),
            creation_order: Vec::new(),
            next_id: 1,
        }
    }
}

impl Ipcps {
    pub(crate) fn get(&self, id: IpcpId) -> Option<&Ipcp> {
        self.table.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: IpcpId) -> Option<&mut Ipcp> {
        self.table.get_mut(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// All IPCPs, in the order of their ids.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Ipcp> {
        self.table.values()
    }

    /// All IPCPs, in the order of their ids, with mutable access.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Ipcp> {
        self.table.values_mut()
    }

    /// The ids of all IPCPs, in the order of creation.
    pub(crate) fn ids(&self) -> Vec<IpcpId> {
        self.creation_order.clone()
    }

    /// The state of a member of a normal DIF; `None` for other IPCPs.
    pub(crate) fn member(&self, id: IpcpId) -> Option<&Membership> {
        self.table.get(&id)?.member.as_ref()
    }

    /// Like [`Ipcps::member`], with mutable access.
    pub(crate) fn member_mut(&mut self, id: IpcpId) -> Option<&mut Membership> {
        self.table.get_mut(&id)?.member.as_mut()
    }

    /// The name of the DIF of an IPCP.
    pub(crate) fn dif_of(&self, id: IpcpId) -> Option<DifName> {
        Some(self.table.get(&id)?.dif.clone())
    }

    /// The id of the IPCP with this name.
    pub(crate) fn named(&self, name: &str) -> Option<IpcpId> {
        let mut ids = self.creation_order.iter().copied();
        ids.find(|id| self[*id].name.as_str() == name)
    }

    /// The id of the hv IPCP of the VM port with this name.
    pub(crate) fn vm_named(&self, name: &str) -> Option<IpcpId> {
        self.named(name).filter(|id| self[*id].vm.is_some())
    }

    /// The IPCPs in the order in which their DIFs are searched: first those of the DIFs in `first`.
    pub(crate) fn search_order(&self, first: &[DifName]) -> Vec<IpcpId> {
        let rank = |id: &IpcpId| {
            let dif = &self[*id].dif;
            first.iter().position(|d| d == dif).unwrap_or(first.len())
        };
        let mut order = self.creation_order.clone();
        order.sort_by_key(rank);
        order
    }

    /// Checks that no IPCP has this name.
    ///
    /// # Errors
    /// [`IpcpError::NameInUse`].
    pub(crate) fn check_name_unused(&self, name: &LocalName) -> Result<(), IpcpError> {
        match self.named(name.as_str()) {
            None => Ok(()),
            Some(_) => Err(IpcpError::NameInUse(name.clone())),
        }
    }

    /// Returns an id for a new IPCP.
    ///
    /// # Errors
    /// [`IpcpError::TooMany`].
    pub(crate) fn unused_id(&mut self) -> Result<IpcpId, IpcpError> {
        if self.table.len() >= IPCPS_MAX {
            return Err(IpcpError::TooMany);
        }
        loop {
            let id = IpcpId(self.next_id);
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
            if !self.table.contains_key(&id) {
                return Ok(id);
            }
        }
    }

    /// The lowest free VMPI-id.
    pub(crate) fn unused_vmpi_id(&self) -> u16 {
        let taken: BTreeSet<u16> = self
            .table
            .values()
            .filter_map(|ipcp| ipcp.vmpi_id)
            .collect();
        (0..=u16::MAX)
            .find(|id| !taken.contains(id))
            .unwrap_or(u16::MAX)
    }

    pub(crate) fn insert(&mut self, id: IpcpId, ipcp: Ipcp) {
        self.table.insert(id, ipcp);
        self.creation_order.push(id);
    }

    pub(crate) fn remove(&mut self, id: IpcpId) -> Option<Ipcp> {
        self.creation_order.retain(|known| *known != id);
        self.table.remove(&id)
    }
}

impl std::ops::Index<IpcpId> for Ipcps {
    type Output = Ipcp;

    fn index(&self, id: IpcpId) -> &Ipcp {
        &self.table[&id]
    }
}

/// Largest number of IPCPs of one system.
pub(crate) const IPCPS_MAX: usize = 4096;
