//! The kinds of IPCP that a configuration or a command can ask for.
//!
//! A kind is one row of [`KINDS`]: what its fields must be, how its device or its sockets are
//! opened, and what a capture of it holds. A new shim is one more row.

use std::path::Path;

use carina_api::control::{HvSide, IpcpCreate, IpcpType, LinkState};
use carina_api::{ErrorBody, ErrorCode, IpcpId};
use carina_dataplane::{Command, IpcpBuilder, Mailbox};
use carina_shims::Loopback;
use carina_vmpi::ll::PciAddress;
use carina_wire::pcapng::LinkType;

use crate::ipcps::{Ipcps, Process};
use crate::sdu_capacity::SduCapacity;

mod error;
mod graph_port;
mod hv;
mod network;

pub use self::error::SpecError;
pub use self::graph_port::remove_stale_counters;
pub use self::hv::open_device;

/// An IPCP whose device or sockets are open, and which is not added yet.
pub struct Opened {
    pub kind: IpcpType,
    /// Makes the control side.
    pub process: Box<dyn FnOnce(IpcpId, Mailbox<Command>) -> Process>,
    /// Makes the app on the data plane, for an IPCP that has one from the start.
    pub builder: Option<Box<dyn IpcpBuilder>>,
    pub state: LinkState,
    pub side: Option<HvSide>,
    pub pci: Option<PciAddress>,
    /// Longest part of an SDU in bytes that the medium takes at a time.
    pub piece_bytes_max: usize,
    /// Others than the members can listen to or write into what it carries.
    pub is_exposed: bool,
    /// What the journal says of how it was opened.
    pub notice: Option<String>,
}

impl Opened {
    /// An IPCP of this kind, down until its peer is there.
    pub fn new(
        kind: IpcpType,
        process: impl FnOnce(IpcpId, Mailbox<Command>) -> Process + 'static,
    ) -> Opened {
        Opened {
            kind,
            process: Box::new(process),
            builder: None,
            state: LinkState::Down,
            side: None,
            pci: None,
            piece_bytes_max: usize::MAX,
            is_exposed: false,
            notice: None,
        }
    }
}

/// What may be needed to open an IPCP.
struct Context<'a> {
    /// The IPCPs that there are.
    ipcps: &'a Ipcps,
    /// The name of this system, as peers see it.
    system: &'a str,
    /// The directory of the counters of graphs.
    graphs: &'a Path,
}

/// One kind.
struct Kind {
    kind: IpcpType,
    /// The kind as configurations and captures write it.
    word: &'static str,
    /// Checks the fields of a configuration beyond whether they belong to the kind.
    check: fn(&IpcpCreate) -> Result<(), SpecError>,
    open: fn(&IpcpCreate, &Context<'_>) -> Result<Opened, ErrorBody>,
    /// What a capture of it holds; none for a kind that moves no SDUs.
    capture: Option<LinkType>,
}

const KINDS: [Kind; 6] = [
    Kind {
        kind: IpcpType::Loopback,
        word: "loopback",
        check: hv::check_no_hv_keys,
        open: open_loopback,
        capture: None,
    },
    Kind {
        kind: IpcpType::Hv,
        word: "hv",
        check: hv::check,
        open: hv::open,
        capture: Some(LinkType::VMPI),
    },
    Kind {
        kind: IpcpType::Eth,
        word: "eth",
        check: network::check_eth,
        open: network::open_eth,
        capture: Some(LinkType::ETHERNET),
    },
    Kind {
        kind: IpcpType::Udp,
        word: "udp",
        check: network::check_udp,
        open: network::open_udp,
        capture: Some(LinkType::SDU),
    },
    Kind {
        kind: IpcpType::Tcp,
        word: "tcp",
        check: network::check_tcp,
        open: network::open_tcp,
        capture: Some(LinkType::SDU),
    },
    // Members of normal DIFs are made from a `MemberSpec`.
    Kind {
        kind: IpcpType::Normal,
        word: "normal",
        check: |_| Err(SpecError::Normal),
        open: |create, _| Err(refusal(create, &SpecError::Normal)),
        capture: Some(LinkType::PDU),
    },
];

fn row(kind: IpcpType) -> &'static Kind {
    let row = KINDS.iter().find(|row| row.kind == kind);
    row.expect("every kind has a row, as a test shows")
}

