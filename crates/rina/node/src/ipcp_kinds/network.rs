//! The kinds over a network (eth, udp and tcp): from their configuration to an open medium.

use std::net::SocketAddr;
use std::path::Path;

use carina_api::control::{ArpDialect, FaultSpec, Framing, IpcpCreate, IpcpType};
use carina_api::{AppName, ErrorBody, ErrorCode};
use carina_dataplane::{IpcpBuilder, QosOffered};
use carina_netdev::{FaultPlan, StreamFraming};
use carina_shims::{EthConfig, NetworkShim, TcpConfig, UdpConfig, UdpFraming};
use carina_wire::arp::Dialect;
use carina_wire::ether::VLAN_MAX;

use super::graph_port;
use super::hv::check_no_hv_keys;
use super::{Context, Opened, SpecError, refusal, word};
use crate::ipcps::Process;

/// Checks that the keys of an IPCP belong to its kind.
///
/// # Errors
/// [`SpecError::KeyOfOtherKind`]
pub(super) fn check_keys(create: &IpcpCreate) -> Result<(), SpecError> {
    let (eth, net) = (
        create.kind == IpcpType::Eth,
        matches!(create.kind, IpcpType::Udp | IpcpType::Tcp),
    );
    let kind = word(create.kind);
    for (key, is_set, belongs, types) in [
        ("interface", create.interface.is_some(), eth, "\"eth\""),
        ("port", create.port.is_some(), eth, "\"eth\""),
        ("mac", create.mac.is_some(), eth, "\"eth\""),
        ("vlan", create.vlan.is_some(), eth, "\"eth\""),
        ("arp", create.arp.is_some(), eth, "\"eth\""),
        (
            "listen",
            create.listen.is_some(),
            net,
            "\"udp\" and \"tcp\"",
        ),
        (
            "framing",
            create.framing.is_some(),
            net,
            "\"udp\" and \"tcp\"",
        ),
        (
            "peers",
            !create.peers.is_empty(),
            net,
            "\"udp\" and \"tcp\"",
        ),
        (
            "sdu_max",
            create.sdu_max.is_some(),
            eth || create.kind == IpcpType::Udp,
            "\"eth\" and \"udp\"",
        ),
        (
            "timeout_ms",
            create.timeout_ms.is_some(),
            eth || net,
            "\"eth\", \"udp\" and \"tcp\"",
        ),
        (
            "fault",
            create.fault.is_some(),
            eth || create.kind == IpcpType::Udp,
            "\"eth\" and \"udp\"",
        ),
    ] {
        if is_set && !belongs {
            return Err(SpecError::KeyOfOtherKind { key, types, kind });
        }
    }
    Ok(())
}

/// Checks the fields of an Ethernet shim.
pub(super) fn check_eth(create: &IpcpCreate) -> Result<(), SpecError> {
    check_no_hv_keys(create)?;
    graph_port::check(create)?;
    vlan_of(create)?;
    check_fault(create)
}

/// Checks the fields of a shim over UDP.
pub(super) fn check_udp(create: &IpcpCreate) -> Result<(), SpecError> {
    check_no_hv_keys(create)?;
    check_fault(create)?;
    let checked = udp_config(create)?.check();
    checked.map_err(|error| SpecError::Open(error.to_string()))
}

/// Checks the fields of a shim over TCP.
pub(super) fn check_tcp(create: &IpcpCreate) -> Result<(), SpecError> {
    check_no_hv_keys(create)?;
    tcp_config(create).map(drop)
}

fn check_fault(create: &IpcpCreate) -> Result<(), SpecError> {
    let Some(spec) = &create.fault else {
        return Ok(());
    };
    let plan = plan_of(spec).map_err(|error| SpecError::Fault(error.to_string()))?;
    plan.check()
        .map_err(|error| SpecError::Fault(error.to_string()))
}

/// Checks that no other Ethernet shim receives the same frames. A frame does not identify its shim,
/// so each of two shims would take SDUs of the other's flows for its own.
///
/// # Errors
/// The shim with the same frames.
pub(super) fn check_alone<'a>(
    create: &IpcpCreate,
    others: impl IntoIterator<Item = &'a IpcpCreate>,
) -> Result<(), ErrorBody> {
    let Some((interface, vlan)) = wire_of(create) else {
        return Ok(());
    };
    let is_same = |other: &&IpcpCreate| wire_of(other) == Some((interface, vlan));
    let Some(other) = others.into_iter().find(is_same) else {
        return Ok(());
    };
    let frames = match vlan {
        0 => "frames without tag".to_owned(),
        vlan => format!("VLAN {vlan}"),
    };
    let what = format!(
        "IPCP {}: {frames} on {interface} already belong to IPCP {} of DIF {}; use another VLAN \
         for another DIF",
        create.name, other.name, other.dif
    );
    Err(ErrorBody::new(ErrorCode::Conflict, what))
}

