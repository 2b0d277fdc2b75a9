//! The NFV process: ports for guests' network cards, and other ports, behind one uplink.
//!
//! ```text
//!   port --> txrate --> filter --> tunnel --> esp --> arp or nd -----------> mux <--> uplink
//!        <------------- filter <-- tunnel <-- esp <-- arp or nd <-- rxrate <--
//! ```
//!
//! A tunnel of packets, `ipip`, has another `arp` in front of it, which acts as the router of the
//! port's station. In snabbnfv's files `esp` comes behind `nd`.
//!
//! A port has only the apps that its configuration asks for; their names begin with the port's
//! name. [`read`] reads a file, in Carina's or snabbnfv's format. [`graph`] turns it into apps and
//! links, as data. When a file changes, only the apps of changed ports change.
//!
//! | module | content |
//! |---|---|
//! | [`fault`] | faults in a file, with their lines |
//! | [`mod@file`] | fields that both formats share, with their lines, and their checks |
//! | [`toml_file`] | Carina's format |
//! | [`lua`], [`snabb`] | tables in Lua's syntax, and snabbnfv's format in them |
//! | [`tunnel`] | the tunnels of ports |
//! | [`graph`] | the apps and links |
//! | [`placement`] | assigns ports to workers |
//! | [`changes`] | the differences between two configurations, port by port |
//! | [`counts`] | traffic of ports, and drops by reason |
//! | [`attach`] | arguments for QEMU, elements for libvirt |

use carina_apps::pcap_filter::StateConfig;
use carina_apps::rate_limiter::RateLimiterConfig;
use carina_graph::graph_file::Kind;
use carina_wire::ether::Mac;

use crate::port::PortSpec;

pub mod attach;
pub mod changes;
pub mod counts;
pub mod fault;
pub mod file;
pub mod graph;
pub mod lua;
pub mod placement;
pub mod snabb;
pub mod toml_file;
pub mod tunnel;

pub use self::fault::{Fault, FileError};
pub use self::tunnel::{Resolver, Tunnel, TunnelProtocol};

/// The configuration of the NFV process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    /// The port to the network that all other ports share. Without one they reach only each other.
    pub uplink: Option<PortApp>,
    /// The ports, in the order of the file.
    pub ports: Vec<TrafficPort>,
    /// Warnings about fields that take effect otherwise than their author may expect, with line
    /// numbers.
    pub warnings: Vec<String>,
}

/// The app of a port or uplink, as a table of a graph file: `kind`, and the keys of that kind.
pub type PortApp = toml::Table;

/// A port of the NFV process, such as a guest's network card.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficPort {
    /// Name of the port, as in the file of ports.
    pub name: String,
    /// The app at the port's end, such as `vhost_user` for a guest.
    pub app: PortApp,
    /// MAC address of the station behind the port. A port without one gets the frames that are for
    /// no other port.
    pub mac: Option<Mac>,
    /// VLAN of the port: its frames are tagged at the uplink, and untagged at the port. `None`
    /// passes frames unchanged.
    pub vlan: Option<u16>,
    /// Filter for frames to the port, in the syntax of pcap-filter(7); frames that it does not
    /// accept are dropped. `None` accepts all.
    pub ingress_filter: Option<String>,
    /// Filter for frames from the port; frames that it does not accept are dropped. `None` accepts
    /// all.
    pub egress_filter: Option<String>,
    /// If set, the port tracks connections: once a frame of a connection has passed a filter, the
    /// connection's frames pass in both directions.
    pub state: Option<StateConfig>,
    /// Rate limit for frames to the port; `None` for no limit.
    pub ingress_rate: Option<RateLimiterConfig>,
    /// Rate limit for frames from the port; `None` for no limit.
    pub egress_rate: Option<RateLimiterConfig>,
    /// The tunnel that carries the port's frames; `None`: they go to the uplink as they are.
    pub tunnel: Option<Tunnel>,
    /// The configuration of the app that encrypts the port's packets (`esp`); `None`: they are not
    /// encrypted.
    pub esp: Option<toml::Table>,
}

/// Values from the command line that apply if the file of ports does not specify them.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// The uplink to use if the file has no uplink; `None` if the command line gives no uplink
    /// either.
    pub uplink: Option<PortApp>,
    /// Path of the socket of a port that has no key `socket` in the file; `%s` stands for the
    /// port's name.
    pub sockets: String,
}

impl Default for Defaults {
    /// No uplink, and sockets in the working directory.
    fn default() -> Defaults {
        Defaults {
            uplink: None,
            sockets: "%s.sock".to_owned(),
        }
    }
}

