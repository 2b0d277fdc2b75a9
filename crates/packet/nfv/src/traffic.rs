//! The NFV process: cards of guests, and other ports, behind one uplink.
//!
//! ```text
//!   port --> txrate --> filter --> tunnel --> esp --> arp or nd -----------> mux <--> uplink
//!        <------------- filter <-- tunnel <-- esp <-- arp or nd <-- rxrate <--
//! ```
//!
//! A tunnel of packets, `ipip`, has an `arp` more in front of it, which is the router of the port's
//! station. In snabbnfv's files `esp` stands behind `nd`.
//!
//! A port has those apps that its configuration asks for, each called after the port. [`read`]
//! reads a file, of Carina's format or of snabbnfv's; [`graph`] makes the apps and links of it, as
//! data. So a file that has changed changes the apps of those ports that have changed, and no
//! other.
//!
//! | module | content |
//! |---|---|
//! | [`fault`] | what is wrong in a file, and on which line |
//! | [`mod@file`] | what both formats share: fields with their lines, and what they must be |
//! | [`toml_file`] | Carina's format |
//! | [`lua`], [`snabb`] | tables of Lua, and what snabbnfv has in them |
//! | [`tunnel`] | tunnels of ports |
//! | [`graph`] | apps and links |
//! | [`placement`] | which worker has which port |
//! | [`changes`] | what differs between two configurations, port by port |
//! | [`counts`] | what went through ports, and what was dropped and why |
//! | [`attach`] | what QEMU and libvirt need |

use carina_apps::graph_file::Kind;
use carina_apps::pcap_filter::StateConfig;
use carina_apps::rate_limiter::RateLimiterConfig;
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

/// What the process does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    /// The interface that ports share; without one they have each other.
    pub uplink: Option<PortApp>,
    /// The ports, in the order of the file.
    pub ports: Vec<TrafficPort>,
    /// What is read, but not as its writer may think. With line numbers.
    pub warnings: Vec<String>,
}

/// A port app: a kind, and the configuration that this kind has.
pub type PortApp = toml::Table;

/// A port.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficPort {
    /// Its name.
    pub name: String,
    /// Where its frames come from and go to.
    pub app: PortApp,
    /// Address of the station behind it; without one it gets what is for no other.
    pub mac: Option<Mac>,
    /// Its VLAN at the uplink.
    pub vlan: Option<u16>,
    /// What passes from the network to the port, in libpcap's language.
    pub ingress_filter: Option<String>,
    /// What passes from the port to the network.
    pub egress_filter: Option<String>,
    /// Connections of which a frame has passed pass in both directions.
    pub state: Option<StateConfig>,
    /// The rate to the port.
    pub ingress_rate: Option<RateLimiterConfig>,
    /// The rate from it.
    pub egress_rate: Option<RateLimiterConfig>,
    /// Its frames go through a tunnel.
    pub tunnel: Option<Tunnel>,
    /// The configuration of its `esp`.
    pub esp: Option<toml::Table>,
}

/// What a file leaves to the command line.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// The uplink.
    pub uplink: Option<PortApp>,
    /// Path of a port's socket, in which `%s` stands for the port's name.
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
    /// The socket of a port.
    #[must_use]
    pub fn socket(&self, name: &str) -> String {
        self.sockets.replace("%s", name)
    }
}

/// The app of a port as it stands on a command line.
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

/// Reads a file: one that begins with `{` or a word of Lua as snabbnfv does, any other as TOML. A
/// byte-order mark is skipped.
///
/// # Errors
/// What is wrong, on which line, and what would be right.
pub fn read(text: &str, defaults: &Defaults, kinds: &[Kind]) -> Result<Traffic, FileError> {
    // Editors of other systems put a byte-order mark in front.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let draft = if is_lua(text) {
        snabb::draft(text, defaults)?
    } else {
        toml_file::draft(text, defaults)?
    };
    draft.check(kinds)
}

/// Whether the first word is one that begins a file of Lua.
fn is_lua(text: &str) -> bool {
    let mut rest = text.trim_start();
    // Comments of TOML begin with another sign; a line for the system may begin a program.
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
    /// What the names of its apps begin with: its name, or, of a long one, the start and a hash.
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
    // FNV-1a: only has to tell the ports of one file apart, and to stay the same.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{}-{hash:08x}", &name[..STEM_BYTES - 9])
}

/// Words that begin a file of Lua, and no key of TOML.
const LUA_WORDS: [&str; 10] = [
    "return", "local", "function", "for", "if", "while", "repeat", "do", "require", "dofile",
];

/// The most ports of one process.
pub const PORTS_MAX: usize = 128;

/// The longest name of a port.
pub const NAME_BYTES_MAX: usize = 64;

/// Names of apps have 32 characters, and the longest end that follows is `_filter`.
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
