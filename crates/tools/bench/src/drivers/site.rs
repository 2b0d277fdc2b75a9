//! The guest of the benchmark, with a card of each kind.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carina_scratch::Scratch;
use carina_vm::{GuestImage, Machine, Model, Nic, Running};
use serde_json::Value;

use super::cable::{Cable, OFFERED_PER_S};
use crate::Progress;
use crate::error::{Attempt, Error, Result};

/// The guest, and the host's ends of its cables.
pub(super) struct Site {
    vm: Running,
    cables: Vec<Cable>,
    /// PCI addresses of the cards in the guest.
    cards: Vec<String>,
    _directory: Scratch,
}

const MODELS: [Model; 2] = [Model::E1000e, Model::VirtioNet];

impl Site {
    pub(super) fn start(guest_program: Option<&Path>, progress: Progress) -> Result<Site> {
        let own = std::env::current_exe().attempt("finding this program")?;
        progress.step("preparing the guest");
        let image = GuestImage::prepare(guest_program.unwrap_or(&own));
        let image = image.attempt("preparing the guest's image")?;
        let directory = Scratch::new(&format!("drivers-{}", std::process::id()))?;
        let machine = image.machine("drivers", directory.path());
        let machine = machine.attempt("naming the VM")?;
        let mut machine: Machine = machine.memory_mib(512).dies_with_parent();
        let mut cables = Vec::new();
        for (number, model) in (0..).zip(MODELS) {
            let cable = Cable::new()?;
            machine = machine.nic(Nic {
                model,
                backend: cable.backend()?,
                mac: Some([2, 0, 0, 0, 1, number]),
            });
            cables.push(cable);
        }
        progress.step("booting the guest");
        let vm = machine.start(image.cache()).attempt("starting the VM")?;
        vm.wait_ready(PATIENCE).attempt("booting the VM")?;
        let mut site = Site {
            vm,
            cables,
            cards: Vec::new(),
            _directory: directory,
        };
        let nics = site.nics()?;
        site.cards = nics.iter().map(|nic| text(nic, "address")).collect();
        if site.cards.len() == MODELS.len() {
            Ok(site)
        } else {
            Err(Error::Proc(format!(
                "the guest has the cards {:?}",
                site.cards
            )))
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        vec![format!(
            "one boot of one VM under QEMU with {}, 1 CPU, 512 MiB, an e1000e and a virtio-net \
             card of QEMU's own; {OFFERED_PER_S} frames a second are offered to a card that \
             receives",
            self.vm.record().accel
        )]
    }

    fn does(&self, command: &str) -> Result<String> {
        let output = self.vm.run_within(command, PATIENCE);
        let output = output.attempt(format!("in the guest: {command}"))?;
        if output.is_success() {
            Ok(output.text())
        } else {
            let (text, error) = (output.text(), output.error_text());
            Err(Error::Proc(format!(
                "in the guest: {command}: {text} {error}"
            )))
        }
    }

    fn json(&self, command: &str) -> Result<Value> {
        let text = self.does(command)?;
        serde_json::from_str(&text).map_err(|source| Error::Json {
            what: command.to_owned(),
            source,
        })
    }

    fn nics(&self) -> Result<Vec<Value>> {
        let nics = self.json("carina nic list --json")?;
        Ok(nics["nics"].as_array().cloned().unwrap_or_default())
    }

    /// The port name of a card for graphs: by its PCI address, or by its interface, which is set
    /// up.
    pub(super) fn port(&self, card: usize, is_ours: bool) -> Result<String> {
        let address = &self.cards[card];
        if is_ours {
            return Ok(format!("pci:{address}"));
        }
        let begin = Instant::now();
        loop {
            let nics = self.nics()?;
            let nic = nics.iter().find(|nic| nic["address"] == address.as_str());
            if let Some(interface) = nic.and_then(|nic| nic["interface"].as_str()) {
                self.does(&format!(
                    "ip link set {interface} up promisc on && \
                     until grep -q 1 /sys/class/net/{interface}/carrier; do sleep 0.1; done"
                ))?;
                return Ok(format!("af_packet:{interface}"));
            }
            if begin.elapsed() > PATIENCE {
                return Err(Error::Proc(format!(
                    "the guest's kernel does not have {address}"
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The rate of frames that the guest sends through a card.
    pub(super) fn sends(&self, card: usize, port: &str, size: u64, time_ns: u64) -> Result<f64> {
        self.cables[card].discard();
        // Long enough for the start and for the time before the measurement.
        let time_ms = time_ns * 2 / 1_000_000 + 1000;
        let begun = self.does(&format!(
            "carina blast {port} --size {size} --for {time_ms}ms --every 0 \
             >/tmp/blast 2>&1 </dev/null & echo $!"
        ))?;
        let rate = self.cables[card].count(size, time_ns);
        let process = begun.trim();
        self.does(&format!("kill -INT {process}; {}", gone(process)))?;
        match rate {
            Err(Error::NoAnswer(what)) => {
                let output = self.does("cat /tmp/blast").unwrap_or_default();
                Err(Error::NoAnswer(format!("{what}: {output}")))
            }
            rate => rate,
        }
    }

    /// The rate of frames that the guest receives through a card, and counts in a sink.
    pub(super) fn receives(&self, card: usize, port: &str, size: u64, time_ns: u64) -> Result<f64> {
        let (kind, of) = port.split_once(':').unwrap_or_default();
        let key = if kind == "pci" {
            "address"
        } else {
            "interface"
        };
        self.does(&format!(
            "rm -rf /run/carina/graphs; cat >/tmp/sink.toml <<END\n\
             links = [\"port.output -> sink.input\"]\n[apps.port]\nkind = \"{kind}\"\n\
             {key} = \"{of}\"\n[apps.sink]\nkind = \"sink\"\nEND"
        ))?;
        let begun = self.does(
            "carina graph run /tmp/sink.toml >/tmp/sink 2>&1 </dev/null & echo $!; \
             until ls /run/carina/graphs/*.counters >/dev/null 2>&1; do sleep 0.05; done",
        )?;
        let (cable, is_over) = (&self.cables[card], AtomicBool::new(false));
        let rate = std::thread::scope(|scope| {
            scope.spawn(|| cable.send_until(size, || is_over.load(Ordering::Relaxed)));
            let rate = self.rate_at_sink(time_ns);
            is_over.store(true, Ordering::Relaxed);
            rate
        });
        let process = begun.trim();
        self.does(&format!("kill -INT {process}; {}", gone(process)))?;
        match rate? {
            0.0 => {
                let output = self.does("cat /tmp/sink").unwrap_or_default();
                Err(Error::NoAnswer(format!(
                    "no frame has come to the sink: {output}"
                )))
            }
            rate => Ok(rate),
        }
    }

    /// Waits until frames pass the graph's link, and measures their rate after a third of the time.
    fn rate_at_sink(&self, time_ns: u64) -> Result<f64> {
        let look = |ms: u64| -> Result<f64> {
            let top = self.json(&format!("carina --json top --once --interval {ms}ms"))?;
            let rows = top["rows"].as_array().cloned().unwrap_or_default();
            let link = rows.iter().find(|row| row["kind"] == "link");
            Ok(link
                .and_then(|row| row["sdus_in_per_s"].as_f64())
                .unwrap_or(0.0))
        };
        let begin = Instant::now();
        while look(20)? == 0.0 {
            if begin.elapsed() > FIRST {
                return Ok(0.0);
            }
        }
        look((time_ns / 3_000_000).max(20))?;
        Ok(look((time_ns / 1_000_000).max(20))? * 1e-6)
    }
}

fn gone(process: &str) -> String {
    format!("while test -d /proc/{process}; do sleep 0.05; done")
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// Time limit of a command in an emulated guest on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);
/// Time limit for the first frame.
const FIRST: Duration = Duration::from_secs(20);