impl Defaults {
    /// Path of the socket of the port `name`, if the file gives none.
    #[must_use]
    pub fn socket(&self, name: &str) -> String {
        self.sockets.replace("%s", name)
    }
}

/// The kind and configuration of the app for a port that `--uplink` names.
#[must_use]
pub fn uplink_of(spec: &PortSpec) -> PortApp {
    let file: Option<toml::Table> = toml::from_str(&spec.table()).ok();
    let app = file.and_then(|mut file| match file.remove("apps") {
        Some(toml::Value::Table(mut apps)) => apps.remove(spec.app()),
        _ => None,
    });
    match app {
        Some(toml::Value::Table(app)) => app,
        _ => unreachable!("a port has a table of this form"),
    }
}

/// Reads a file: in snabbnfv's format if it begins with `{` or a word of Lua, else in TOML. Skips a
/// byte-order mark.
///
/// # Errors
/// The file is invalid; the error gives the line, the fault, and what would be right.
pub fn read(text: &str, defaults: &Defaults, kinds: &[Kind]) -> Result<Traffic, FileError> {
    // Some editors put a byte-order mark in front.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let draft = if is_lua(text) {
        snabb::draft(text, defaults)?
    } else {
        toml_file::draft(text, defaults)?
    };
    draft.check(kinds)
}

/// Whether a file begins with `{` or with a word that begins a Lua file.
fn is_lua(text: &str) -> bool {
    let mut rest = text.trim_start();
    // TOML has comments of another form. A Lua program may begin with a `#!` line.
    while rest.starts_with("--") || rest.starts_with("#!") {
        let is_long = rest.starts_with("--[[") || rest.starts_with("--[=");
        rest = if is_long {
            return true;
        } else {
            rest.split_once('\n').map_or("", |(_, behind)| behind)
        }
        .trim_start();
    }
    let begins = |word: &str| {
        let behind = rest.strip_prefix(word);
        behind.is_some_and(|behind| {
            let next = behind.trim_start().chars().next();
            let is_longer = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
            !behind.starts_with(is_longer) && next != Some('=')
        })
    };
    LUA_WORDS.into_iter().any(begins) || rest.starts_with('{')
}

impl TrafficPort {
    /// Prefix of the names of the port's apps: the port's name, or, if that is long, its beginning
    /// and a hash.
    #[must_use]
    pub fn stem(&self) -> String {
        stem(&self.name)
    }
}

/// See [`TrafficPort::stem`].
fn stem(name: &str) -> String {
    if name.len() <= STEM_BYTES {
        return name.to_owned();
    }
    // FNV-1a. The hash only has to distinguish the ports of one file, and to be the same each time.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{}-{hash:08x}", &name[..STEM_BYTES - 9])
}

/// Words that begin a Lua file and are not keys of the TOML format.
const LUA_WORDS: [&str; 10] = [
    "return", "local", "function", "for", "if", "while", "repeat", "do", "require", "dofile",
];

/// Largest number of ports of one process.
pub const PORTS_MAX: usize = 128;

/// Length of the longest port name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Largest number of bytes of a prefix. App names have at most 32 characters; the longest suffix is
/// `_gateway`.
const STEM_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_first_word() {
        for lua in [
            "return {}",
            "-- x\n return { }",
            "{ }",
            "--[[ x ]] return {}",
            "return{}",
            "local ports = {}\nreturn ports",
            "local function port(n) return {} end",
            "function f() end",
            "require(\"x\")",
        ] {
            assert!(is_lua(lua), "{lua}");
        }
        for toml in [
            "",
            "# x\n[uplink]",
            "[[ports]]",
            "return = 5",
            "returns = 1",
            "local = 1",
            "local.x = 1",
            "do-it = 1",
        ] {
            assert!(!is_lua(toml), "{toml}");
        }
    }

    #[test]
    fn uplinks_of_a_command_line_have_a_kind() {
        for (text, kind) in [("eth0.5", "af_packet"), ("tap:inside,mtu=9000", "tap")] {
            let app = uplink_of(&text.parse().unwrap());
            assert_eq!(app["kind"].as_str(), Some(kind));
        }
    }

    #[test]
    fn long_names_have_short_stems_of_their_own() {
        let stems = [
            "0f3f2a4e-9c1d-4d2f-8a55-5a0d6f1b2c3d",
            "0f3f2a4e-9c1d-4d2f-8a55-5a0d6f1b2c3e",
        ]
        .map(stem);
        assert_ne!(stems[0], stems[1]);
        assert!(stems[0].starts_with("0f3f2a4e-9c1d-4-"), "{}", stems[0]);
        assert!(stems.iter().all(|stem| stem.len() == STEM_BYTES));
        assert_eq!(stem("web"), "web");
    }
}
