//! The demonstration `carina nfv demo`: two unmodified VMs behind one process of `carina nfv run`,
//! and the cost of hops.
//!
//! ```text
//!   client  eth0 -- red-client ---- VLAN 10 ---- red-server -- eth0  server
//!           eth1 -- blue-client --- VLAN 20 --- blue-server -- eth1
//! ```
//!
//! The guests run Linux with its own virtio-net driver, and programs of busybox: ping, httpd, wget.
//! The demonstration changes ports as users do: by changing the file of ports. Nothing needs root.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use carina_measure::results::Results;
use carina_scratch::Scratch;
use serde::Serialize;

use self::guests::Guests;
use self::ports_file::PortsFile;
use crate::Progress;
use crate::error::{Attempt, Result};
use crate::program::Program;
use crate::vm_and_host::guest_image;

mod guests;
pub mod hops;
mod ports_file;

pub use self::guests::Pings;

/// What the demonstration has shown: pings, a rate limit, a blocked port, and expectations that
/// were not met.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// QEMU's accelerator for the guests: `kvm` or `tcg`.
    pub accelerator: String,
    /// Pings from the client to the server.
    pub ping: Pings,
    /// A download with a rate limit and without.
    pub rate: Rate,
    /// A TCP port that was blocked for a while.
    pub block: Block,
    /// Counts of the ports, as in the output of `carina nfv run --json`.
    pub ports: serde_json::Value,
    /// What the demo expected and did not find, each as text; empty if the demo succeeded.
    pub failures: Vec<String>,
}

/// A download from the server through a rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// Rate limit of the port, in Mb/s.
    pub limit_mbps: f64,
    /// Rate of the download with the limit, in Mb/s.
    pub limited_mbps: f64,
    /// Rate of the download after the limit was removed, in Mb/s.
    pub unlimited_mbps: f64,
}

/// What a client in a guest observed while a filter blocked TCP port 80 of the server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Block {
    /// Whether the client could fetch a page before the filter was installed.
    pub served_before: bool,
    /// Whether the client could fetch a page while the filter was in place; it should not.
    pub served_meanwhile: bool,
    /// Whether the client could fetch a page after the filter was removed.
    pub served_after: bool,
    /// Pings through the port with the filter, from before the installation of the filter until
    /// after its removal.
    pub same_port: Pings,
    /// Pings through the other ports during the same time.
    pub other_ports: Pings,
}

/// The process, the guests behind it, and their directory. Dropping the value ends all of it.
#[derive(Debug)]
pub struct NfvDemo {
    // Guests are dropped first, their directory last.
    guests: Guests,
    ports: Program,
    file: PortsFile,
    progress: Progress,
    _scratch: Scratch,
}

impl NfvDemo {
    /// Starts the process, and boots the guests.
    ///
    /// # Errors
    /// Something is missing or does not start.
    pub fn start(guest_program: Option<&Path>, progress: Progress) -> Result<NfvDemo> {
        progress.step("building the guests' image (kernel, busybox, carina)");
        let image = guest_image(guest_program)?;
        let scratch = Scratch::new(&format!("nfv-{}", std::process::id()))?;
        let file = PortsFile::new(scratch.path());
        file.write()?;
        progress.step("starting the ports: carina nfv run ports.toml");
        let ports = file.run()?;
        progress.step("booting two VMs, each with two virtio-net cards");
        let guests = Guests::boot(&image, scratch.path(), &file)?;
        guests.set_up(DOWNLOAD_BYTES)?;
        Ok(NfvDemo {
            guests,
            ports,
            file,
            progress,
            _scratch: scratch,
        })
    }

    /// Runs the demonstration.
    ///
    /// # Errors
    /// A guest or the process does not work. Expectations that are not met are in the report.
    pub fn show(&mut self) -> Result<Report> {
        self.progress.step("the client pings the server");
        let ping = self.guests.ping(RED_SERVER, 50)?;
        let rate = self.rate()?;
        let block = self.block()?;
        let mut report = Report {
            accelerator: self.guests.accelerator().to_owned(),
            ping,
            rate,
            block,
            ports: serde_json::Value::Null,
            failures: Vec::new(),
        };
        report.note_failures();
        Ok(report)
    }

