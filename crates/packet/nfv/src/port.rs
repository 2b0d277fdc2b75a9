//! Ports as a command line names them: `eth1`, `tap:inside`, `af_packet:eth1,offload=true`,
//! `vhost_user:/run/vm/a.sock,packed=false`, `0000:00:04.0`, `pci:0000:00:04.0,queues=2`.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use carina_graph::graph_file::GraphFileError;
use carina_netdev::{MAC_HEADER_BYTES, TAG_BYTES, interface_mtu};
use carina_nic::pci::parse_address;

/// A port: its kind of app, its name, and its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    kind: &'static PortKind,
    of: String,
    options: Vec<(String, String)>,
    app: String,
}

#[derive(Debug, PartialEq, Eq)]
struct PortKind {
    name: &'static str,
    /// The configuration key that identifies the device: `interface`, `name`, `address` or
    /// `socket`.
    key: &'static str,
}

/// A network card that is driven from user space. A bare PCI address means this kind.
const PCI: PortKind = PortKind {
    name: "pci",
    key: "address",
};

const KINDS: [PortKind; 6] = [
    PortKind {
        name: "af_packet",
        key: "interface",
    },
    PortKind {
        name: "af_xdp",
        key: "interface",
    },
    PCI,
    PortKind {
        name: "tap",
        key: "name",
    },
    PortKind {
        name: "tun",
        key: "name",
    },
    PortKind {
        name: "vhost_user",
        key: "socket",
    },
];

/// Why a text is not a valid port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The text does not have the form of a port.
    #[error(
        "{0:?}: write a port as INTERFACE, PCI-ADDRESS or KIND:NAME, and options after commas, \
         for example tap:inside,mtu=1500"
    )]
    Form(String),
    /// The kind is unknown.
    #[error("{kind:?} is not a kind of port; the kinds are {}", kinds())]
    Kind {
        /// The text before the colon, which names no kind of port.
        kind: String,
    },
    /// The text is not a PCI address.
    #[error("{0:?}: write the PCI address of a card as 0000:00:04.0")]
    Address(String),
    /// The text has a character that no name or value may have.
    #[error("{0:?}: a port cannot contain quotes, backslashes or control characters")]
    Character(String),
    /// An option of the port is not valid.
    #[error("port {port}: {reason}")]
    Option {
        /// The port, as kind and name.
        port: String,
        /// What is wrong with the option.
        reason: String,
    },
    /// Two ports have the same name.
    #[error("two ports have the name {0}; each port needs its own")]
    Twice(String),
}

fn kinds() -> String {
    KINDS.map(|kind| kind.name).join(", ")
}

impl FromStr for PortSpec {
    type Err = PortError;

    fn from_str(text: &str) -> Result<PortSpec, PortError> {
        let form = || PortError::Form(text.to_owned());
        let is_bad = |c: char| c.is_control() || matches!(c, '"' | '\\');
        if text.contains(is_bad) {
            return Err(PortError::Character(text.to_owned()));
        }
        let mut parts = text.split(',');
        let head = parts.next().unwrap_or_default();
        let bare = parse_address(head);
        let (kind, of) = match &bare {
            Some(address) => (PCI.name, address.as_str()),
            None => head.split_once(':').unwrap_or((KINDS[0].name, head)),
        };
        let known = KINDS.iter().find(|known| known.name == kind);
        let kind = known.ok_or_else(|| PortError::Kind {
            kind: kind.to_owned(),
        })?;
        if of.is_empty() {
            return Err(form());
        }
        let address = parse_address(of).filter(|_| kind.name == PCI.name);
        if kind.name == PCI.name && address.is_none() {
            return Err(PortError::Address(of.to_owned()));
        }
        let of = address.as_deref().unwrap_or(of);
        let mut options = Vec::new();
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(form)?;
            let is_key = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if key.is_empty() || !key.chars().all(is_key) {
                return Err(form());
            }
            options.push((key.to_owned(), value.to_owned()));
        }
        let name = of.rsplit('/').next().unwrap_or(of);
        let as_char = |c: char| match c {
            c if c.is_ascii_alphanumeric() || c == '_' => c,
            _ => '-',
        };
        let app: String = name.chars().map(as_char).take(APP_CHARS).collect();
        Ok(PortSpec {
            kind,
            of: of.to_owned(),
            options,
            app,
        })
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name, self.of)
    }
}

impl PortSpec {
    /// Name of the port's app in the graph. Routes and tables also call the port by this name.
    #[must_use]
    pub fn app(&self) -> &str {
        &self.app
    }

    /// The interface or device, or the path of the socket.
    #[must_use]
    pub fn of(&self) -> &str {
        &self.of
    }

    /// Whether the port carries IP packets without Ethernet header, so that no station answers ARP
    /// there.
    #[must_use]
    pub fn is_ip(&self) -> bool {
        self.kind.name == "tun"
    }

    /// The interface of an `af_packet` port, and the file of its network namespace if this is not
    /// the process's own. Other processes can open such an interface at the same time, and each
    /// gets every frame. `None` for other kinds of ports.
    #[must_use]
    pub fn shared_interface(&self) -> Option<(&str, Option<&Path>)> {
        let option = self.options.iter().find(|(key, _)| key == "netns");
        let netns = option.map(|(_, path)| Path::new(path.as_str()));
        (self.kind.name == KINDS[0].name).then_some((self.of.as_str(), netns))
    }

