//! An Ethernet shim over the port of a graph instead of an interface: converts the port's table in
//! the configuration to the configuration of the app.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use carina_api::control::IpcpCreate;
use carina_frame_engine::AnyConfig;
#[cfg(feature = "ports")]
use carina_graph::graph_file::read_app;
use carina_shims::PortConfig;
use carina_wire::ether::Mac;
use serde_json::{Map, Value};

use super::SpecError;
use crate::seed::random_seed;

/// The table of a port in the configuration.
type Port = Map<String, Value>;

/// Checks that an Ethernet shim has exactly one medium, with a valid configuration.
///
/// # Errors
/// Why the configuration is invalid, with the valid alternative.
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

/// The kernel interface that a port uses, if any.
pub(super) fn interface(port: &Port) -> Option<&str> {
    port.get("interface")?.as_str()
}

/// The resource that only one port can use: an interface, the path of a socket, or the name of a
/// tap.
pub(super) fn place(port: &Port) -> Option<&str> {
    let mut keys = ["interface", "socket", "name", "address"].into_iter();
    keys.find_map(|key| port.get(key)?.as_str())
}

/// Makes the configuration for the shim; `graphs` is the directory of the counters of graphs.
///
/// # Errors
/// Why the configuration is invalid, with the valid alternative.
pub(super) fn open(
    create: &IpcpCreate,
    port: &Port,
    graphs: &Path,
) -> Result<PortConfig, SpecError> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // A number makes the file unique: another IPCP with the same name may still be closing.
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let file = format!("{FILE_PREFIX}{number}+ipcp-{}.counters", create.name);
    std::fs::create_dir_all(graphs)
        .map_err(|error| SpecError::Open(format!("{}: {error}", graphs.display())))?;
    let app = app(port)?;
    let label = match place(port) {
        Some(place) => format!("{} {place}", app.kind()),
        None => app.kind().to_owned(),
    };
    // A locally administered unicast address.
    let [a, b, c, d, e, ..] = random_seed().to_be_bytes();
    Ok(PortConfig {
        app,
        label,
        mac: mac(create)?,
        mac_default: Mac([0x02, a, b, c, d, e]),
        counters: graphs.join(file),
    })
}

/// Removes the files of counters that a killed node has left.
pub(crate) fn remove_stale_counters(graphs: &Path) {
    let files = std::fs::read_dir(graphs).into_iter().flatten().flatten();
    for file in files {
        if file.file_name().to_string_lossy().starts_with(FILE_PREFIX) {
            // Tools show a file that cannot be removed as a graph that is idle.
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
    // A tun carries packets without MAC addresses, so it is no medium for Ethernet.
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

/// Version for a program that is built without ports of graphs.
#[cfg(not(feature = "ports"))]
fn app(port: &Port) -> Result<Arc<dyn AnyConfig>, SpecError> {
    let kind = port.get("kind").and_then(Value::as_str).unwrap_or_default();
    Err(SpecError::Port(format!(
        "kind = {kind:?}: the program for guests has no ports of graphs; set `interface`"
    )))
}

/// Prefix of the names of counter files. Tools show what follows the last `+`.
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
