//! Ordinary network cards, for guests that need one in addition to Carina, and for comparisons.

use std::path::PathBuf;

use carina_api::qemu::escape;
use serde_json::{Value, json};

use crate::accel::Accel;
use crate::error::{Error, Result};

/// The model of an emulated card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// virtio-net over PCI.
    VirtioNet,
    /// Intel 82540EM.
    E1000,
    /// Intel 82574.
    E1000e,
}

impl Model {
    /// Name of the QEMU device.
    pub fn device(self) -> &'static str {
        match self {
            Model::VirtioNet => "virtio-net-pci",
            Model::E1000 => "e1000",
            Model::E1000e => "e1000e",
        }
    }

    /// The kernel modules that drive the card, in the order in which they are loaded.
    pub fn modules(self) -> &'static [&'static str] {
        match self {
            Model::VirtioNet => &["virtio_pci", "virtio_net"],
            Model::E1000 => &["e1000"],
            Model::E1000e => &["e1000e"],
        }
    }
}

/// What a card is plugged into on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// A tap interface that already exists and that the caller may open.
    Tap(String),
    /// QEMU's own NAT, which needs no rights. Each pair maps a host port (UDP, on 127.0.0.1) to a
    /// guest port.
    User(Vec<(u16, u16)>),
    /// A vhost-user socket. The card's rings are in the guest's memory, which QEMU shares with the
    /// process at the other end. QEMU connects, and reconnects when that process restarts.
    VhostUser {
        /// Path of the socket.
        socket: PathBuf,
        /// Number of pairs of rings.
        queues: u16,
        /// Whether rings are packed; otherwise they are split.
        packed: bool,
    },
    /// The card is unplugged: it is connected to nothing.
    Unplugged,
    /// Any other `-netdev` value, without its `id=`, such as `socket,udp=…,localaddr=…`.
    Other(String),
}

/// Id of a network card in its machine. The cards that a machine starts with are numbered from 0,
/// in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NicId(pub u32);

impl NicId {
    /// QEMU's id of the card.
    pub(crate) fn device(self) -> String {
        format!("nic{}", self.0)
    }

    /// QEMU's ids of the back end that was joined to the card's hub later, and of the hub's port
    /// for it.
    pub(crate) fn behind_hub(self) -> [String; 2] {
        [format!("cable{}", self.0), format!("plug{}", self.0)]
    }

    /// QEMU's id of the card's back end.
    pub(crate) fn netdev(self) -> String {
        format!("net{}", self.0)
    }
}

/// A network card of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// Model of the card.
    pub model: Model,
    /// What the card is plugged into.
    pub backend: Backend,
    /// The card's MAC address; `None` for QEMU's default.
    pub mac: Option<[u8; 6]>,
}

impl Nic {
    /// The QEMU arguments of a card. `port` is the PCI bus that it sits on; if `None`, QEMU
    /// chooses.
    pub(crate) fn qemu_args(&self, id: NicId, port: Option<&str>, accel: Accel) -> Vec<String> {
        let netdev = id.netdev();
        let mut args = Vec::new();
        let back_end = match &self.backend {
            Backend::VhostUser { socket, queues, .. } => {
                let socket = escape(socket);
                args.push("-chardev".to_owned());
                args.push(format!("socket,id={netdev}s,path={socket},reconnect=1"));
                format!("vhost-user,id={netdev},chardev={netdev}s,queues={queues}")
            }
            Backend::Other(value) => match value.split_once(',') {
                Some((kind, rest)) => format!("{kind},id={netdev},{rest}"),
                None => format!("{value},id={netdev}"),
            },
            Backend::Tap(_) | Backend::User(_) | Backend::Unplugged => {
                option(&self.backend.object(id).unwrap_or_default())
            }
        };
        let mut device = self.device(id, port);
        if let Backend::VhostUser { queues, packed, .. } = self.backend {
            if queues > 1 {
                device["mq"] = json!(true);
                device["vectors"] = json!(2 * queues + 2);
            }
            if packed {
                device["packed"] = json!(true);
            }
            // QEMU 7.2 without KVM crashes when the driver enables MSI-X.
            if accel == Accel::Tcg {
                device["vectors"] = json!(0);
            }
        }
        args.extend(["-netdev".into(), back_end]);
        args.extend(["-device".into(), option(&device)]);
        args
    }

    /// The card as arguments of QMP's `device_add`.
    pub(crate) fn device(&self, id: NicId, port: Option<&str>) -> Value {
        // Without an empty `romfile`, QEMU requires a boot ROM from a package that is only
        // recommended.
        let mut device = json!({
            "driver": self.model.device(),
            "id": id.device(),
            "netdev": id.netdev(),
            "romfile": "",
        });
        if let Some(port) = port {
            device["bus"] = json!(port);
        }
        if let Some(mac) = self.mac {
            device["mac"] = json!(mac_text(mac));
        }
        device
    }

    /// Whether the process at the card's other end needs access to the guest's memory.
    pub(crate) fn shares_memory(&self) -> bool {
        matches!(self.backend, Backend::VhostUser { .. })
    }
}

