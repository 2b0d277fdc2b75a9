//! Measures a guest's network card during changes: the guest is rebooted, the back end is killed
//! and restarted, or the guest moves to another QEMU.
//!
//! ```text
//!   pings, 1000 a second -> tap -- bridge -- card 0 -- QEMU -- guest
//!                                     \----- card 1 -- QEMU    (to which the guest moves)
//! ```
//!
//! The pings come from this process, and the guest's kernel answers them. The results are what the
//! network observes: the number of pings without an answer, and the longest time without an answer.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carina_measure::results::{Metric, OURS, Results, Samples, machine};
use carina_namespaces::NamespaceAccess;
use carina_scratch::Scratch;
use carina_vm::{Backend, GuestImage, Model, Nic, Running, mac_text};

use self::pinger::Pinger;
use crate::Progress;
use crate::error::{Attempt, Result};
use crate::program::Program;
use crate::vm_and_host::guest_image;

mod pinger;

/// The event whose interruption of the guest's traffic is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The guest is reset, and boots again.
    Reboot,
    /// The process of the card's back end is killed and restarted.
    Kill,
    /// The guest moves to another QEMU.
    Migration,
}

/// A case: its name in the results, what happens to the guest or its back end, and the layout of
/// the guest's rings.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Name of the case in the results.
    pub name: &'static str,
    event: Event,
    is_packed: bool,
}

/// The cases of the benchmark: each event, with the layouts of rings that it is measured with.
pub const CASES: [Case; 5] = [
    case("reboot", Event::Reboot, false),
    case("back-end-killed-split", Event::Kill, false),
    case("migration-split", Event::Migration, false),
    case("back-end-killed-packed", Event::Kill, true),
    case("migration-packed", Event::Migration, true),
];

const fn case(name: &'static str, event: Event, is_packed: bool) -> Case {
    Case {
        name,
        event,
        is_packed,
    }
}

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); 2 * CASES.len()] = {
    let mut tables = [("", Metric::LostPackets, "packets lost"); 2 * CASES.len()];
    let mut at = 0;
    while at < CASES.len() {
        tables[2 * at].0 = CASES[at].name;
        tables[2 * at + 1] = (CASES[at].name, Metric::GapMs, "time without an answer, ms");
        at += 1;
    }
    tables
};

/// Which events to measure, and how often.
#[derive(Debug, Clone)]
pub struct RestartOptions {
    /// The events (restarts and migrations) whose pauses are measured.
    pub cases: Vec<Case>,
    /// Number of times that each event is measured.
    pub runs: usize,
    /// Called with a line of text at each step of the benchmark.
    pub progress: Progress,
}

/// Measures for how long a guest's card does not answer pings when the guest, its back end or its
/// QEMU is replaced. The process must be in a network namespace of its own
/// ([`require_network`](crate::vm_and_host::require_network)).
///
/// # Errors
/// Something is missing or does not start, or a guest does not answer again in time.
pub fn run(options: &RestartOptions) -> Result<Results> {
    let mut samples = Samples::default();
    let mut notes = vec![
        "1000 pings of 64 bytes a second from the host; lost_packets: those without an answer; \
         gap_ms: the longest time without one"
            .to_owned(),
    ];
    for is_packed in [false, true] {
        let cases = options.cases.iter();
        let cases: Vec<Case> = cases
            .filter(|c| c.is_packed == is_packed)
            .copied()
            .collect();
        if cases.is_empty() {
            continue;
        }
        options.progress.step(if is_packed {
            "booting a guest with packed rings"
        } else {
            "booting a guest with split rings"
        });
        let mut site = Site::new(is_packed)?;
        for run in 1..=options.runs {
            for case in &cases {
                let (lost, gap) = site.measure(case.event).map_err(|e| e.in_case(case.name))?;
                options.progress.step(format!(
                    "run {run} of {}: {}: {lost} of the pings lost, {:.0} ms without an answer",
                    options.runs,
                    case.name,
                    gap.as_secs_f64() * 1e3
                ));
                let mut add = |metric, value| {
                    samples.add(case.name, PING_BYTES, OURS, metric, value);
                };
                add(Metric::LostPackets, lost as f64);
                add(Metric::GapMs, gap.as_secs_f64() * 1e3);
            }
        }
        notes.push(site.note());
    }
    notes.dedup();
    Ok(Results {
        bench: "restart".to_owned(),
        machine: machine(),
        notes,
        rows: samples.rows(),
        factors: Vec::new(),
        failures: Vec::new(),
    })
}

/// A host with the back end, and a guest behind it. Dropping the value ends all of it.
struct Site {
    // The guest is dropped first.
    guest: Running,
    back_end: Program,
    image: GuestImage,
    /// Index of the card that the guest has now.
    card: usize,
    is_packed: bool,
    scratch: Scratch,
}

impl Site {
    fn new(is_packed: bool) -> Result<Site> {
        let image = guest_image(None)?;
        let scratch = Scratch::new(&format!("restart-{}-{is_packed}", std::process::id()))?;
        set_up_tap()?;
        std::fs::write(graph_file(&scratch), graph(&scratch)).attempt("writing a graph")?;
        let back_end = start_back_end(&scratch)?;
        let guest = boot(&image, &scratch, 0, is_packed, None)?;
        wait_ready(&guest)?;
        Ok(Site {
            guest,
            back_end,
            image,
            card: 0,
            is_packed,
            scratch,
        })
    }

