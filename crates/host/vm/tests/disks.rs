//! Tests of guests that move with their disks between two QEMUs. No guest is booted: the tests
//! write to the disks by way of QEMU.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use carina_vm::{
    Accel, Boot, Cache, DiskCopy, DiskSocket, Hardware, Machine, Running, end_disk_copy,
    guest_state, resume_guest, send_guest,
};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(120);

fn qemu_img(words: &[&str], path: &Path) -> bool {
    let mut command = Command::new("qemu-img");
    command
        .args(words)
        .arg(path)
        .output()
        .unwrap()
        .status
        .success()
}

/// An image, and overlays over it.
struct Disks(tempfile::TempDir);

impl Disks {
    fn make() -> Disks {
        let disks = Disks(tempfile::tempdir().unwrap());
        std::fs::write(disks.path("image"), vec![7; 8 << 20]).unwrap();
        for name in ["a", "b"] {
            let image = disks.path("image");
            let base = image.to_str().unwrap();
            let words = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", base];
            assert!(qemu_img(&words, &disks.path(name)));
        }
        disks
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn machine(&self, name: &str) -> Machine {
        let machine = Machine::new(name, self.0.path().join("run")).unwrap();
        machine
            .boot(Boot::Disk(self.path(name)))
            .accel(Accel::Tcg)
            .memory_mib(64)
            .ports(1)
    }
}

fn cache() -> Cache {
    Cache::default_location().unwrap()
}

/// Writes bytes of one value to the disk, as the guest would.
fn write(machine: &Running, value: u8, at: &str) {
    let line = format!("qemu-io virtio0 \"write -P {value} {at} 512k\"");
    let mut qmp = machine.qmp().unwrap();
    let said = qmp.execute("human-monitor-command", json!({ "command-line": line }));
    let said = said.unwrap().to_string();
    assert!(!said.contains("rror"), "{said}");
}

/// A machine that runs on disk `a`, and one that awaits it on disk `b`.
fn both(disks: &Disks) -> (Running, Running) {
    let source = disks.machine("a").start(&cache()).unwrap();
    source.wait_started(LIMIT).unwrap();
    let hardware = Hardware::read(source.record()).unwrap();
    let awaiting = disks.machine("b");
    let awaiting = awaiting.await_guest(&cache(), &hardware, &BTreeMap::new());
    (source, awaiting.unwrap())
}

/// Passes the bytes of two sockets in both directions, until either is closed.
fn relay(a: UnixStream, b: UnixStream) {
    for (mut from, mut to) in [(a.try_clone().unwrap(), b.try_clone().unwrap()), (b, a)] {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
    }
}

fn copied<'a>(source: &Running, far: UnixStream, socket: &'a DiskSocket) -> DiskCopy<'a> {
    std::thread::scope(|scope| {
        scope.spawn(|| relay(socket.accept(LIMIT, || false).unwrap(), far));
        DiskCopy::begin(source.record(), socket, LIMIT).unwrap()
    })
}

fn socket(source: &Running, of: &str) -> DiskSocket {
    let name = format!("carina-test-{of}-{}", std::process::id());
    DiskSocket::create(source.record(), &name).unwrap()
}

#[test]
fn disk_moves_with_its_guest_and_writes_of_the_move() {
    let disks = Disks::make();
    let (source, awaiting) = both(&disks);
    write(&source, 1, "1M");
    let socket = socket(&source, "moves");
    let copy = copied(&source, awaiting.serve_disk().unwrap(), &socket);
    write(&source, 2, "3M");
    let (near, far) = UnixStream::pair().unwrap();
    awaiting
        .arrive_over(std::os::fd::AsFd::as_fd(&far))
        .unwrap();
    drop(far);
    let mut stops = 0;
    send_guest(source.record(), near, Some(&copy), LIMIT, || stops += 1).unwrap();
    assert_eq!(stops, 1);
    awaiting.has_arrived(LIMIT).unwrap();
    awaiting.end_disk_service().unwrap();
    awaiting.resume().unwrap();
    assert!(guest_state(awaiting.record()).unwrap().running);
    // The source could resume as well, with its own disk.
    resume_guest(source.record()).unwrap();
    drop((source, awaiting));
    for name in ["a", "b"] {
        assert!(qemu_img(&["check", "-q"], &disks.path(name)));
    }
    let (a, b) = (disks.path("a"), disks.path("b"));
    assert!(qemu_img(&["compare", "-q", a.to_str().unwrap()], &b));
    let base = disks.path("image");
    assert!(!qemu_img(&["compare", "-q", base.to_str().unwrap()], &b));
}

#[test]
fn guest_continues_on_its_disk_when_the_copy_breaks() {
    let disks = Disks::make();
    let (source, awaiting) = both(&disks);
    write(&source, 1, "1M");
    let first = socket(&source, "breaks");
    let copy = copied(&source, awaiting.serve_disk().unwrap(), &first);
    drop(awaiting);
    first.hang_up();
    write(&source, 2, "3M");
    let (near, _far) = UnixStream::pair().unwrap();
    let limit = Duration::from_secs(5);
    send_guest(source.record(), near, Some(&copy), limit, || {}).unwrap_err();
    assert!(guest_state(source.record()).unwrap().running);
    write(&source, 3, "4M");
    // Nothing of the copy is left, so that the next one can begin.
    let nodes = |machine: &Running| {
        let mut qmp = machine.qmp().unwrap();
        let all = qmp.execute("query-named-block-nodes", json!({ "flat": true }));
        all.unwrap().to_string()
    };
    assert!(!nodes(&source).contains("carina-move"));
    let hardware = Hardware::read(source.record()).unwrap();
    let again = disks.machine("b");
    let again = again
        .await_guest(&cache(), &hardware, &BTreeMap::new())
        .unwrap();
    let second = socket(&source, "again");
    copied(&source, again.serve_disk().unwrap(), &second);
    // As after the death of the process that has begun the copy.
    assert!(nodes(&source).contains("carina-move"));
    end_disk_copy(source.record()).unwrap();
    assert!(!nodes(&source).contains("carina-move"));
    write(&source, 4, "5M");
}
