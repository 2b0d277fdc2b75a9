//! Plugging network cards into a running machine, and removing them.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use carina_netdev::{Tap, TapLayer, TapOffload};
use carina_sys::NetworkNamespace;
use serde_json::{Value, json};

use super::Running;
use crate::error::{Context, Error, Result};
use crate::network::{Nic, NicId, mac_text};
use crate::qmp::Qmp;

impl Running {
    /// Plugs a card into a free port of the running machine ([`Machine::ports`]). The guest sees it
    /// some 50 ms later; [`Running::interface_of`] waits for that.
    ///
    /// # Errors
    ///
    /// No port is free, or QEMU refuses the card or its back end.
    ///
    /// [`Machine::ports`]: crate::Machine::ports
    pub fn add_nic(&self, nic: &Nic) -> Result<NicId> {
        // Only one client at a time has this connection, so no other client changes the cards.
        let mut qmp = self.qmp()?;
        let plugged = Plugged::read(&mut qmp)?;
        let id = plugged.free_id();
        let port = plugged.free_port().ok_or_else(|| Error::Invalid {
            what: format!("a further card for machine {}", self.record().name),
            reason: format!(
                "none of its {} ports is free; give the machine more ports when it starts",
                plugged.ports.len()
            ),
        })?;
        qmp.add_back_end(nic.backend.object(id)?, self.network.as_deref())?;
        let added = qmp.execute("device_add", nic.device(id, Some(port)));
        if added.is_err() {
            // The first error is the one to report.
            let _ = qmp.execute("netdev_del", json!({ "id": id.netdev() }));
        }
        added.map(|_| id)
    }

    /// Removes a card from its port, and waits until the guest has released it.
    ///
    /// # Errors
    ///
    /// There is no such card, it sits on no port, or the guest does not release it within `limit`.
    pub fn remove_nic(&self, id: NicId, limit: Duration) -> Result<()> {
        let mut qmp = self.qmp()?;
        qmp.execute("device_del", json!({ "id": id.device() }))?;
        let is_it = |data: &Value| data["device"] == id.device().as_str();
        qmp.wait_event("DEVICE_DELETED", is_it, limit)?;
        let [cable, plug] = id.behind_hub();
        for name in [plug, cable] {
            // Only a machine of a pool has these objects.
            let _ = qmp.execute("netdev_del", json!({ "id": name }));
        }
        qmp.execute("netdev_del", json!({ "id": id.netdev() }))
            .map(drop)
    }

    /// Sets the link of a card up or down: the guest sees its carrier change.
    ///
    /// # Errors
    ///
    /// There is no such card.
    pub fn set_link(&self, id: NicId, up: bool) -> Result<()> {
        self.qmp()?.set_link(id, up)
    }

    /// The guest's name of the interface with a MAC address, such as `eth1`. Waits until it exists.
    ///
    /// # Errors
    ///
    /// The guest has no such interface within `limit`, or does not answer.
    pub fn interface_of(&self, mac: [u8; 6], limit: Duration) -> Result<String> {
        let mac = mac_text(mac);
        let tenths = limit.as_millis().div_ceil(100);
        let command = format!(
            "n=0; while [ $n -le {tenths} ]; do for i in /sys/class/net/*; do \
             read -r m <$i/address && [ \"$m\" = {mac} ] && echo ${{i##*/}} && exit; done; \
             n=$((n+1)); usleep 100000; done; exit 1"
        );
        let output = self.run_within(&command, limit + ANSWER)?;
        if output.is_success() {
            return Ok(output.text());
        }
        Err(Error::Guest(format!(
            "{} has no interface with address {mac} within {} s",
            self.record().name,
            limit.as_secs_f32()
        )))
    }
}