    /// Pings before, during and after an event. Returns the number of lost pings, and the longest
    /// gap.
    fn measure(&mut self, event: Event) -> Result<(u64, Duration)> {
        let pinger = Pinger::start(GUEST)?;
        pinger.wait_until_steady(PATIENCE)?;
        match event {
            Event::Reboot => self.guest.reboot(PATIENCE).attempt("rebooting")?,
            Event::Kill => {
                self.back_end.kill();
                self.back_end = start_back_end(&self.scratch)?;
            }
            Event::Migration => self.migrate()?,
        }
        pinger.wait_until_steady(PATIENCE)?;
        pinger.end()
    }

    /// Moves the guest to another QEMU with the other card.
    fn migrate(&mut self) -> Result<()> {
        let card = 1 - self.card;
        let socket = self.scratch.path().join("migration");
        let next = boot(
            &self.image,
            &self.scratch,
            card,
            self.is_packed,
            Some(&socket),
        )?;
        let started = next.wait_started(PATIENCE);
        started.attempt("waiting for the QEMU that the guest moves to")?;
        let moved = self.guest.migrate(&socket, PATIENCE);
        moved.attempt("moving the guest")?;
        self.guest = next;
        self.card = card;
        wait_ready(&self.guest)
    }

    fn note(&self) -> String {
        format!(
            "a guest of 1 CPU, 256 MiB, under QEMU with {}; it moves over a Unix socket",
            self.guest.record().accel
        )
    }
}

/// Boots the guest, or starts a QEMU that waits for the guest to move to it.
fn boot(
    image: &GuestImage,
    scratch: &Scratch,
    card: usize,
    is_packed: bool,
    incoming: Option<&Path>,
) -> Result<Running> {
    let name = format!("g{card}");
    let nic = Nic {
        model: Model::VirtioNet,
        backend: Backend::VhostUser {
            socket: card_socket(scratch, card),
            queues: 1,
            packed: is_packed,
        },
        mac: Some(GUEST_MAC),
    };
    let machine = image.machine(&name, scratch.path().join("vm"));
    let mut machine = machine.attempt("naming the VM")?.nic(nic);
    // Both cards have the same interface in the guest, whose address moves with the guest.
    machine = machine.command(&format!(
        "ip address add {GUEST}/24 dev eth0; ip link set eth0 up"
    ));
    if let Some(socket) = incoming {
        machine = machine.incoming(socket);
    }
    let started = machine.dies_with_parent().start(image.cache());
    started.attempt("starting QEMU")
}

fn wait_ready(guest: &Running) -> Result<()> {
    guest.wait_ready(PATIENCE).attempt("waiting for the guest")
}

/// Makes the tap interface, which stays while the back end is down. The guest's MAC address is set
/// statically, so that ARP does not affect the measurement.
fn set_up_tap() -> Result<()> {
    let mac = mac_text(GUEST_MAC);
    let access = NamespaceAccess::of_root();
    // The tap of an earlier site may still exist.
    let _ = access.ip(&["link", "del", TAP]);
    for command in [
        format!("tuntap add dev {TAP} mode tap"),
        format!("addr add {HOST} dev {TAP}"),
        format!("link set dev {TAP} up"),
        format!("neigh add {GUEST} lladdr {mac} dev {TAP} nud permanent"),
    ] {
        access.ip(&command.split(' ').collect::<Vec<_>>())?;
    }
    Ok(())
}

fn graph(scratch: &Scratch) -> String {
    let mut text = String::from(
        "links = [\"tap.output -> bridge.tap\", \"bridge.tap -> tap.input\", \
         \"card0.output -> bridge.card0\", \"bridge.card0 -> card0.input\", \
         \"card1.output -> bridge.card1\", \"bridge.card1 -> card1.input\"]\n\
         [apps.bridge]\nkind = \"bridge\"\n",
    );
    text += &format!("[apps.tap]\nkind = \"tap\"\nname = \"{TAP}\"\n");
    for card in 0..2 {
        let socket = card_socket(scratch, card);
        text += &format!("[apps.card{card}]\nkind = \"vhost_user\"\nsocket = {socket:?}\n");
    }
    text
}

fn graph_file(scratch: &Scratch) -> PathBuf {
    scratch.path().join("graph.toml")
}

fn card_socket(scratch: &Scratch, card: usize) -> PathBuf {
    scratch.path().join(format!("card{card}"))
}

fn start_back_end(scratch: &Scratch) -> Result<Program> {
    let file = graph_file(scratch).display().to_string();
    Program::start(scratch.path(), &["graph", "run", &file])
}

const TAP: &str = "carina-restart";
const HOST: &str = "10.87.0.1/24";
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 87, 0, 2);
const GUEST_MAC: [u8; 6] = [0x52, 0x54, 0, 0x57, 0, 2];
/// Length of a ping with its ICMP header.
const PING_BYTES: u64 = 64;

/// How long a guest may take to answer again; emulated guests are slow.
const PATIENCE: Duration = Duration::from_secs(180);
