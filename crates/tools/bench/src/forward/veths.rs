//! Veth pairs into a network namespace and out of it, two for each flow, and counts of the packets
//! that pass.
//!
//! ```text
//!   this namespace      the system's             this namespace
//!   s0 ============== in0 -- forwarded -- out0 ============== d0
//! ```

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use carina_frame::PoolConfig;
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{Graph, Workers};
use carina_namespaces::{NamespaceAccess, remove_namespaces};
use carina_ports::af_packet::AfPacketConfig;

use super::flow::Flows;
use crate::engine::workers::wrong;
use crate::error::{Attempt, Error, Result};
use crate::in_namespace::within;
use crate::rate::Rate;

/// The network namespace of a system, with its veth pairs. Dropping the value removes them.
#[derive(Debug)]
pub(super) struct Veths {
    flows: usize,
    access: NamespaceAccess,
}

impl Veths {
    /// Makes the namespace and the veth pairs. Incoming packets are handled on the processor `cpu`.
    pub(super) fn new(flows: usize, cpu: usize) -> Result<Veths> {
        let veths = Veths {
            flows,
            access: NamespaceAccess::of_root(),
        };
        let access = &veths.access;
        access.ip(&["netns", "add", NAMESPACE])?;
        for flow in 0..flows {
            let (entry, exit) = (Veths::entry(flow), Veths::exit(flow));
            let ends = [(format!("s{flow}"), entry), (format!("d{flow}"), exit)];
            for (outside, inside) in ends {
                let line = format!(
                    "link add name {outside} mtu {MTU} type veth peer name {inside} mtu {MTU} \
                     netns {NAMESPACE}"
                );
                access.ip(&line.split(' ').collect::<Vec<_>>())?;
                access.ip(&["link", "set", "dev", &outside, "up"])?;
                veths.inside(&[format!("link set dev {inside} up")])?;
            }
        }
        veths.handle_on(cpu)?;
        Ok(veths)
    }

    /// Number of flows.
    pub(super) fn flows(&self) -> usize {
        self.flows
    }

    /// Name of the interface by which a flow enters the system.
    pub(super) fn entry(flow: usize) -> String {
        format!("in{flow}")
    }

    /// Name of the interface by which a flow leaves the system.
    pub(super) fn exit(flow: usize) -> String {
        format!("out{flow}")
    }

    /// Runs command lines of `ip` in the system's namespace.
    pub(super) fn inside(&self, lines: &[String]) -> Result<()> {
        Ok(self.access.ip_batch(NAMESPACE, lines)?)
    }

    /// Runs a shell script in the system's namespace.
    pub(super) fn script(&self, script: &str) -> Result<()> {
        let words = ["netns", "exec", NAMESPACE, "sh", "-ec", script];
        self.access.ip(&words)?;
        Ok(())
    }

    /// Calls `act` on a thread in the system's namespace.
    pub(super) fn within<T: Send>(&self, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        within(NAMESPACE, act)
    }

    /// Makes the kernel handle incoming packets on one processor, whichever processor has sent
    /// them. (Linux, Documentation/networking/scaling.rst, RPS)
    fn handle_on(&self, cpu: usize) -> Result<()> {
        let mask = 1_u64 << (cpu % 64);
        self.script(&format!(
            "for queue in /sys/class/net/in*/queues/rx-0/rps_cpus; do \
             echo {mask:x} >$queue; done"
        ))
    }

    /// Sends flows for a third of `time_ns`, and then for `time_ns`, in which the packets that
    /// leave are counted.
    pub(super) fn rate(&self, flows: &Flows, cpu: usize, time_ns: u64) -> Result<Rate> {
        let mut graph = Graph::new();
        for (flow, source) in flows.sources.iter().enumerate() {
            let (from, to) = (format!("source{flow}"), format!("s{flow}"));
            graph.app(&from, source.clone());
            graph.app(&to, AfPacketConfig::of(&to));
            let link = format!("{from}.output -> {to}.input");
            graph.link(&link).map_err(wrong)?;
        }
        graph.cpus(&[cpu]);
        let counters = CounterFile::private().attempt("counters")?;
        let mut workers = Workers::new(PoolConfig::default(), counters);
        workers.configure(&graph).map_err(wrong)?;
        sleep(Duration::from_nanos(time_ns / 3));
        let (start, before) = (Instant::now(), self.arrived()?);
        sleep(Duration::from_nanos(time_ns));
        let (wall, after) = (start.elapsed().as_nanos() as f64, self.arrived()?);
        match after - before {
            0 => Err(Error::NoAnswer("no packet came through".to_owned())),
            // The kernel's work is not accounted to any thread, so the rate is related to
            // wall-clock time.
            frames => Ok(Rate::of(frames as f64, wall, wall)),
        }
    }

    /// Number of packets that have left the system so far.
    fn arrived(&self) -> Result<u64> {
        let path = "/proc/thread-self/net/dev";
        let text = fs::read_to_string(path).attempt(path)?;
        (0..self.flows)
            .map(|flow| received_by(&format!("d{flow}"), &text))
            .sum()
    }
}

/// Number of packets that an interface has received, from the text of `/proc/net/dev`.
pub(super) fn received_by(interface: &str, text: &str) -> Result<u64> {
    let mut lines = text.lines().filter_map(|line| line.trim().split_once(':'));
    let line = lines.find(|(name, _)| *name == interface);
    let packets = line.and_then(|(_, counts)| counts.split_whitespace().nth(1)?.parse().ok());
    packets.ok_or_else(|| Error::Proc(format!("/proc/net/dev has no packets of {interface}")))
}

impl Drop for Veths {
    fn drop(&mut self) {
        // If this fails, the kernel removes them with the namespaces of this process.
        let _ = remove_namespaces(&self.access, &[NAMESPACE.to_owned()]);
        for flow in 0..self.flows {
            for end in ["s", "d"] {
                // The interface is removed with its other end, which may take the kernel a while.
                let _ = self
                    .access
                    .ip(&["link", "del", "dev", &format!("{end}{flow}")]);
            }
        }
    }
}

const NAMESPACE: &str = "forward";
/// MTU for a frame of 1514 bytes and the headers of a tunnel.
const MTU: usize = 1700;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_an_interface_are_the_second_number_of_its_line() {
        let text = "Inter-|   Receive\n face |bytes    packets errs\n    lo: 100 2 0\n  d0:7 5 0\n";
        assert_eq!(received_by("lo", text).unwrap(), 2);
        assert_eq!(received_by("d0", text).unwrap(), 5);
        assert!(received_by("d", text).is_err());
    }
}
