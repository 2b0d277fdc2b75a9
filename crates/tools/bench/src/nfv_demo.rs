//! `carina nfv demo`: two stock VMs behind one process of `carina nfv run`, and what a hop costs.
//!
//! ```text
//!   client  eth0 -- red-client ---- VLAN 10 ---- red-server -- eth0  server
//!           eth1 -- blue-client --- VLAN 20 --- blue-server -- eth1
//! ```
//!
//! The guests are Linux with its own virtio-net driver, and use programs of busybox: ping, httpd,
//! wget. The ports are changed as users change them: by changing their file. No part needs root.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use carina_lab::Scratch;
use carina_measure::results::Results;
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

/// What the demo saw.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// How QEMU runs the guests: `kvm` or `tcg`.
    pub accelerator: String,
    /// Pings from the client to the server.
    pub ping: Pings,
    /// A download with a limit and without.
    pub rate: Rate,
    /// A port of TCP that was blocked for a while.
    pub block: Block,
    /// What went through the ports, as `carina nfv run --json` has it.
    pub ports: serde_json::Value,
    /// What should have been and was not.
    pub failures: Vec<String>,
}

/// A download from the server through a limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// The rate of the port.
    pub limit_mbps: f64,
    /// What the client got through it.
    pub limited_mbps: f64,
    /// What it got once the limit was lifted.
    pub unlimited_mbps: f64,
}

/// TCP port 80 of the server, blocked by a filter, and what went on meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Block {
    /// The client was served before.
    pub served_before: bool,
    /// It was while the filter was there.
    pub served_meanwhile: bool,
    /// It was after the filter had gone.
    pub served_after: bool,
    /// Pings through the port that was changed.
    pub same_port: Pings,
    /// Pings through the other ports.
    pub other_ports: Pings,
}

/// The process, the guests behind it, and their directory. All go when it is dropped.
#[derive(Debug)]
pub struct NfvDemo {
    // The guests go first, their directory last.
    guests: Guests,
    ports: Program,
    file: PortsFile,
    progress: Progress,
    _scratch: Scratch,
}

impl NfvDemo {
    /// Starts the process and boots the guests.
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

    /// Goes through it.
    ///
    /// # Errors
    /// A guest or the process does not do what it should. That something is otherwise than it
    /// should be is in the report.
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
        report.judge();
        Ok(report)
    }

    /// A download through the limit of the server's port, and without it.
    fn rate(&mut self) -> Result<Rate> {
        let limit_mbps = LIMIT_MBPS;
        let text = format!("the client downloads through a limit of {limit_mbps} Mb/s");
        self.progress.step(text);
        let limited_mbps = self
            .guests
            .download(RED_SERVER, ("part", DOWNLOAD_BYTES / 4))?;
        self.file.egress_mbps = None;
        self.change("the limit goes", "egress rate")?;
        let unlimited_mbps = self.guests.download(RED_SERVER, ("all", DOWNLOAD_BYTES))?;
        Ok(Rate {
            limit_mbps,
            limited_mbps,
            unlimited_mbps,
        })
    }

    /// Blocks a port of TCP for a while in which pings go on.
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

    /// Writes the file of ports, and waits until the process has taken the change over.
    fn change(&mut self, what: &str, field: &str) -> Result<()> {
        self.progress.step(format!("{what}: ports.toml is changed"));
        self.file.write()?;
        let said = format!("~ port red-server: {field}");
        self.ports.wait_for(&said, PATIENCE)
    }

    /// What hops cost a guest: the rows of `carina bench engine` in the client.
    ///
    /// # Errors
    /// The guest cannot measure.
    pub fn hops_in_guest(&self, options: hops::HopsOptions) -> Result<Results> {
        self.progress.step("measuring hops in a guest");
        let said = self.guests.client_says(&options.command())?;
        serde_json::from_str(&said).attempt("reading the rates of the guest")
    }

    /// Ends the guests and the process; puts into the report what went through the ports.
    ///
    /// # Errors
    /// The process does not end as it should.
    pub fn end(self, report: &mut Report) -> Result<()> {
        let NfvDemo { guests, ports, .. } = self;
        drop(guests);
        let said = ports.end()?;
        report.ports = serde_json::from_str(&said).attempt("reading what went through ports")?;
        Ok(())
    }
}

impl Report {
    fn judge(&mut self) {
        let mut fail = |is_wrong: bool, what: String| {
            if is_wrong {
                self.failures.push(what);
            }
        };
        let (ping, rate, block) = (self.ping, self.rate, self.block);
        fail(ping.lost() > 0, format!("{} pings were lost", ping.lost()));
        fail(
            // What the bucket holds at the start comes on top.
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

/// Where the guests are: the client is .1, the server .2.
const RED_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 10, 2);
const BLUE_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 20, 2);

/// The rate of the server's port at first.
const LIMIT_MBPS: f64 = 20.0;

const DOWNLOAD_BYTES: u64 = 16 << 20;

/// How long the client waits for a server that may be reached, and for one that may not.
const SERVED_S: u32 = 60;
const BLOCKED_S: u32 = 4;

/// For whatever does not end by itself; emulated guests are slow.
const PATIENCE: Duration = Duration::from_secs(180);
