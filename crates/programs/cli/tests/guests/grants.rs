//! VMPI's conformance suite over grants of Xen: a domain grants its memory to itself, so that both
//! sides of a link are in one process. It runs in Dom0; `xen` starts it there.

use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use carina_sys::{Mapping, PAGE_BYTES, XenForeignPages, XenGrant, monotonic_ns};
use carina_vmpi::conformance::{Device, Fixture, Random, scribble};
use carina_vmpi::hl::Side;
use carina_vmpi::ll::xen::{Address, DOM0, HostPort, REGION_BYTES, open_guest};
use carina_vmpi::ll::{DownReason, LinkState};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::house::{SOON, until};

/// A link from Dom0 to Dom0.
struct Grants {
    port: HostPort,
    /// The grants of the guest's region in the order of its pages, once a side is hostile.
    region: Vec<XenGrant>,
}

impl Grants {
    fn new() -> Grants {
        let port = HostPort::open(&DOM0.to_string(), REGION_BYTES);
        Grants {
            port: port.expect("the suite runs in Dom0"),
            region: Vec::new(),
        }
    }
}

impl Fixture for Grants {
    fn open(&mut self, side: Side) -> Device {
        match side {
            Side::Host => self.port.device().unwrap(),
            Side::Guest => {
                self.region.clear();
                open_guest(DOM0).unwrap()
            }
        }
    }

    /// Has the kernel do what it does when it ends a process: it unmaps the memory, tells the peer,
    /// and closes the descriptors. The peer does not see what the destructors write.
    fn kill(&mut self, device: Device) {
        unmap(match device.side() {
            Side::Host => "/dev/xen/gntdev",
            Side::Guest => "/dev/xen/gntalloc",
        });
        // A device that can open no file cannot remove its node from the xenstore.
        let files = getrlimit(Resource::Nofile);
        let standard = Rlimit {
            current: Some(3),
            ..files
        };
        setrlimit(Resource::Nofile, standard).unwrap();
        drop(device);
        setrlimit(Resource::Nofile, files).unwrap();
    }

    fn has_wake_ups(&self) -> bool {
        true
    }

    fn damage(&mut self, _side: Side, random: &mut Random) -> bool {
        if self.region.is_empty() {
            self.region = region();
        }
        let pages = XenForeignPages::take_up(&self.region).unwrap();
        scribble(&pages, self.region.len() * PAGE_BYTES, random);
        true
    }
}

/// The grants of the pages of the region that the guest has published.
fn region() -> Vec<XenGrant> {
    let grant = |reference| XenGrant {
        domain: DOM0,
        reference,
    };
    let address: Address = xenstore_read(NODE).parse().unwrap();
    let station = grant(address.reference);
    let pages = XenForeignPages::take_up(&[station]).unwrap();
    let station_block = Mapping::shared(pages.as_fd(), pages.offset(), PAGE_BYTES).unwrap();
    let word = |at: usize| {
        let mut bytes = [0; 4];
        station_block.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    };
    let rings = (0..word(COUNT) as usize).map(|number| grant(word(REFERENCES + 4 * number)));
    [station].into_iter().chain(rings).collect()
}

/// Unmaps what this process has mapped of a device, as the end of a process does. Zeros that only
/// this process sees take its place.
fn unmap(device: &str) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ranges = maps.lines().filter(|line| line.ends_with(device));
    for range in ranges.filter_map(|line| line.split(' ').next()) {
        let address = |text| usize::from_str_radix(text, 16).unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let (start, end) = (address(start), address(end));
        let at = std::ptr::without_provenance_mut(start);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: the range belongs to a `Mapping`, whose memory other programs may write at any
        // time, so its owner is ready for any contents. It stays readable and writable.
        let mapped =
            unsafe { mmap_anonymous(at, end - start, ProtFlags::READ | ProtFlags::WRITE, flags) };
        mapped.unwrap();
    }
}

/// The value of a node of the xenstore.
fn xenstore_read(node: &str) -> String {
    let output = Command::new("xenstore-read").arg(node).output().unwrap();
    assert!(output.status.success(), "{node}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A link that is up: host and guest.
fn link_up(grants: &mut Grants) -> (Device, Device) {
    let mut sides = (grants.open(Side::Host), grants.open(Side::Guest));
    let is_up = until(SOON, || {
        let now_ns = monotonic_ns();
        let states = [sides.0.link(now_ns), sides.1.link(now_ns)];
        (states == [LinkState::Up, LinkState::Up]).then_some(())
    });
    is_up.expect("the link comes up");
    sides
}

/// A thread of the host watches the guest. When the guest ends, this thread may notice it before
/// the data plane does.
#[test]
#[ignore = "part of another test"]
fn region_that_is_withdrawn_counts_as_one_link_down() {
    let (mut host, guest) = link_up(&mut Grants::new());
    let downs = host.stats().downs;
    drop(guest);
    std::thread::sleep(Duration::from_secs(2));
    let state = host.link(monotonic_ns());
    assert_eq!(state, LinkState::Down(DownReason::PeerLeft));
    assert_eq!(host.stats().downs, downs + 1);
}

/// The kernel clears one byte for a guest that ends. The guest has set all bytes beside it.
#[test]
#[ignore = "part of another test"]
fn hostile_guest_that_was_killed_is_noticed_at_once() {
    let mut grants = Grants::new();
    let (mut host, guest) = link_up(&mut grants);
    let station = XenForeignPages::take_up(&region()[..1]).unwrap();
    let memory = Mapping::shared(station.as_fd(), station.offset(), PAGE_BYTES).unwrap();
    memory.write(GUEST_LIVES, &[0xff; 4]);
    drop((memory, station));
    grants.kill(guest);
    let reason = until(SOON, || match host.link(monotonic_ns()) {
        LinkState::Down(reason) => Some(reason),
        LinkState::Up => None,
    });
    // Without the byte, the host would wait for the silence.
    assert_eq!(reason, Some(DownReason::PeerLeft));
}

/// The grants of a process that has ended stay while they are mapped, unlike its event channel.
#[test]
#[ignore = "part of another test"]
fn host_of_a_guest_that_was_killed_says_so() {
    let mut grants = Grants::new();
    let (earlier, guest) = link_up(&mut grants);
    grants.kill(guest);
    let mut host = grants.open(Side::Host);
    let reason = until(SOON, || match host.link(monotonic_ns()) {
        LinkState::Down(DownReason::Violation { reason, .. }) => Some(reason),
        _ => None,
    });
    let reason = reason.expect("the host gives a reason");
    assert!(reason.contains("it may have ended"), "{reason}");
    drop(earlier);
}

/// Where the guest publishes its region.
const NODE: &str = "/local/domain/0/data/carina/vmpi/0";
/// Where the guest shows in the station block that its process lives.
const GUEST_LIVES: usize = 0x1c0;
/// Where the station block has the number of further pages, and their references.
const COUNT: usize = 0x214;
const REFERENCES: usize = 0x400;

carina_vmpi::vmpi_conformance!(Grants::new, ignore = "part of another test");