/// True when two Ethernet shims receive the same frames.
pub(super) fn share_wire(one: &IpcpCreate, other: &IpcpCreate) -> bool {
    let wire = wire_of(one);
    wire.is_some() && wire == wire_of(other)
}

/// Checks that no other shim over IP listens on the same address.
///
/// # Errors
/// The shim with the same address.
pub(super) fn check_listener<'a>(
    create: &IpcpCreate,
    others: impl IntoIterator<Item = &'a IpcpCreate>,
) -> Result<(), ErrorBody> {
    let has_sockets = matches!(create.kind, IpcpType::Udp | IpcpType::Tcp);
    let is_same = |other: &&IpcpCreate| other.kind == create.kind && share_address(create, other);
    let Some(other) = others
        .into_iter()
        .find(|other| has_sockets && is_same(other))
    else {
        return Ok(());
    };
    let listen = create.listen.as_deref().unwrap_or(LISTEN_DEFAULT);
    let what = format!(
        "IPCP {}: IPCP {} listens on {listen} already; set `listen` to another port or address",
        create.name, other.name
    );
    Err(ErrorBody::new(ErrorCode::Conflict, what))
}

/// True when two shims over IP cannot both open their sockets.
fn share_address(one: &IpcpCreate, other: &IpcpCreate) -> bool {
    let addresses = (listen_address(one), listen_address(other));
    let (Ok(one), Ok(other)) = addresses else {
        return false;
    };
    one.is_ipv4() == other.is_ipv4() && share_port_of(one, other)
}

/// True when two shims over IP use the same port on the same address, or one of them on all
/// addresses.
pub(super) fn share_port(one: &IpcpCreate, other: &IpcpCreate) -> bool {
    let (Ok(one), Ok(other)) = (listen_address(one), listen_address(other)) else {
        return false;
    };
    share_port_of(one, other)
}

fn share_port_of(one: SocketAddr, other: SocketAddr) -> bool {
    let is_same = one.ip() == other.ip();
    let is_any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && (is_same || is_any)
}

/// The interface or socket of an Ethernet shim, and its VLAN.
fn wire_of(create: &IpcpCreate) -> Option<(&str, u16)> {
    match (create.interface.as_deref(), &create.port) {
        (Some(interface), _) => Some((interface, vlan_of(create).ok()?)),
        // The port of a graph receives all frames, whatever their VLAN.
        (None, Some(port)) => Some((graph_port::place(port)?, 0)),
        (None, None) => None,
    }
}

/// Longest SDU in bytes of a shim over a network, from its configuration. The MTU of an interface
/// may be smaller.
pub(super) fn sdu_bytes_max(create: &IpcpCreate) -> usize {
    match create.kind {
        IpcpType::Udp => udp_config(create).map_or(usize::MAX, |config| config.sdu_max),
        IpcpType::Tcp => tcp_config(create).map_or(usize::MAX, |config| match config.framing {
            StreamFraming::Short => config.framing.piece_bytes_max(),
            StreamFraming::Long => usize::MAX,
        }),
        _ => create.sdu_max.unwrap_or(usize::MAX),
    }
}

/// The builder and the offered QoS of a shim that is open.
type Medium = (Box<dyn IpcpBuilder>, QosOffered);

pub(super) fn open_eth(create: &IpcpCreate, context: &Context<'_>) -> Result<Opened, ErrorBody> {
    let others = context.ipcps.values();
    check_alone(create, others.filter_map(|ipcp| ipcp.made_from.as_ref()))?;
    opened(create, eth_medium(create, context.graphs))
}

pub(super) fn open_udp(create: &IpcpCreate, _: &Context<'_>) -> Result<Opened, ErrorBody> {
    opened(create, udp_medium(create))
}

pub(super) fn open_tcp(create: &IpcpCreate, _: &Context<'_>) -> Result<Opened, ErrorBody> {
    opened(create, tcp_medium(create))
}

