//! A guest whose cards Carina drives there.

use carina_vm::{Machine, Model, Nic, Running};
use serde_json::Value;

use super::cable::{Cable, Station};
use crate::house::{BOOT, SOON, boot, cache, until};

/// A guest with cards, and the ends of their cables.
pub(super) struct Site {
    pub vm: Running,
    pub cables: Vec<Cable>,
    /// Where the cards are on the guest's bus.
    pub cards: Vec<String>,
    _directory: tempfile::TempDir,
}

impl Site {
    pub(super) fn boot(models: &[Model], shape: impl FnOnce(Machine) -> Machine) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let cables: Vec<Cable> = models.iter().map(|_| Cable::new()).collect();
        let mut machine = Machine::new("n", directory.path()).unwrap();
        machine = machine
            .boot(boot().clone())
            .memory_mib(256)
            .dies_with_parent();
        for (number, (model, cable)) in models.iter().zip(&cables).enumerate() {
            machine = machine.nic(Nic {
                model: *model,
                backend: cable.backend(),
                mac: Some([2, 0, 0, 0, 1, number as u8]),
            });
        }
        let vm = shape(machine).start(&cache()).unwrap();
        vm.wait_ready(BOOT).unwrap();
        let mut site = Site {
            vm,
            cables,
            cards: Vec::new(),
            _directory: directory,
        };
        // On QEMU's bus they are in the order of its command line.
        site.cards = site.nics().iter().map(|nic| text(nic, "address")).collect();
        assert_eq!(site.cards.len(), models.len());
        site
    }

    pub(super) fn does(&self, command: &str) -> String {
        let output = self.vm.run_within(command, BOOT).unwrap();
        let (text, errors) = (output.text(), output.error_text());
        let status = output.status;
        assert!(
            output.is_success(),
            "{command}: status {status}: {text} {errors}"
        );
        text
    }

    pub(super) fn json(&self, command: &str) -> Value {
        let text = self.does(command);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{command}: {error}: {text}"))
    }

    pub(super) fn nics(&self) -> Vec<Value> {
        self.json("carina nic list --json")["nics"]
            .as_array()
            .unwrap()
            .clone()
    }

    pub(super) fn nic(&self, card: usize) -> Value {
        let all = self.nics();
        let mut all = all.into_iter();
        all.find(|nic| nic["address"] == self.cards[card].as_str())
            .unwrap()
    }

    /// Waits until the guest's kernel drives a card.
    pub(super) fn until_kernel_has(&self, card: usize, driver: &str) {
        let has = || {
            let nic = self.nic(card);
            (nic["kernel_driver"] == driver && nic["interface"].is_string()).then_some(())
        };
        assert!(until(SOON, has).is_some(), "{}", self.nic(card));
    }

    /// Pings the station by the driver of the guest's kernel, and takes the address away again.
    pub(super) fn kernel_pings(&self, card: usize) {
        let _station = Station::at(&self.cables[card]);
        let interface = text(&self.nic(card), "interface");
        self.does(&format!(
            "ip address add 10.0.{card}.2/24 dev {interface} && ip link set {interface} up"
        ));
        let ping = format!("ping -c 1 -W 1 10.0.{card}.1");
        let answered = || self.vm.run(&ping).unwrap().is_success().then_some(());
        assert!(until(SOON, answered).is_some(), "{interface}: no answer");
        self.does(&format!(
            "ip address flush dev {interface} && ip link set {interface} down"
        ));
    }

    /// Starts a forwarder between two cards, and returns its process there.
    pub(super) fn forwards(&self, a: &str, b: &str) -> String {
        self.starts(&format!("forward {a} {b} --every 0"), [a, b])
    }

    /// Starts a command of carina in the guest, waits until these ports of it are up, and returns
    /// its process there.
    pub(super) fn starts(&self, words: &str, ports: [&str; 2]) -> String {
        self.does("rm -rf /run/carina/graphs");
        let command =
            format!("carina --json {words} >/tmp/forward 2>/tmp/log </dev/null & echo $!");
        let process = self.does(&command);
        let is_up = |port: &str| self.counter(port, "is_up") == Some(1);
        let up = || ports.iter().all(|port| is_up(port)).then_some(());
        if until(SOON, up).is_none() {
            panic!(
                "{words}: {}",
                self.does("cat /tmp/forward /tmp/log; carina top --once")
            );
        }
        process
    }

    /// A counter of a port of the graph that runs; what is 0 is not shown.
    pub(super) fn counter(&self, port: &str, name: &str) -> Option<u64> {
        let top = self
            .vm
            .run("carina --json top --once --interval 20ms")
            .unwrap();
        let top: Value = serde_json::from_str(&top.text()).ok()?;
        let of = port.strip_prefix("pci:").unwrap_or(port);
        let app = of.split(',').next()?.replace([':', '.'], "-");
        let rows = top["rows"].as_array()?;
        let row = rows.iter().find(|row| {
            let name = row["name"].as_str().unwrap_or_default();
            name.ends_with(&format!(": {app}"))
        })?;
        Some(row["totals"][name].as_u64().unwrap_or(0))
    }

    pub(super) fn until_counter(&self, port: &str, name: &str, is_right: impl Fn(u64) -> bool) {
        let look = || self.counter(port, name).filter(|value| is_right(*value));
        if until(SOON, look).is_none() {
            let seen = self.counter(port, name);
            let top = self.does("cat /tmp/forward /tmp/log; carina --json top --once");
            panic!("{port}: {name} is {seen:?}: {top}");
        }
    }

    /// Kills a process, after its guardians.
    pub(super) fn kills_with_guardians(&self, process: &str) {
        // The pattern does not find the shell that says it.
        self.does(&format!(
            "for p in $(grep -l '[g]uard' /proc/[0-9]*/cmdline | cut -d / -f 3); do kill -9 $p; \
             done; kill -9 {process}; while test -d /proc/{process}; do sleep 0.05; done"
        ));
    }

    /// Ends the command as Ctrl-C does; returns what it printed at its end: of a forwarder frames
    /// in and out at each port.
    pub(super) fn ends(&self, process: &str) -> Value {
        self.does(&format!(
            "kill -INT {process}; while test -d /proc/{process}; do sleep 0.05; done"
        ));
        self.json("cat /tmp/forward")
    }
}

pub(super) fn text(value: &Value, key: &str) -> String {
    let text = value[key].as_str();
    text.unwrap_or_else(|| panic!("no {key} in {value}"))
        .to_owned()
}
