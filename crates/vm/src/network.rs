//! Ordinary network cards, for guests that want one beside Carina and for comparisons.

use std::path::PathBuf;

use carina_api::qemu::escape;

use crate::accel::Accel;

/// The emulated card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// virtio-net over PCI.
    VirtioNet,
    /// Intel 82540EM.
    E1000,
}

impl Model {
    /// The QEMU device.
    pub fn device(self) -> &'static str {
        match self {
            Model::VirtioNet => "virtio-net-pci",
            Model::E1000 => "e1000",
        }
    }

    /// The kernel modules that drive it, in the order in which they are loaded.
    pub fn modules(self) -> &'static [&'static str] {
        match self {
            Model::VirtioNet => &["virtio_pci", "virtio_net"],
            Model::E1000 => &["e1000"],
        }
    }
}

/// What the card is plugged into on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// A tap interface that exists already and that the caller may open.
    Tap(String),
    /// QEMU's own NAT; needs no rights. Pairs are host port (UDP, on 127.0.0.1) to guest port.
    User(Vec<(u16, u16)>),
    /// A vhost-user socket: the card's rings lie in the guest's memory, which QEMU shares with the
    /// process at the other end. QEMU connects, and connects again when that process restarts.
    VhostUser {
        /// Path of the socket.
        socket: PathBuf,
        /// Pairs of rings.
        queues: u16,
        /// Packed rings instead of split ones.
        packed: bool,
    },
    /// Any other `-netdev` value, without its `id=`, such as `socket,udp=…,localaddr=…`.
    Other(String),
}

/// A network card of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// Which card.
    pub model: Model,
    /// What it is plugged into.
    pub backend: Backend,
    /// Its address, or QEMU's default.
    pub mac: Option<[u8; 6]>,
}

impl Nic {
    /// The QEMU arguments of the card with number `index` of its machine.
    pub(crate) fn qemu_args(&self, index: usize, accel: Accel) -> Vec<String> {
        let id = format!("net{index}");
        let mut args = Vec::new();
        let netdev = match &self.backend {
            Backend::Tap(interface) => {
                format!("tap,id={id},ifname={interface},script=no,downscript=no")
            }
            Backend::User(forwards) => {
                let forward =
                    |(host, guest): &(u16, u16)| format!(",hostfwd=udp:127.0.0.1:{host}-:{guest}");
                let forwards: String = forwards.iter().map(forward).collect();
                format!("user,id={id}{forwards}")
            }
            Backend::VhostUser { socket, queues, .. } => {
                let socket = escape(socket);
                args.push("-chardev".to_owned());
                args.push(format!("socket,id={id}s,path={socket},reconnect=1"));
                format!("vhost-user,id={id},chardev={id}s,queues={queues}")
            }
            Backend::Other(value) => match value.split_once(',') {
                Some((kind, rest)) => format!("{kind},id={id},{rest}"),
                None => format!("{value},id={id}"),
            },
        };
        // Without romfile= QEMU wants a boot ROM from a package that is only recommended.
        let mut device = format!("{},netdev={id},romfile=", self.model.device());
        if let Some(mac) = self.mac {
            device.push_str(&format!(",mac={}", mac_text(mac)));
        }
        if let Backend::VhostUser { queues, packed, .. } = self.backend {
            if queues > 1 {
                device.push_str(&format!(",mq=on,vectors={}", 2 * queues + 2));
            }
            if packed {
                device.push_str(",packed=on");
            }
            // QEMU 7.2 without KVM dies when the driver turns MSI-X on.
            if accel == Accel::Tcg {
                device.push_str(",vectors=0");
            }
        }
        args.extend(["-netdev".into(), netdev, "-device".into(), device]);
        args
    }

    /// Whether the process behind the card needs the guest's memory.
    pub(crate) fn shares_memory(&self) -> bool {
        matches!(self.backend, Backend::VhostUser { .. })
    }
}

/// An address as Linux and QEMU write it: `52:54:00:12:34:ff`.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn card_arguments_name_backend_and_address() {
        let mac = Some([0x52, 0x54, 0, 0x12, 0x34, 0xff]);
        let backend = Backend::Tap("tap0".into());
        let args = Nic {
            model: Model::VirtioNet,
            backend,
            mac,
        }
        .qemu_args(2, Accel::Tcg);
        assert_eq!(args[1], "tap,id=net2,ifname=tap0,script=no,downscript=no");
        assert_eq!(
            args[3],
            "virtio-net-pci,netdev=net2,romfile=,mac=52:54:00:12:34:ff"
        );
        let backend = Backend::User(vec![(5000, 7)]);
        let args = Nic {
            model: Model::E1000,
            backend,
            mac: None,
        }
        .qemu_args(0, Accel::Tcg);
        assert_eq!(args[1], "user,id=net0,hostfwd=udp:127.0.0.1:5000-:7");
        let backend = Backend::Other("socket,udp=127.0.0.1:1".into());
        let args = Nic {
            model: Model::E1000,
            backend,
            mac: None,
        }
        .qemu_args(0, Accel::Tcg);
        assert_eq!(args[1], "socket,id=net0,udp=127.0.0.1:1");
    }
}