fn opened(create: &IpcpCreate, medium: Result<Medium, SpecError>) -> Result<Opened, ErrorBody> {
    let (builder, offered) = medium.map_err(|error| refusal(create, &error))?;
    let kind = word(create.kind);
    let process =
        move |id, commands| Process::Shim(Box::new(NetworkShim::new(id, kind, offered, commands)));
    Ok(Opened {
        builder: Some(builder),
        is_exposed: true,
        ..Opened::new(create.kind, process)
    })
}

fn eth_medium(create: &IpcpCreate, graphs: &Path) -> Result<Medium, SpecError> {
    let port = create.port.as_ref();
    let interface = match port {
        Some(port) => graph_port::interface(port),
        None => create.interface.as_deref(),
    };
    let mut config = EthConfig::new(interface.unwrap_or_default(), vlan_of(create)?);
    config.port = port
        .map(|port| graph_port::open(create, port, graphs))
        .transpose()?;
    config.mtu = create.sdu_max;
    config.dialect = match create.arp.unwrap_or_default() {
        ArpDialect::Native => Dialect::NATIVE,
        ArpDialect::Rlite => Dialect::RLITE,
        ArpDialect::Irati => Dialect::IRATI,
    };
    if let Some(ms) = create.timeout_ms {
        config.timeout_ns = ms.saturating_mul(1_000_000);
    }
    config.fault = create.fault.as_ref().map(plan_of).transpose()?;
    config
        .open()
        .map_err(|error| SpecError::Open(error.to_string()))
}

fn udp_medium(create: &IpcpCreate) -> Result<Medium, SpecError> {
    let opened = udp_config(create)?.open();
    opened.map_err(|error| SpecError::Open(error.to_string()))
}

fn udp_config(create: &IpcpCreate) -> Result<UdpConfig, SpecError> {
    let framing = match create.framing.unwrap_or_default() {
        Framing::Native => UdpFraming::Native,
        Framing::Rlite => UdpFraming::Rlite,
    };
    let mut config = UdpConfig::new(listen_address(create)?, framing);
    config.peers = peers_of(create);
    if let Some(sdu_max) = create.sdu_max {
        config.sdu_max = sdu_max;
    }
    if let Some(ms) = create.timeout_ms {
        config.timeout_ns = ms.saturating_mul(1_000_000);
    }
    config.fault = create.fault.as_ref().map(plan_of).transpose()?;
    Ok(config)
}

fn tcp_medium(create: &IpcpCreate) -> Result<Medium, SpecError> {
    let opened = tcp_config(create)?.open();
    opened.map_err(|error| SpecError::Open(error.to_string()))
}

fn tcp_config(create: &IpcpCreate) -> Result<TcpConfig, SpecError> {
    let framing = match create.framing.unwrap_or_default() {
        Framing::Native => StreamFraming::Long,
        Framing::Rlite => StreamFraming::Short,
    };
    let mut config = TcpConfig::new(listen_address(create)?, framing);
    config.peers = peers_of(create);
    if let Some(ms) = create.timeout_ms {
        config.timeout_ns = ms.saturating_mul(1_000_000);
    }
    Ok(config)
}

fn peers_of(create: &IpcpCreate) -> Vec<(AppName, String)> {
    let peers = create.peers.iter();
    peers
        .map(|peer| (peer.name.clone(), peer.address.clone()))
        .collect()
}

/// The address to listen on.
fn listen_address(create: &IpcpCreate) -> Result<SocketAddr, SpecError> {
    let text = create.listen.as_deref().unwrap_or(LISTEN_DEFAULT);
    text.parse().map_err(|_| SpecError::Listen {
        text: text.to_owned(),
        default: LISTEN_DEFAULT,
    })
}

/// The VLAN id: as configured, else the DIF's name if it is a number, else 0. With VLAN 0 the DIF's
/// name is free.
fn vlan_of(create: &IpcpCreate) -> Result<u16, SpecError> {
    let named: Option<u16> = create.dif.as_str().parse().ok();
    match (create.vlan, named) {
        (Some(vlan), _) if vlan > VLAN_MAX => Err(SpecError::Vlan(vlan)),
        (Some(vlan), Some(dif)) if vlan != 0 && vlan != dif => {
            Err(SpecError::VlanIsNotTheDif { vlan, dif })
        }
        (Some(vlan), _) => Ok(vlan),
        (None, Some(dif)) if dif > VLAN_MAX => Err(SpecError::DifIsNoVlan(dif)),
        (None, dif) => Ok(dif.unwrap_or(0)),
    }
}

