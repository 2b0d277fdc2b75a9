//! Arguments for QEMU and elements for libvirt that connect a virtual machine to a port.

use std::fmt::Write;

use super::TrafficPort;

/// A guest's network card, as its port is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    name: String,
    socket: String,
    /// Whether QEMU creates the socket and the port connects to it.
    is_server: bool,
    queues: i64,
    packed: bool,
    mergeable: bool,
    indirect: bool,
    mac: Option<String>,
    mtu: Option<u16>,
}

/// The error for a port that is not a guest's network card.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "port {port} is of kind {kind}: a virtual machine can attach only to a port of kind \
     vhost_user, which has no `app`"
)]
pub struct NoCard {
    /// Name of the port that is not a card of a virtual machine.
    pub port: String,
    /// The kind of app that the port has in the file, such as `tap`.
    pub kind: String,
}

impl Card {
    /// The card of a port.
    ///
    /// # Errors
    /// The port is not of kind `vhost_user`.
    pub fn of(port: &TrafficPort) -> Result<Card, NoCard> {
        let text = |key: &str| port.app.get(key).and_then(toml::Value::as_str);
        let flag = |key: &str| port.app.get(key).and_then(toml::Value::as_bool);
        let kind = text("kind").unwrap_or_default();
        let Some(socket) = text("socket").filter(|_| kind == "vhost_user") else {
            return Err(NoCard {
                port: port.name.clone(),
                kind: kind.to_owned(),
            });
        };
        let queues = port.app.get("queues").and_then(toml::Value::as_integer);
        Ok(Card {
            name: port.name.clone(),
            socket: socket.to_owned(),
            is_server: flag("client").unwrap_or(false),
            queues: queues.unwrap_or(1),
            packed: flag("packed").unwrap_or(true),
            mergeable: flag("mergeable").unwrap_or(true),
            indirect: flag("indirect").unwrap_or(true),
            mac: port.mac.map(|mac| mac.to_string()),
            mtu: None,
        })
    }

    /// Sets the MTU that the card offers to the guest's driver.
    #[must_use]
    pub fn with_mtu(self, mtu: Option<u16>) -> Card {
        Card { mtu, ..self }
    }

    /// The QEMU arguments for this card. `memory` is the guest's memory as for `-m`, which QEMU
    /// must share with the port; `None` leaves out the arguments for it. `is_emulated` means that
    /// QEMU runs without KVM: the card then has no MSI-X, because QEMU 7.2 crashes when a guest's
    /// driver enables MSI-X.
    #[must_use]
    pub fn qemu(&self, memory: Option<&str>, is_emulated: bool) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        if let Some(memory) = memory {
            let object = format!("memory-backend-memfd,id=carina-memory,size={memory},share=on");
            add("-object", object);
            add("-machine", "memory-backend=carina-memory".to_owned());
        }
        let name = &self.name;
        let path = self.socket.replace(',', ",,");
        let how = if self.is_server {
            "server=on,wait=off"
        } else {
            "reconnect=1"
        };
        add(
            "-chardev",
            format!("socket,id=carina-{name},path={path},{how}"),
        );
        let queues = self.queues;
        add(
            "-netdev",
            format!("vhost-user,id=net-{name},chardev=carina-{name},queues={queues}"),
        );
        let mut device = format!("virtio-net-pci,netdev=net-{name}");
        if let Some(mac) = &self.mac {
            let _ = write!(device, ",mac={mac}");
        }
        if let Some(mtu) = self.mtu {
            let _ = write!(device, ",host_mtu={mtu}");
        }
        if queues > 1 {
            device.push_str(",mq=on");
        }
        let _ = match queues {
            _ if is_emulated => write!(device, ",vectors=0"),
            2.. => write!(device, ",vectors={}", 2 * queues + 2),
            _ => Ok(()),
        };
        for (is_on, option) in [
            (self.packed, ",packed=on"),
            (!self.mergeable, ",mrg_rxbuf=off"),
            (!self.indirect, ",indirect_desc=off"),
        ] {
            device.push_str(if is_on { option } else { "" });
        }
        device.push_str(",rx_queue_size=1024");
        add("-device", device);
        arguments
    }

    /// The elements of a libvirt domain for this card.
    #[must_use]
    pub fn libvirt(&self) -> String {
        let mut xml = String::from(
            "<!-- in <domain> -->\n<memoryBacking>\n  <source type='memfd'/>\n  \
             <access mode='shared'/>\n</memoryBacking>\n<!-- in <devices> -->\n\
             <interface type='vhostuser'>\n",
        );
        if let Some(mac) = &self.mac {
            let _ = writeln!(xml, "  <mac address='{mac}'/>");
        }
        let path = attribute(&self.socket);
        let _ = if self.is_server {
            writeln!(xml, "  <source type='unix' path='{path}' mode='server'/>")
        } else {
            writeln!(
                xml,
                "  <source type='unix' path='{path}' mode='client'>\n    \
                 <reconnect enabled='yes' timeout='1'/>\n  </source>"
            )
        };
        xml += "  <model type='virtio'/>\n";
        if let Some(mtu) = self.mtu {
            let _ = writeln!(xml, "  <mtu size='{mtu}'/>");
        }
        let packed = if self.packed { " packed='on'" } else { "" };
        let _ = write!(
            xml,
            "  <driver queues='{}' rx_queue_size='1024'{packed}",
            self.queues
        );
        if self.mergeable {
            xml += "/>\n"
        } else {
            xml += ">\n    <host mrg_rxbuf='off'/>\n  </driver>\n"
        }
        xml + "</interface>\n"
    }
}