    /// Downloads through the limit of the server's port, and without the limit.
    fn rate(&mut self) -> Result<Rate> {
        let limit_mbps = LIMIT_MBPS;
        let text = format!("the client downloads through a limit of {limit_mbps} Mb/s");
        self.progress.step(text);
        let limited_mbps = self
            .guests
            .download(RED_SERVER, ("part", DOWNLOAD_BYTES / 4))?;
        self.file.egress_mbps = None;
        self.change("the demo removes the limit", "egress rate")?;
        let unlimited_mbps = self.guests.download(RED_SERVER, ("all", DOWNLOAD_BYTES))?;
        Ok(Rate {
            limit_mbps,
            limited_mbps,
            unlimited_mbps,
        })
    }

    /// Blocks a TCP port for a while, during which pings continue.
    fn block(&mut self) -> Result<Block> {
        let served_before = self.guests.is_served(RED_SERVER, SERVED_S)?;
        self.guests.start_pings(RED_SERVER)?;
        self.guests.start_pings(BLUE_SERVER)?;
        self.file.is_blocked = true;
        self.change("a filter blocks port 80 of the server", "ingress_filter")?;
        let served_meanwhile = self.guests.is_served(RED_SERVER, BLOCKED_S)?;
        self.file.is_blocked = false;
        self.change("the filter lets port 80 through again", "ingress_filter")?;
        let served_after = self.guests.is_served(RED_SERVER, SERVED_S)?;
        Ok(Block {
            served_before,
            served_meanwhile,
            served_after,
            same_port: self.guests.stop_pings(RED_SERVER)?,
            other_ports: self.guests.stop_pings(BLUE_SERVER)?,
        })
    }

    /// Writes the file of ports, and waits until the process has applied the change.
    fn change(&mut self, what: &str, field: &str) -> Result<()> {
        self.progress
            .step(format!("{what}: ports.toml has changed"));
        self.file.write()?;
        let line = format!("~ port red-server: {field}");
        self.ports.wait_for(&line, PATIENCE)
    }

    /// Measures in the client guest how much each hop of a graph costs: runs `carina bench engine`
    /// there, and returns its rows.
    ///
    /// # Errors
    /// The guest cannot measure.
    pub fn hops_in_guest(&self, options: hops::HopsOptions) -> Result<Results> {
        self.progress.step("measuring hops in a guest");
        let json = self.guests.client_says(&options.command())?;
        serde_json::from_str(&json).attempt("reading the rates of the guest")
    }

    /// Ends the guests and the process, and adds the counts of the ports to the report.
    ///
    /// # Errors
    /// The process does not end in order.
    pub fn end(self, report: &mut Report) -> Result<()> {
        let NfvDemo { guests, ports, .. } = self;
        drop(guests);
        let json = ports.end()?;
        report.ports = serde_json::from_str(&json).attempt("reading what went through ports")?;
        Ok(())
    }
}

impl Report {
    fn note_failures(&mut self) {
        let mut fail = |is_wrong: bool, what: String| {
            if is_wrong {
                self.failures.push(what);
            }
        };
        let (ping, rate, block) = (self.ping, self.rate, self.block);
        fail(ping.lost() > 0, format!("{} pings were lost", ping.lost()));
        fail(
            // The content of the token bucket at the start is added to the limit.
            rate.limited_mbps > rate.limit_mbps * 1.1,
            format!("{:.1} Mb/s came through the limit", rate.limited_mbps),
        );
        fail(!block.served_before, "the server served nothing".to_owned());
        fail(
            block.served_meanwhile,
            "the server was reached through the filter".to_owned(),
        );
        fail(
            !block.served_after,
            "the server was not reached when the filter had gone".to_owned(),
        );
        for (pings, of) in [
            (block.same_port, "the port that was changed"),
            (block.other_ports, "the other ports"),
        ] {
            let (lost, sent) = (pings.lost(), pings.sent);
            fail(
                lost > 0 || sent == 0,
                format!("{lost} of {sent} pings through {of} were lost"),
            );
        }
    }
}

/// Addresses of the server; those of the client end in .1.
const RED_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 10, 2);
const BLUE_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 20, 2);

/// Rate limit of the server's port at the start.
const LIMIT_MBPS: f64 = 20.0;

const DOWNLOAD_BYTES: u64 = 16 << 20;

/// Seconds that the client waits for a server that should be reachable, and for one that should
/// not.
const SERVED_S: u32 = 60;
const BLOCKED_S: u32 = 4;

/// Time limit for everything that may not end by itself; emulated guests are slow.
const PATIENCE: Duration = Duration::from_secs(180);
