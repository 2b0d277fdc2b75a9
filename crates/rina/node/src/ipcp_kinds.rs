//! The kinds of IPCP that a configuration or a command can create.
//!
//! A kind is one row of [`KINDS`]: how its fields are checked, how its device or sockets are
//! opened, and what a capture of it contains. A new shim is one more row.

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

pub(crate) use self::error::SpecError;
pub(crate) use self::graph_port::remove_stale_counters;
pub(crate) use self::hv::open_device;

/// An IPCP whose device or sockets are open, before it is added to the node.
pub(crate) struct Opened {
    pub kind: IpcpType,
    /// Makes the manager's side of the IPCP.
    pub process: Box<dyn FnOnce(IpcpId, Mailbox<Command>) -> Process>,
    /// Makes the app on the data plane; `None` if the IPCP gets one later or never.
    pub builder: Option<Box<dyn IpcpBuilder>>,
    pub state: LinkState,
    pub side: Option<HvSide>,
    pub pci: Option<PciAddress>,
    /// Longest part of an SDU that the medium carries at a time, in bytes.
    pub piece_bytes_max: usize,
    /// Whether systems other than the members can listen to the medium or write to it.
    pub is_exposed: bool,
    /// A notice for the journal on how the IPCP was opened.
    pub notice: Option<String>,
}

impl Opened {
    /// An IPCP of this kind whose link is down until its peer appears.
    pub(crate) fn new(
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

/// What opening an IPCP may need.
struct Context<'a> {
    /// The existing IPCPs.
    ipcps: &'a Ipcps,
    /// The name of this system that peers see.
    system: &'a str,
    /// Directory of the counters of graphs.
    graphs: &'a Path,
}

/// One kind of IPCP.
struct Kind {
    kind: IpcpType,
    /// The kind in configurations and captures.
    word: &'static str,
    /// Checks the fields of a configuration, except whether they belong to the kind.
    check: fn(&IpcpCreate) -> Result<(), SpecError>,
    open: fn(&IpcpCreate, &Context<'_>) -> Result<Opened, ErrorBody>,
    /// Link type of a capture; `None` for a kind that moves no SDUs.
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
    // Members of normal DIFs are created from a `MemberSpec`.
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

/// The kind as it is written in configurations and captures.
pub(crate) fn word(kind: IpcpType) -> &'static str {
    row(kind).word
}

/// Link type of a capture of an IPCP of this kind; `None` for a kind that moves no SDUs.
pub(crate) fn capture_link_type(kind: IpcpType) -> Option<LinkType> {
    row(kind).capture
}

/// Checks that the fields of an IPCP belong to its kind and fit together.
///
/// # Errors
/// [`SpecError::Of`] with the name of the IPCP.
pub(crate) fn check(create: &IpcpCreate) -> Result<(), SpecError> {
    network::check_keys(create)
        .and_then(|()| (row(create.kind).check)(create))
        .map_err(|error| error.of(&create.name))
}

/// Opens the device or the sockets of an IPCP from its configuration.
///
/// # Errors
/// The operating system refuses, or another IPCP already uses the device or address.
pub(crate) fn open(
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

/// Checks that an IPCP does not receive the frames or use the address of another one.
///
/// # Errors
/// The Ethernet shim with the same frames, or the shim over IP with the same address.
pub(crate) fn check_beside<'a>(
    create: &IpcpCreate,
    others: impl Iterator<Item = &'a IpcpCreate> + Clone,
) -> Result<(), ErrorBody> {
    network::check_alone(create, others.clone())?;
    network::check_listener(create, others)
}

/// How long SDUs on the N-1 flows of such an IPCP may be, as far as its configuration shows.
pub(crate) fn expected_capacity(create: &IpcpCreate) -> SduCapacity {
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

/// True when two IPCPs use the same device, interface or port, so that the second cannot be opened
/// before the first is removed.
pub(crate) fn share_medium(one: &IpcpCreate, other: &IpcpCreate) -> bool {
    match (one.kind, other.kind) {
        // Two hv IPCPs without socket may use the same device, which is only determined when they
        // start.
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

/// The error for an IPCP whose fields are invalid.
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
