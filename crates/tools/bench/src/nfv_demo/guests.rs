//! The guests of the demonstration, and the programs in them.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use carina_vm::{GuestImage, Output, Running};
use serde::Serialize;

use super::PATIENCE;
use super::ports_file::{PORTS, PortsFile};
use crate::error::{Attempt, Error, Result};

/// The client guest and the server guest.
#[derive(Debug)]
pub(super) struct Guests {
    client: Running,
    server: Running,
}

/// How many pings were sent and answered, and their mean round trip.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Pings {
    /// Number of echo requests that were sent.
    pub sent: u64,
    /// Number of pings that were answered.
    pub received: u64,
    /// Mean round-trip time in milliseconds.
    pub rtt_ms: f64,
}

impl Pings {
    /// Number of requests without an answer.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// Adds up the output of one or several runs of ping; `None` if there is no such output.
    fn parse(text: &str) -> Option<Pings> {
        let mut pings = Pings::default();
        let (mut sum, mut rounds) = (0.0, 0.0);
        for line in text.lines() {
            if line.contains(" packets transmitted") {
                let mut numbers = line.split(' ').filter_map(|word| word.parse::<u64>().ok());
                pings.sent += numbers.next()?;
                pings.received += numbers.next()?;
            } else if let Some((_, times)) = line.split_once("min/avg/max = ") {
                sum += times.split('/').nth(1)?.parse::<f64>().ok()?;
                rounds += 1.0;
            }
        }
        pings.rtt_ms = sum / f64::max(rounds, 1.0);
        (pings.sent > 0).then_some(pings)
    }
}

impl Guests {
    /// Boots both guests, each with the cards of its ports.
    pub(super) fn boot(image: &GuestImage, directory: &Path, file: &PortsFile) -> Result<Guests> {
        let boot = |name: &str| -> Result<Running> {
            let machine = image.machine(name, directory.join("vm"));
            let mut machine = machine.attempt("naming the VM")?;
            for (port, _, mac) in PORTS.iter().filter(|(port, ..)| port.ends_with(name)) {
                machine = machine.nic(file.card(port, *mac));
            }
            let started = machine.dies_with_parent().start(image.cache());
            started.attempt("starting QEMU")
        };
        let guests = Guests {
            client: boot("client")?,
            server: boot("server")?,
        };
        for guest in [&guests.client, &guests.server] {
            guest
                .wait_ready(PATIENCE)
                .attempt("waiting for the guest")?;
        }
        Ok(guests)
    }

    pub(super) fn accelerator(&self) -> &str {
        &self.client.record().accel
    }

    /// Assigns the cards' addresses, and starts the web server with a file of `bytes` bytes. Waits
    /// until pings pass both networks.
    pub(super) fn set_up(&self, bytes: u64) -> Result<()> {
        for (guest, name, number) in [(&self.client, "client", 1), (&self.server, "server", 2)] {
            for (_, vlan, mac) in PORTS.iter().filter(|(port, ..)| port.ends_with(name)) {
                let set = guest.set_address(*mac, &format!("10.0.{vlan}.{number}/24"));
                set.attempt("setting the address of a card")?;
            }
        }
        let mebibytes = bytes >> 20;
        let served = self.server.must_run(&format!(
            "mkdir -p /tmp/www && dd if=/dev/zero of=/tmp/www/all bs=1M count={mebibytes} \
             2>/dev/null && head -c {} /tmp/www/all >/tmp/www/part && echo served >/tmp/www/word \
             && httpd -p 80 -h /tmp/www",
            bytes / 4
        ));
        served.attempt("starting the web server")?;
        for server in [super::RED_SERVER, super::BLUE_SERVER] {
            let ping = format!("ping -c 1 -W 1 {server}");
            self.until(&format!("{server} answers"), || {
                let done = self.in_client(&ping)?;
                Ok(done.is_success().then_some(()))
            })?;
        }
        Ok(())
    }