fn attribute(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(is_server: bool, queues: i64) -> Card {
        Card {
            name: "web".into(),
            socket: "/run/a,b/it's".into(),
            is_server,
            queues,
            packed: queues == 1,
            mergeable: queues == 1,
            indirect: true,
            mac: (queues == 1).then(|| "52:54:00:00:00:01".into()),
            mtu: None,
        }
    }

    #[test]
    fn qemu_gets_a_card_and_shared_memory() {
        let arguments = card(false, 1).qemu(Some("1G"), false);
        assert_eq!(
            arguments.join(" "),
            "-object memory-backend-memfd,id=carina-memory,size=1G,share=on \
             -machine memory-backend=carina-memory \
             -chardev socket,id=carina-web,path=/run/a,,b/it's,reconnect=1 \
             -netdev vhost-user,id=net-web,chardev=carina-web,queues=1 \
             -device virtio-net-pci,netdev=net-web,mac=52:54:00:00:00:01,packed=on,\
             rx_queue_size=1024"
        );
        let arguments = card(true, 2).qemu(None, false);
        assert_eq!(arguments.len(), 6);
        assert!(arguments[1].ends_with(",server=on,wait=off"));
        assert!(arguments[5].contains(",mq=on,vectors=6,mrg_rxbuf=off,"));
        let short = card(true, 2).with_mtu(Some(1400)).qemu(None, false);
        assert!(short[5].contains(",host_mtu=1400,mq=on,"));
        let emulated = card(true, 2).qemu(None, true);
        assert!(emulated[5].contains(",mq=on,vectors=0,mrg_rxbuf=off,"));
    }

    #[test]
    fn libvirt_gets_the_same() {
        let xml = card(false, 1).libvirt();
        assert!(
            xml.contains(
                "<source type='unix' path='/run/a,b/it&apos;s' mode='client'>\n    \
                 <reconnect enabled='yes' timeout='1'/>"
            ),
            "{xml}"
        );
        assert!(xml.contains("<mac address='52:54:00:00:00:01'/>"), "{xml}");
        assert!(!xml.contains("mtu"), "{xml}");
        let xml = card(true, 2).with_mtu(Some(1400)).libvirt();
        assert!(xml.contains("  <mtu size='1400'/>"), "{xml}");
        assert!(xml.contains("mode='server'/>"), "{xml}");
        assert!(
            xml.contains("<driver queues='2' rx_queue_size='1024'>\n    <host mrg_rxbuf='off'/>"),
            "{xml}"
        );
    }
}
