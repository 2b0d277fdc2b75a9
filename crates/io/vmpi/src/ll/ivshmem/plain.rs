//! The host's end of one VM over `ivshmem-plain`: a file that host and VM map, and no doorbell.
//!
//! QEMU's device `ivshmem-plain` and the option `--ivshmem` of Cloud Hypervisor give a VM the same
//! PCI device as `ivshmem-doorbell`, without a server and without interrupts. Neither side can wake
//! the other, so both poll ([`crate::ll::polling`] bounds the cost). The port finds the process of
//! the VM by its mapping of the file.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use carina_sys::{EventFd, Memory};

use crate::hl::Side;
use crate::ll::VmpiImpl;
use crate::ll::device::{Device, Doorbells};
use crate::ll::layout::Layout;
use crate::ll::qemu::{Process, check_file_name, remove_file};
use crate::ll::watch::Watch;

/// The host's end of one VM over `ivshmem-plain`. [`crate::ll::HostPort`] says how a thread drives
/// it.
///
/// Dropping the port leaves the region for the next node; [`PlainPort::destroy`] removes it.
#[derive(Debug)]
pub struct PlainPort {
    region: PathBuf,
    layout: Layout,
    memory: Memory,
    vm: Watch,
    next_search_ns: u64,
}

/// Time between two searches for the process of a VM that does not run yet.
const SEARCH_NS: u64 = 1_000_000_000;

/// Largest number of lines of a process's memory map that the search reads.
const MAP_LINES_MAX: usize = 65_536;

impl PlainPort {
    /// Opens the port of the VM `name` in `dir`. The directory must be on a tmpfs and accessible to
    /// this user only. If a process still maps an existing region, the port adopts that region with
    /// the size that it has; otherwise it creates a new region of `region_bytes`.
    ///
    /// # Errors
    /// `InvalidInput` if name or size are not allowed; errors of the file system.
    pub fn open(dir: &Path, name: &str, region_bytes: usize) -> io::Result<PlainPort> {
        check_file_name(name)?;
        let region = dir.join(format!("{name}.region"));
        let process = existing(&region).and_then(|layout| Some((find_process(&region)?, layout)));
        let (process, layout) = match process {
            Some((process, layout)) => (Some(process), layout),
            None => {
                remove_file(&region);
                let layout = Layout::new(region_bytes)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
                (None, layout)
            }
        };
        let mut port = PlainPort {
            memory: Memory::file(&region, layout.region_bytes())?,
            region,
            layout,
            vm: Watch::new()?,
            next_search_ns: 0,
        };
        if let Some(process) = process {
            port.vm.begin(process);
        }
        Ok(port)
    }

    /// Opens the data plane's end of the port. Only one may exist at a time.
    ///
    /// # Errors
    /// The kernel refuses to map the region.
    pub fn device(&self) -> io::Result<Box<dyn VmpiImpl + Send>> {
        let fd = self.memory.as_fd();
        Ok(Box::new(Device::open(
            Side::Host,
            fd,
            self.layout,
            NoDoorbells {
                vm: self.vm.shown(),
            },
        )?))
    }

    /// Handles the event that the process of the VM has ended.
    pub fn on_readable(&mut self) {
        self.vm.on_readable();
    }

    /// Searches for the process of the VM, at most once a second and only until it is found.
    pub fn on_tick(&mut self, now_ns: u64) {
        if self.vm.pid().is_some() {
            self.vm.on_tick();
        } else if now_ns >= self.next_search_ns {
            self.next_search_ns = now_ns + SEARCH_NS;
            if let Some(process) = find_process(&self.region) {
                self.vm.begin(process);
            }
        }
    }

    /// Returns the process id of the VM that maps the region; `None` if none does.
    pub fn qemu_pid(&self) -> Option<i32> {
        self.vm.pid()
    }

    /// Returns the size of the shared region in bytes.
    pub fn region_bytes(&self) -> usize {
        self.layout.region_bytes()
    }

    /// Returns the path of the region, the file that the VM maps.
    pub fn region(&self) -> &Path {
        &self.region
    }

    /// Removes the region, for a VM that is not to attach again.
    pub fn destroy(self) {
        remove_file(&self.region);
    }
}

impl AsFd for PlainPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.vm.as_fd()
    }
}

fn existing(region: &Path) -> Option<Layout> {
    let metadata = fs::symlink_metadata(region).ok()?;
    let bytes = usize::try_from(metadata.len()).ok();
    Layout::new(bytes.filter(|_| metadata.is_file())?).ok()
}

/// Finds another process that maps the file `region`. Processes of other users are not seen unless
/// this process is privileged.
fn find_process(region: &Path) -> Option<Process> {
    let region = fs::canonicalize(region).ok()?;
    let region = region.to_str()?;
    let own = std::process::id();
    let pids = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        (pid != own).then_some(pid)
    });
    let maps_region = |pid: &u32| {
        let maps = fs::File::open(format!("/proc/{pid}/maps"));
        maps.is_ok_and(|maps| {
            let lines = BufReader::new(maps).lines().take(MAP_LINES_MAX);
            lines.map_while(Result::ok).any(|line| {
                let path = line.strip_suffix(region);
                path.is_some_and(|before| before.ends_with(' '))
            })
        })
    };
    pids.into_iter()
        .filter(maps_region)
        .find_map(|pid| Process::running(i32::try_from(pid).ok()?))
}

/// A device without doorbells: neither side can wake the other.
#[derive(Debug, Default)]
pub(super) struct NoDoorbells {
    /// The process id of the VM; 0 if it is not known.
    vm: Arc<AtomicI32>,
}

impl Doorbells for NoDoorbells {
    fn ring(&self, _peer_doorbell: u32) {}

    fn can_ring(&self) -> bool {
        false
    }

    fn own(&self) -> Option<&EventFd> {
        None
    }

    fn can_be_rung(&self) -> bool {
        false
    }

    fn doorbell(&self) -> u32 {
        0
    }

    /// The heartbeat alone decides whether the peer is alive: a VM of another user is not seen.
    fn is_attached(&self) -> bool {
        true
    }

    fn vm(&self) -> Option<i32> {
        Some(self.vm.load(Ordering::Relaxed)).filter(|pid| *pid > 0)
    }
}