    /// The table of the port's app in a graph file.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "[apps.{}]\nkind = \"{}\"\n{} = \"{}\"\n",
            self.app, self.kind.name, self.kind.key, self.of
        );
        for (key, value) in &self.options {
            let is_bare =
                matches!(value.as_str(), "true" | "false") || value.parse::<i64>().is_ok();
            text += &if is_bare {
                format!("{key} = {value}\n")
            } else {
                format!("{key} = \"{value}\"\n")
            };
        }
        text
    }

    /// Length of the longest frame that arrives at the port, in bytes.
    fn frame_bytes(&self) -> usize {
        let option = self.options.iter().find(|(key, _)| key == "mtu");
        let option = option.and_then(|(_, value)| value.parse().ok());
        // An interface that does not exist yet will have the default MTU. Failure to open it is
        // reported later.
        let mtu = option.or_else(|| interface_mtu(&self.of).ok());
        mtu.unwrap_or(1500) + MAC_HEADER_BYTES + TAG_BYTES
    }
}

/// Turns an error about the table of a port's app into one about the port: a command line has no
/// tables and no lines.
///
/// # Errors
/// Returns the error unchanged if it is about something else.
pub fn port_error(error: GraphFileError, ports: &[PortSpec]) -> Result<PortError, GraphFileError> {
    match &error {
        GraphFileError::App { app, reason, .. } => match ports.iter().find(|port| port.app == *app)
        {
            Some(port) => Ok(PortError::Option {
                port: port.to_string(),
                reason: reason.clone(),
            }),
            None => Err(error),
        },
        _ => Err(error),
    }
}

/// Checks that no two ports have the same name.
///
/// # Errors
/// Two ports have the same name, which the error gives.
pub fn check_names(ports: &[PortSpec]) -> Result<(), PortError> {
    for (at, port) in ports.iter().enumerate() {
        if ports[..at].iter().any(|other| other.app == port.app) {
            return Err(PortError::Twice(port.app.clone()));
        }
    }
    Ok(())
}

/// Length of a pool's frames that suffices for all ports, in bytes.
#[must_use]
pub fn frame_bytes_for(ports: &[PortSpec]) -> usize {
    let longest = ports.iter().map(PortSpec::frame_bytes).max();
    longest.unwrap_or(0).max(FRAME_BYTES_MIN)
}

/// Least length of a pool's frames: room for an MTU of 1500 and the headers of tunnels.
const FRAME_BYTES_MIN: usize = 2048;

/// Maximum number of characters in a port's name. The name of the port's app may have a prefix
/// before it.
const APP_CHARS: usize = 24;

#[cfg(test)]
mod tests {
    use carina_graph::graph_file::read_graph_of;

    use super::*;

    fn spec(text: &str) -> PortSpec {
        text.parse().unwrap()
    }

    #[test]
    fn ports_become_tables_of_a_graph() {
        let port = spec("eth0.5");
        assert_eq!(port.app(), "eth0-5");
        let table = "[apps.eth0-5]\nkind = \"af_packet\"\ninterface = \"eth0.5\"\n";
        assert_eq!(port.table(), table);
        assert_eq!(port.shared_interface(), Some(("eth0.5", None)));
        let in_netns = spec("af_packet:eth1,netns=/run/netns/a");
        let netns = Some(Path::new("/run/netns/a"));
        assert_eq!(in_netns.shared_interface(), Some(("eth1", netns)));
        assert_eq!(spec("tap:eth1").shared_interface(), None);
        let port = spec("tap:inside,mtu=9000,offload=true");
        let table =
            "[apps.inside]\nkind = \"tap\"\nname = \"inside\"\nmtu = 9000\noffload = true\n";
        assert_eq!(
            (port.table().as_str(), port.to_string()),
            (table, "tap:inside".into())
        );
        assert_eq!(frame_bytes_for(&[port, spec("nope")]), 9018);
        let port = spec("vhost_user:/run/vm/a.sock,queues=2");
        let table =
            "[apps.a-sock]\nkind = \"vhost_user\"\nsocket = \"/run/vm/a.sock\"\nqueues = 2\n";
        assert_eq!((port.table().as_str(), port.is_ip()), (table, false));
        assert_eq!(frame_bytes_for(&[spec("nope")]), 2048);
        for text in ["0000:00:04.0,mtu=9000", "pci:00:04.0,mtu=9000"] {
            let port = spec(text);
            let table = "[apps.0000-00-04-0]\nkind = \"pci\"\naddress = \"0000:00:04.0\"\n\
                         mtu = 9000\n";
            assert_eq!((port.table().as_str(), port.is_ip()), (table, false));
            assert_eq!(frame_bytes_for(&[port]), 9018);
        }
    }

    #[test]
    fn wrong_ports_are_refused_with_what_would_be_right() {
        let refusal = |text: &str| text.parse::<PortSpec>().unwrap_err().to_string();
        assert!(refusal("").starts_with("\"\": write a port as INTERFACE, PCI-ADDRESS"));
        assert!(refusal("tap:").contains("write a port as"));
        assert!(refusal("eth0,mtu").contains("write a port as"));
        assert_eq!(
            refusal("tip:x"),
            "\"tip\" is not a kind of port; the kinds are af_packet, af_xdp, pci, tap, \
             tun, vhost_user"
        );
        assert!(refusal("pci:eth0").contains("write the PCI address of a card as 0000:00:04.0"));
        assert!(refusal("a\"b").contains("quotes"));
        let port = spec("tap:a,mtu=9");
        let error = read_graph_of(&port.table(), &crate::kinds()).unwrap_err();
        assert_eq!(
            port_error(error, &[port]).unwrap().to_string(),
            "port tap:a: mtu = 9: must be 68 to 65521"
        );
        let error = check_names(&[spec("a.b"), spec("tap:a-b")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "two ports have the name a-b; each port needs its own"
        );
    }
}
