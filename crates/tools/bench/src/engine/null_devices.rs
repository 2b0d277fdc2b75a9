//! DPDK's side of the benchmark: testpmd forwards between two null devices.

use std::thread;
use std::time::{Duration, Instant};

use carina_scratch::Scratch;
use carina_sys::{allow_cpus, allowed_cpus};

use crate::error::{Attempt, Error, Result};
use crate::rate::Rate;
use crate::testpmd::{Testpmd, TestpmdConfig};

/// A testpmd process. It is started at the first measurement, and restarted for frames of another
/// size.
pub(crate) struct NullDevices {
    /// Processor that forwards frames.
    pub(crate) cpu: usize,
    /// Processor that runs testpmd's command line.
    pub(crate) main_cpu: usize,
    /// All processors of this process.
    cpus: Vec<usize>,
    // Dropped before the directory with its files.
    started: Option<(u64, Testpmd)>,
    directory: Scratch,
}

impl NullDevices {
    /// Prepares a testpmd that forwards frames on the last processor of this process. Its files are
    /// in a temporary directory with this name.
    pub(crate) fn new(name: &str) -> Result<NullDevices> {
        let cpus = allowed_cpus().attempt("the processors of this process")?;
        let (Some(first), Some(last)) = (cpus.first(), cpus.last()) else {
            return Err(Error::Proc(
                "no processor is allowed to this process".to_owned(),
            ));
        };
        Ok(NullDevices {
            cpu: *last,
            main_cpu: *first,
            directory: Scratch::new(&format!("{name}-{}", std::process::id()))?,
            cpus,
            started: None,
        })
    }

    /// Allows this thread to run on all its earlier processors again.
    pub(crate) fn give_back_cpus(&self) -> Result<()> {
        allow_cpus(None, &self.cpus).attempt("giving the processors back")
    }

    /// Forwards frames of `size` bytes: for a third of `time_ns` to warm up, and then for
    /// `time_ns`, in which it is measured.
    pub(crate) fn measure(&mut self, size: u64, time_ns: u64) -> Result<Rate> {
        let mut testpmd = match self.started.take() {
            Some((peer_size, testpmd)) if peer_size == size => testpmd,
            _ => self.start(size)?,
        };
        let rate = measure(&mut testpmd, time_ns)?;
        // After a failure, the next measurement starts a new testpmd.
        self.started = Some((size, testpmd));
        Ok(rate)
    }

    fn start(&self, size: u64) -> Result<Testpmd> {
        // A started process inherits the processors that this thread may run on.
        self.give_back_cpus()?;
        let devices = [0, 1].map(|number| format!("net_null{number},size={size}"));
        Testpmd::start(&TestpmdConfig {
            main_cpu: self.main_cpu,
            cpu: self.cpu,
            directory: self.directory.path(),
            devices: &devices,
            mode: "io",
            frame_bytes: size,
        })
    }
}

fn measure(peer: &mut Testpmd, time_ns: u64) -> Result<Rate> {
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