/// Converts the configuration of a fault layer to its plan.
fn plan_of(spec: &FaultSpec) -> Result<FaultPlan, SpecError> {
    let ns = |key: &'static str, ms: f64| {
        if (0.0..=DELAY_MS_MAX).contains(&ms) {
            Ok((ms * 1e6) as u64)
        } else {
            Err(SpecError::Delay {
                key,
                ms,
                max: DELAY_MS_MAX,
            })
        }
    };
    Ok(FaultPlan {
        loss: spec.loss,
        duplicate: spec.duplicate,
        reorder: spec.reorder,
        delay_ns: ns("delay_ms", spec.delay_ms)?,
        jitter_ns: ns("jitter_ms", spec.jitter_ms)?,
        rate_bps: spec.rate_bps,
        queue_bytes: spec.queue_bytes,
        seed: spec.seed,
    })
}

/// Default of `listen` for shims over IP: all addresses, port 3359 as in rlite.
const LISTEN_DEFAULT: &str = "0.0.0.0:3359";

/// The longest configurable delay in milliseconds: one hour.
const DELAY_MS_MAX: f64 = 3_600_000.0;

#[cfg(test)]
mod tests {
    use carina_api::{DifName, LocalName};

    use super::*;

    /// The refusal of a configuration.
    fn check(create: &IpcpCreate) -> String {
        crate::ipcp_kinds::check(create).unwrap_err().to_string()
    }

    fn eth(dif: &str) -> IpcpCreate {
        let name = LocalName::new("e").expect("a name");
        let dif = DifName::new(dif).expect("a name");
        IpcpCreate {
            interface: Some("carina-nope".to_owned()),
            ..IpcpCreate::new(name, IpcpType::Eth, dif)
        }
    }

    #[test]
    fn the_vlan_is_the_name_of_the_dif_unless_that_is_free() {
        assert_eq!(vlan_of(&eth("10")), Ok(10));
        assert_eq!(vlan_of(&eth("backbone")), Ok(0));
        let named = |dif: &str, vlan| IpcpCreate {
            vlan: Some(vlan),
            ..eth(dif)
        };
        assert_eq!(vlan_of(&named("backbone", 7)), Ok(7));
        assert_eq!(vlan_of(&named("7", 7)), Ok(7));
        assert_eq!(vlan_of(&named("7", 0)), Ok(0));
        assert!(check(&named("7", 8)).contains("the DIF is 7"));
        assert!(check(&named("x", 4095)).contains("1 to 4094"));
        assert!(check(&eth("4095")).contains("1 to 4094"));
    }

    #[test]
    fn a_vlan_of_an_interface_has_one_shim() {
        let existing = [eth("lan"), eth("10")];
        for twin in ["x", "10"] {
            let error = check_alone(&eth(twin), &existing).unwrap_err();
            assert_eq!(error.code, ErrorCode::Conflict);
            assert!(
                error.message.contains("already belong to IPCP e "),
                "{error}"
            );
        }
        let elsewhere = IpcpCreate {
            interface: Some("eth1".to_owned()),
            ..eth("lan")
        };
        for other in [eth("11"), elsewhere] {
            check_alone(&other, &existing).unwrap();
        }
    }

    #[test]
    fn keys_of_other_types_and_missing_ones_are_named() {
        let missing = IpcpCreate {
            interface: None,
            ..eth("x")
        };
        assert!(check(&missing).contains("`interface = "));
        let foreign = IpcpCreate {
            listen: Some("0.0.0.0:1".to_owned()),
            ..eth("x")
        };
        let error = check(&foreign);
        assert!(
            error.contains("`listen` belongs") && error.contains("\"eth\""),
            "{error}"
        );
        let udp = IpcpCreate {
            listen: Some("everywhere".to_owned()),
            kind: IpcpType::Udp,
            interface: None,
            ..eth("x")
        };
        assert!(check(&udp).contains("ADDRESS:PORT"));
        let fault = IpcpCreate {
            fault: Some(FaultSpec {
                loss: 2.0,
                ..FaultSpec::default()
            }),
            ..eth("x")
        };
        assert!(check(&fault).contains("loss is 2"));
        let error = opened(&eth("x"), eth_medium(&eth("x"), Path::new("graphs")))
            .map(drop)
            .unwrap_err();
        assert!(
            error
                .message
                .contains("no network interface \"carina-nope\"")
        );
    }
}
