//! DPDK's side: testpmd forwards between two null devices.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::rate::Rate;
use crate::testpmd::{Testpmd, TestpmdConfig};

/// Starts testpmd: its command line on `main_cpu`, forwarding on `cpu`.
pub(super) fn start(main_cpu: usize, cpu: usize, size: u64, directory: &Path) -> Result<Testpmd> {
    let devices = [0, 1].map(|number| format!("net_null{number},size={size}"));
    Testpmd::start(&TestpmdConfig {
        main_cpu,
        cpu,
        directory,
        devices: &devices,
        mode: "io",
        frame_bytes: size,
    })
}

/// Forwards for a third of `time_ns`, and then for `time_ns`, in which it is measured.
pub(super) fn measure(peer: &mut Testpmd, time_ns: u64) -> Result<Rate> {
    peer.begin()?;
    thread::sleep(Duration::from_nanos(time_ns / 3));
    peer.rates()?;
    let (start, cpu_start) = (Instant::now(), peer.cpu_ns()?);
    thread::sleep(Duration::from_nanos(time_ns));
    let cpu = (peer.cpu_ns()? - cpu_start) as f64;
    let wall = start.elapsed().as_nanos() as f64;
    let per_second: u64 = peer.rates()?.iter().map(|port| port.sent).sum();
    peer.end()?;
    Ok(Rate::of(per_second as f64 * wall / 1e9, wall, cpu))
}