    /// Calls `ask` until it returns an answer.
    fn until<T>(&self, what: &str, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask()? {
                return Ok(answer);
            }
            if Instant::now() > deadline {
                let error = Error::NoAnswer(format!("waiting until {what}: too long"));
                let logs = [logs(&self.client), logs(&self.server)];
                return Err(error.with(logs.join("\n")));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Runs a command in the client until it ends.
    fn in_client(&self, command: &str) -> Result<Output> {
        let output = self.client.run_within(command, PATIENCE);
        output.attempt("running a command in guest client")
    }

    /// Runs a command in the client that must succeed, and returns its output.
    pub(super) fn client_says(&self, command: &str) -> Result<String> {
        let done = self.in_client(command)?;
        if done.is_success() {
            return Ok(done.text());
        }
        let error = Error::Client(format!("{command}: {}", done.error_text()));
        Err(error.with(logs(&self.client)))
    }

    /// Pings the server `count` times.
    pub(super) fn ping(&self, server: Ipv4Addr, count: usize) -> Result<Pings> {
        let command = format!("ping -q -c {count} -i 0.02 {server}");
        let done = self.in_client(&command)?;
        pings_of(&done.text())
    }

    /// Starts pings at a rate of some 100 per second, in rounds that each wait for their last
    /// answers.
    pub(super) fn start_pings(&self, server: Ipv4Addr) -> Result<()> {
        let begin = format!(
            "rm -f /tmp/stop; (while [ ! -e /tmp/stop ]; do ping -q -c 100 -i 0.01 {server}; done \
             >/tmp/pings.{server} 2>&1; touch /tmp/over.{server}) </dev/null >/dev/null 2>&1 &"
        );
        self.client_says(&begin).map(drop)
    }

    /// Ends the pings, and returns their counts.
    pub(super) fn stop_pings(&self, server: Ipv4Addr) -> Result<Pings> {
        let look = format!("touch /tmp/stop; [ -e /tmp/over.{server} ] && cat /tmp/pings.{server}");
        let text = self.until("pings have ended", || {
            let done = self.in_client(&look)?;
            Ok(done.is_success().then(|| done.text()))
        })?;
        pings_of(&text)
    }

    /// Whether the client can fetch a page from the server within `seconds`.
    pub(super) fn is_served(&self, server: Ipv4Addr, seconds: u32) -> Result<bool> {
        let fetch = format!("timeout {seconds} wget -q -O - http://{server}/word");
        let done = self.in_client(&fetch)?;
        Ok(done.text() == "served")
    }

    /// Rate in Mb/s at which the client downloads a file or a part of it.
    pub(super) fn download(&self, server: Ipv4Addr, file: Download) -> Result<f64> {
        let (name, bytes) = file;
        let now = "cut -d ' ' -f 1 /proc/uptime";
        let output = self.client_says(&format!(
            "{now} && wget -q -O /dev/null http://{server}/{name} && {now}"
        ))?;
        let times: Vec<f64> = output
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect();
        match times[..] {
            // The clock has a resolution of a hundredth of a second.
            [begin, end] => Ok(bytes as f64 * 8.0 / f64::max(end - begin, 0.01) / 1e6),
            _ => Err(Error::Client(format!("not two times: {output}"))),
        }
    }
}

/// Name of a file of the server, and number of bytes to download.
pub(super) type Download = (&'static str, u64);

/// The last lines of a guest's log and of its console.
fn logs(guest: &Running) -> String {
    let inside = guest.run_within("tail -n 25 /var/log/carina.log", LOGS);
    let inside = inside.map_or_else(|error| error.to_string(), |output| output.text());
    let console = guest.console_text();
    let lines: Vec<&str> = console.lines().collect();
    let tail = lines[lines.len().saturating_sub(10)..].join("\n");
    let name = &guest.record().name;
    format!("--- guest {name}\n{inside}\n--- end of the console\n{tail}")
}

fn pings_of(text: &str) -> Result<Pings> {
    Pings::parse(text).ok_or_else(|| Error::Client(format!("ping says {text:?}")))
}

const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long a guest may take to show its log.
const LOGS: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_busybox_ping_are_summed_up() {
        let text = "PING 10.0.10.2 (10.0.10.2): 56 data bytes\n\n--- 10.0.10.2 ping statistics ---\n\
                    100 packets transmitted, 99 packets received, 1% packet loss\n\
                    round-trip min/avg/max = 0.4/0.5/1.2 ms\n\
                    100 packets transmitted, 100 packets received, 0% packet loss\n\
                    round-trip min/avg/max = 0.4/0.7/1.2 ms\n";
        let pings = Pings::parse(text).unwrap();
        assert_eq!((pings.sent, pings.received, pings.lost()), (200, 199, 1));
        assert!((pings.rtt_ms - 0.6).abs() < 1e-9);
        assert_eq!(Pings::parse("ping: sendto: Network unreachable"), None);
    }
}