impl Qmp {
    /// Creates the back end of a card. A tap in another network namespace than QEMU's is opened
    /// there and passed to QEMU.
    pub(crate) fn add_back_end(&mut self, mut object: Value, network: Option<&Path>) -> Result<()> {
        let tap = object["ifname"].as_str().map(str::to_owned);
        if let (Some(tap), Some(network)) = (tap, network) {
            let id = object["id"].as_str().unwrap_or_default().to_owned();
            let file = open_tap(&tap, network)?;
            self.execute_with("getfd", json!({ "fdname": id }), &[file.as_fd()])?;
            object = json!({ "type": "tap", "id": id, "fd": id });
        }
        self.execute("netdev_add", object).map(drop)
    }

    /// Like [`Running::set_link`], over a monitor connection that is open already.
    pub(crate) fn set_link(&mut self, id: NicId, up: bool) -> Result<()> {
        self.execute("set_link", json!({ "name": id.device(), "up": up }))
            .map(drop)
    }
}

/// Opens an existing tap in the network namespace of a file.
fn open_tap(name: &str, network: &Path) -> Result<OwnedFd> {
    let open = || {
        let namespace = NetworkNamespace::open(network).context("open", network)?;
        namespace.enter().context("enter", network)?;
        let opened = Tap::open(name, TapLayer::Ethernet, TapOffload::default());
        opened.map(Tap::into_fd).map_err(|error| Error::Invalid {
            what: format!("tap {name} in {}", network.display()),
            reason: error.to_string(),
        })
    };
    // The thread ends in that namespace, so this thread stays in its own.
    std::thread::scope(|scope| {
        let opened = scope.spawn(open).join();
        opened.expect("opening a file does not panic")
    })
}

/// The ports and cards of a machine, by QEMU's ids.
#[derive(Debug, Default)]
struct Plugged {
    ports: BTreeSet<String>,
    taken: BTreeSet<String>,
    cards: BTreeSet<String>,
}

impl Plugged {
    fn read(qmp: &mut Qmp) -> Result<Plugged> {
        let mut plugged = Plugged::default();
        let listing = qmp.execute("qom-list", json!({ "path": PERIPHERAL }))?;
        for item in listing.as_array().into_iter().flatten() {
            let Some(name) = item["name"].as_str() else {
                continue;
            };
            if is_numbered(name, "port") {
                plugged.ports.insert(name.to_owned());
                continue;
            }
            if is_numbered(name, "nic") {
                plugged.cards.insert(name.to_owned());
            }
            let path = format!("{PERIPHERAL}/{name}");
            let bus = json!({ "path": path, "property": "parent_bus" });
            // A device on no bus occupies no port.
            if let Ok(bus) = qmp.execute("qom-get", bus) {
                let port = bus.as_str().and_then(|path| path.rsplit('/').next());
                plugged.taken.extend(port.map(str::to_owned));
            }
        }
        Ok(plugged)
    }

    fn free_port(&self) -> Option<&str> {
        let mut free: Vec<&String> = self.ports.difference(&self.taken).collect();
        free.sort_by_key(|name| (name.len(), *name));
        free.first().map(|name| name.as_str())
    }

    fn free_id(&self) -> NicId {
        let mut ids = (0..).map(NicId);
        ids.find(|id| !self.cards.contains(&id.device()))
            .expect("a machine has fewer cards than there are numbers")
    }
}

/// Whether a name consists of the prefix and a number.
fn is_numbered(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix);
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Path of QEMU's objects for devices that were given a name.
const PERIPHERAL: &str = "/machine/peripheral";
/// How long the guest may take to answer a request.
const ANSWER: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_port_by_number_without_a_device_is_free() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        let mut plugged = Plugged {
            ports: names(&["port0", "port2", "port10"]),
            taken: names(&["port0", "pcie.0"]),
            cards: names(&["nic0", "nic2"]),
        };
        assert_eq!(plugged.free_port(), Some("port2"));
        assert_eq!(plugged.free_id(), NicId(1));
        plugged.taken = plugged.ports.clone();
        assert_eq!(plugged.free_port(), None);
        assert!(is_numbered("nic12", "nic") && !is_numbered("nic", "nic"));
        assert!(!is_numbered("nicer", "nic"));
    }
}
