//! The port of a graph in place of an interface under an Ethernet shim: from its table in the
//! configuration to the app's own configuration.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use carina_api::control::IpcpCreate;
#[cfg(feature = "ports")]
use carina_apps::graph_file::read_app;
use carina_engine::frames::AnyConfig;
use carina_shims::PortConfig;
use carina_wire::ether::Mac;
use serde_json::{Map, Value};

use super::SpecError;
use crate::seed::random_seed;

/// The table of a port.
type Port = Map<String, Value>;

/// Checks that an Ethernet shim has one medium, and that it can be.
///
/// # Errors
/// What is wrong and what would be right.
pub(super) fn check(create: &IpcpCreate) -> Result<(), SpecError> {
    match (&create.interface, &create.port) {
        (None, None) => Err(SpecError::NoInterface),
        (Some(_), Some(_)) => Err(SpecError::InterfaceAndPort),
        (Some(_), None) if create.mac.is_some() => Err(SpecError::MacOfInterface),
        (Some(_), None) => Ok(()),
        (None, Some(port)) => {
            mac(create)?;
            app(port).map(drop)
        }
    }
}

/// The interface of the kernel that a port is, if it is one.
pub(super) fn interface(port: &Port) -> Option<&str> {
    port.get("interface")?.as_str()
}

/// What no two ports can have: an interface, the path of a socket, or the name of a tap.
pub(super) fn place(port: &Port) -> Option<&str> {
    let mut keys = ["interface", "socket", "name", "address"].into_iter();
    keys.find_map(|key| port.get(key)?.as_str())
}

/// The configuration for the shim; `graphs` is the directory of the counters of graphs.
///
/// # Errors
/// What is wrong and what would be right.
pub(super) fn open(
    create: &IpcpCreate,
    port: &Port,
    graphs: &Path,
) -> Result<PortConfig, SpecError> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // One that is made while another of its name still goes has a file of its own.
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let file = format!("{FILE_PREFIX}{number}+ipcp-{}.counters", create.name);
    std::fs::create_dir_all(graphs)
        .map_err(|error| SpecError::Open(format!("{}: {error}", graphs.display())))?;
    let app = app(port)?;
    let label = match place(port) {
        Some(place) => format!("{} {place}", app.kind()),
        None => app.kind().to_owned(),
    };
    // Local, of one station.
    let [a, b, c, d, e, ..] = random_seed().to_be_bytes();
    Ok(PortConfig {
        app,
        label,
        mac: mac(create)?,
        mac_default: Mac([0x02, a, b, c, d, e]),
        counters: graphs.join(file),
    })
}

/// Removes the counters that a node has left that was killed.
pub fn remove_stale_counters(graphs: &Path) {
    let files = std::fs::read_dir(graphs).into_iter().flatten().flatten();
    for file in files {
        if file.file_name().to_string_lossy().starts_with(FILE_PREFIX) {
            // What stays is shown by tools as a graph that does nothing.
            let _ = std::fs::remove_file(file.path());
        }
    }
}

fn mac(create: &IpcpCreate) -> Result<Option<Mac>, SpecError> {
    let Some(text) = &create.mac else {
        return Ok(None);
    };
    let mac = text.parse::<Mac>().ok().filter(|mac| !mac.is_group());
    mac.map(Some).ok_or_else(|| SpecError::Mac(text.clone()))
}

#[cfg(feature = "ports")]
fn app(port: &Port) -> Result<Arc<dyn AnyConfig>, SpecError> {
    let wrong = |what: String| SpecError::Port(what);
    let kinds = carina_ports::KINDS;
    // Frames of a tun have no MAC addresses.
    let known = || {
        kinds
            .iter()
            .map(|kind| kind.name)
            .filter(|name| *name != TUN)
    };
    let word = port.get("kind").and_then(Value::as_str).unwrap_or_default();
    if !known().any(|name| name == word) {
        let known: Vec<&str> = known().collect();
        return Err(wrong(format!(
            "kind = {word:?}: must be one of {}",
            known.join(", ")
        )));
    }
    let table = toml::Table::try_from(port).map_err(|error| wrong(error.to_string()))?;
    read_app("port", table, &kinds).map_err(|error| wrong(error.to_string()))
}

/// This program is built without ports.
#[cfg(not(feature = "ports"))]
fn app(port: &Port) -> Result<Arc<dyn AnyConfig>, SpecError> {
    let kind = port.get("kind").and_then(Value::as_str).unwrap_or_default();
    Err(SpecError::Port(format!(
        "kind = {kind:?}: this program has no ports of graphs, as that of guests; name an interface"
    )))
}

/// What the names of files of counters begin with. Tools show what stands behind the last `+`.
const FILE_PREFIX: &str = "ipcp+";

#[cfg(feature = "ports")]
const TUN: &str = "tun";

#[cfg(test)]
mod tests {
    use carina_api::control::IpcpType;
    use serde_json::json;

    use super::*;

    /// An Ethernet shim over a port.
    fn over(port: Value) -> IpcpCreate {
        let (name, dif) = ("e".parse().unwrap(), "lan".parse().unwrap());
        IpcpCreate {
            port: port.as_object().cloned(),
            ..IpcpCreate::new(name, IpcpType::Eth, dif)
        }
    }

    #[cfg(feature = "ports")]
    #[test]
    fn ports_are_checked_with_their_own_keys() {
        let card = json!({ "kind": "vhost_user", "socket": "/run/card", "queues": 2 });
        assert_eq!(check(&over(card.clone())), Ok(()));
        let refused = |create: &IpcpCreate| check(create).unwrap_err().to_string();
        for (port, words) in [
            (
                json!({ "kind": "tun", "name": "t" }),
                "must be one of af_packet, af_xdp, pci, tap",
            ),
            (json!({ "socket": "/run/card" }), "kind = \"\""),
            (json!({ "kind": "vhost_user" }), "missing field `socket`"),
            (
                json!({ "kind": "af_xdp", "interface": "x", "que": 1 }),
                "unknown field `que`",
            ),
        ] {
            let refusal = refused(&over(port));
            assert!(refusal.contains(words), "{refusal}");
        }
        let mut both = over(card.clone());
        both.interface = Some("eth0".to_owned());
        assert!(refused(&both).contains("both given"));
        for mac in ["01:00:00:00:00:01", "2:0:0:0:0:1", ""] {
            let mut wrong = over(card.clone());
            wrong.mac = Some(mac.to_owned());
            assert!(refused(&wrong).contains("`mac` is"), "{mac}");
        }
    }

    #[test]
    fn counters_of_killed_nodes_are_removed_and_no_others() {
        let graphs = std::env::temp_dir().join(format!("carina-graphs-{}", std::process::id()));
        std::fs::create_dir_all(&graphs).unwrap();
        for name in ["ipcp+0+ipcp-e.counters", "forward-7.counters"] {
            std::fs::write(graphs.join(name), b"").unwrap();
        }
        remove_stale_counters(&graphs);
        let left = std::fs::read_dir(&graphs).unwrap();
        let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, ["forward-7.counters"]);
        std::fs::remove_dir_all(&graphs).unwrap();
    }
}