/// The kind as configurations and captures write it.
pub fn word(kind: IpcpType) -> &'static str {
    row(kind).word
}

/// What a capture of an IPCP of this kind holds; `None` for one that moves no SDUs.
pub fn capture_link_type(kind: IpcpType) -> Option<LinkType> {
    row(kind).capture
}

/// Checks that the fields of an IPCP belong to its kind and fit together.
///
/// # Errors
/// [`SpecError::Of`] with the name of the IPCP.
pub fn check(create: &IpcpCreate) -> Result<(), SpecError> {
    network::check_keys(create)
        .and_then(|()| (row(create.kind).check)(create))
        .map_err(|error| error.of(&create.name))
}

/// Opens the device or the sockets of an IPCP as configured.
///
/// # Errors
/// The reason of the system, or another IPCP has what this one asks for.
pub fn open(
    create: &IpcpCreate,
    ipcps: &Ipcps,
    system: &str,
    graphs: &Path,
) -> Result<Opened, ErrorBody> {
    let context = Context {
        ipcps,
        system,
        graphs,
    };
    (row(create.kind).open)(create, &context)
}

/// Checks that an IPCP does not take the frames or the address of others.
///
/// # Errors
/// The Ethernet shim with the same frames, or the shim over IP with the same address.
pub fn check_beside<'a>(
    create: &IpcpCreate,
    others: impl Iterator<Item = &'a IpcpCreate> + Clone,
) -> Result<(), ErrorBody> {
    network::check_alone(create, others.clone())?;
    network::check_listener(create, others)
}

/// What an N-1 flow of such an IPCP takes, as far as its configuration tells.
pub fn expected_capacity(create: &IpcpCreate) -> SduCapacity {
    let is_exposed = matches!(create.kind, IpcpType::Eth | IpcpType::Udp | IpcpType::Tcp);
    let bytes = if is_exposed {
        network::sdu_bytes_max(create)
    } else {
        usize::MAX
    };
    SduCapacity {
        whole: bytes,
        uncut: bytes,
        is_exposed,
    }
}

/// Whether two IPCPs are over the same device, interface or port, so that the second of them cannot
/// be opened before the first is gone.
pub fn share_medium(one: &IpcpCreate, other: &IpcpCreate) -> bool {
    match (one.kind, other.kind) {
        // Two that have a device may have the same one, which is found at the start.
        (IpcpType::Hv, IpcpType::Hv) => one.socket == other.socket,
        (IpcpType::Eth, IpcpType::Eth) => network::share_wire(one, other),
        (IpcpType::Udp, IpcpType::Udp) | (IpcpType::Tcp, IpcpType::Tcp) => {
            network::share_port(one, other)
        }
        _ => false,
    }
}

fn open_loopback(_: &IpcpCreate, _: &Context<'_>) -> Result<Opened, ErrorBody> {
    let process = |id, _| Process::Shim(Box::new(Loopback::new(id)));
    Ok(Opened {
        state: LinkState::Up,
        ..Opened::new(IpcpType::Loopback, process)
    })
}

/// The refusal of an IPCP that its fields do not allow.
fn refusal(create: &IpcpCreate, error: &SpecError) -> ErrorBody {
    let what = format!("IPCP {}: {error}", create.name);
    ErrorBody::new(ErrorCode::BadRequest, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_row_and_its_word() {
        use IpcpType::{Eth, Hv, Loopback, Normal, Tcp, Udp};
        for kind in [Loopback, Hv, Eth, Udp, Tcp, Normal] {
            let json = serde_json::to_value(kind).unwrap();
            assert_eq!(json, word(kind), "{kind:?}");
        }
    }
}