impl Backend {
    /// The two objects that connect an unplugged card ([`Backend::Unplugged`]) to its back end: the
    /// back end, and a port of the card's hub for it.
    ///
    /// # Errors
    ///
    /// As for [`Backend::object`].
    pub(crate) fn behind_hub(&self, id: NicId) -> Result<[Value; 2]> {
        let [cable, plug] = id.behind_hub();
        let mut back_end = self.object(id)?;
        back_end["id"] = json!(cable);
        let port = json!({ "type": "hubport", "id": plug, "hubid": id.0, "netdev": cable });
        Ok([back_end, port])
    }

    /// The card's back end as arguments of QMP's `netdev_add`.
    ///
    /// # Errors
    ///
    /// A running machine cannot get a vhost-user back end or a [`Backend::Other`].
    pub(crate) fn object(&self, id: NicId) -> Result<Value> {
        let netdev = id.netdev();
        match self {
            Backend::Tap(interface) => Ok(json!({
                "type": "tap", "id": netdev, "ifname": interface, "script": "no",
                "downscript": "no",
            })),
            Backend::User(forwards) => {
                let forward = |(host, guest): &(u16, u16)| json!({ "str": format!("udp:127.0.0.1:{host}-:{guest}") });
                let forwards: Vec<Value> = forwards.iter().map(forward).collect();
                Ok(json!({ "type": "user", "id": netdev, "hostfwd": forwards }))
            }
            // A hub that has no other port.
            Backend::Unplugged => Ok(json!({ "type": "hubport", "id": netdev, "hubid": id.0 })),
            Backend::VhostUser { .. } | Backend::Other(_) => Err(Error::Invalid {
                what: format!("back end of card {}", id.0),
                reason: "only a tap, QEMU's NAT or none can be plugged into a running machine, \
                         or into a clone"
                    .into(),
            }),
        }
    }
}

/// Formats an object of QMP as a command-line option: `TYPE,key=value,…`.
fn option(object: &Value) -> String {
    let fields = object.as_object().into_iter().flatten();
    let mut option = String::new();
    for (key, value) in fields {
        let mut add = |value: &str| option.push_str(&format!(",{key}={value}"));
        match value {
            Value::String(_) if key == "type" || key == "driver" => {}
            Value::String(text) => add(&text.replace(',', ",,")),
            Value::Bool(on) => add(if *on { "on" } else { "off" }),
            Value::Array(list) => list
                .iter()
                .filter_map(|item| item["str"].as_str())
                .for_each(add),
            other => add(&other.to_string()),
        }
    }
    let kind = ["type", "driver"]
        .iter()
        .find_map(|key| object[key].as_str());
    format!("{}{option}", kind.unwrap_or_default())
}

/// A MAC address for a card that has none: locally administered, and the same at each start.
pub fn mac_of(machine: &str, card: u32) -> [u8; 6] {
    let bytes = machine.bytes().chain([0]).chain(card.to_le_bytes());
    // 64-bit FNV-1a.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let [a, b, c, d, ..] = (hash >> 32 ^ hash).to_le_bytes();
    [0x02, 0xca, a, b, c, d]
}

/// Formats a MAC address as Linux and QEMU do: `52:54:00:12:34:ff`.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(model: Model, backend: Backend, mac: Option<[u8; 6]>) -> Vec<String> {
        let nic = Nic {
            model,
            backend,
            mac,
        };
        nic.qemu_args(NicId(2), None, Accel::Tcg)
    }

    #[test]
    fn card_arguments_name_backend_and_address() {
        let mac = Some([0x52, 0x54, 0, 0x12, 0x34, 0xff]);
        let args = arguments(Model::VirtioNet, Backend::Tap("tap0".into()), mac);
        assert_eq!(args[1], "tap,downscript=no,id=net2,ifname=tap0,script=no");
        assert_eq!(
            args[3],
            "virtio-net-pci,id=nic2,mac=52:54:00:12:34:ff,netdev=net2,romfile="
        );
        let args = arguments(Model::E1000, Backend::User(vec![(5000, 7)]), None);
        assert_eq!(args[1], "user,hostfwd=udp:127.0.0.1:5000-:7,id=net2");
        let args = arguments(Model::E1000, Backend::Unplugged, None);
        assert_eq!(args[1], "hubport,hubid=2,id=net2");
        let other = Backend::Other("socket,udp=127.0.0.1:1".into());
        let args = arguments(Model::E1000, other, None);
        assert_eq!(args[1], "socket,id=net2,udp=127.0.0.1:1");
        let backend = Backend::VhostUser {
            socket: "/a,b".into(),
            queues: 2,
            packed: true,
        };
        let args = arguments(Model::VirtioNet, backend, None);
        assert_eq!(args[1], "socket,id=net2s,path=/a,,b,reconnect=1");
        assert!(args[5].ends_with("mq=on,netdev=net2,packed=on,romfile=,vectors=0"));
    }

    #[test]
    fn addresses_of_cards_are_local_and_differ() {
        let cards = [("a", 0), ("a", 1), ("b", 0), ("b", 256)];
        let set = std::collections::BTreeSet::from(cards.map(|(name, n)| mac_of(name, n)));
        assert_eq!(set.len(), 4);
        assert!(set.iter().all(|mac| mac[0] & 3 == 2));
        assert_eq!(mac_of("a", 1), mac_of("a", 1));
    }
}
