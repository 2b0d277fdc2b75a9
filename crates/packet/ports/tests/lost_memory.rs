//! Guests whose memory becomes inaccessible while the back end uses it: files that are truncated,
//! and file systems that are full. An access raises SIGBUS, which must not end the process.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use carina_sys::EventFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::front_end::*;
use crate::vhost_user::{frame, passes, wire};

/// A small tmpfs, in a mount namespace that ends with its only process.
struct SmallFileSystem {
    child: Child,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl SmallFileSystem {
    /// Mounts a tmpfs of `kib` KiB. Prints the reason and returns `None` if that is not allowed.
    fn of_kib(kib: usize) -> Option<SmallFileSystem> {
        let directory = tempfile::tempdir().unwrap();
        let script = format!(
            "mount -t tmpfs -o size={kib}k tmpfs {:?} && echo mounted && exec sleep 600",
            directory.path()
        );
        let started = Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .spawn();
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                println!("SKIP: the program unshare (package util-linux): {error}");
                return None;
            }
        };
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let path = PathBuf::from(format!("/proc/{}/root", child.id()));
        let path = path.join(directory.path().strip_prefix("/").unwrap());
        let made = SmallFileSystem {
            child,
            path,
            _directory: directory,
        };
        if line.trim() != "mounted" {
            println!("SKIP: a mount namespace needs CAP_SYS_ADMIN");
            return None;
        }
        Some(made)
    }

    fn file(&self, name: &str) -> File {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true);
        options.open(self.path.join(name)).unwrap()
    }

    /// Fills the file system completely.
    fn fill(&self) {
        let mut file = self.file("filler");
        while file.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Memory that its owner can truncate: it accepts no seals.
fn memfd() -> OwnedFd {
    let memory = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, BYTES as u64).unwrap();
    memory
}

#[test]
fn guest_whose_file_system_is_full_is_cut_off_alone() {
    let Some(disk) = SmallFileSystem::of_kib(512) else {
        return;
    };
    for features in [0, PACKED] {
        let Some(wire) = wire("") else { return };
        let Some(other) = self::wire("") else { return };
        let mut c = FrontEnd::running(&other.sockets[0], FEATURES);
        let mut d = FrontEnd::running(&other.sockets[1], FEATURES);
        // A sparse file, longer than the file system's capacity.
        let memory = disk.file("memory");
        memory.set_len(BYTES as u64).unwrap();
        let memory = OwnedFd::from(memory);
        let copy = memory.try_clone().unwrap();
        let mut a = FrontEnd::with_memory(connected(&wire.sockets[0]), memory);
        a = a.set_up(FEATURES | features);
        let mut b = FrontEnd::running(&wire.sockets[1], FEATURES);
        passes(&mut b, &mut a, &frame(60));
        disk.fill();
        // The buffer is in a page that was never touched.
        a.gives_buffer(7, 2048);
        b.sends(0, &frame(60));
        b.returned(1);
        assert!(a.is_cut_off());
        wire.graph.until("a/ring_faults", |count| count == 1);
        passes(&mut c, &mut d, &frame(100));
        passes(&mut d, &mut c, &frame(100));
        // The same guest connects again, as it would to a restarted back end.
        drop(a);
        let mut a = FrontEnd::with_memory(connected(&wire.sockets[0]), copy);
        a = a.set_up(FEATURES | features);
        a.gives_buffer(9, 2048);
        b.sends(1, &frame(60));
        b.returned(1);
        assert!(a.is_cut_off());
        wire.graph.until("a/ring_faults", |count| count == 2);
        // Then a guest connects whose memory is accessible.
        drop(a);
        let mut a = FrontEnd::running(&wire.sockets[0], FEATURES | features);
        passes(&mut a, &mut b, &frame(100));
        passes(&mut b, &mut a, &frame(100));
        assert_eq!(wire.graph.counter("b/ring_faults"), 0);
        std::fs::remove_file(disk.path.join("filler")).unwrap();
    }
}

#[test]
fn guest_that_cuts_its_memory_short_is_cut_off_alone() {
    for (features, left) in [(0, 0), (PACKED, 0), (0, 0x1_0000), (PACKED, 0x1_0000)] {
        let Some(wire) = wire("") else { return };
        let Some(other) = self::wire("") else { return };
        let mut c = FrontEnd::running(&other.sockets[0], FEATURES);
        let mut d = FrontEnd::running(&other.sockets[1], FEATURES);
        let memory = memfd();
        let owner = memory.try_clone().unwrap();
        let mut a = FrontEnd::with_memory(connected(&wire.sockets[0]), memory);
        a = a.set_up(FEATURES | features);
        let mut b = FrontEnd::running(&wire.sockets[1], FEATURES);
        passes(&mut b, &mut a, &frame(60));
        a.gives_buffer(1, 2048);
        ftruncate(&owner, left).unwrap();
        b.sends(1, &frame(60));
        b.returned(1);
        assert!(a.is_cut_off());
        wire.graph.until("a/ring_faults", |count| count == 1);
        passes(&mut c, &mut d, &frame(100));
        drop(a);
        let mut a = FrontEnd::running(&wire.sockets[0], FEATURES | features);
        passes(&mut a, &mut b, &frame(100));
    }
}

/// No frame passes; the port notices the missing memory when it polls the rings.
#[test]
fn guest_that_cuts_its_memory_short_in_silence_is_cut_off() {
    for features in [0, PACKED] {
        let Some(wire) = wire("") else { return };
        let memory = memfd();
        let owner = memory.try_clone().unwrap();
        let mut a = FrontEnd::with_memory(connected(&wire.sockets[0]), memory);
        a = a.set_up(FEATURES | features);
        ftruncate(&owner, 0).unwrap();
        a.kicks[1].signal();
        assert!(a.is_cut_off());
        wire.graph.until("a/ring_faults", |count| count == 1);
    }
}

/// The control thread sets up the rings, and so touches them first.
#[test]
fn guest_whose_rings_cannot_be_had_is_cut_off() {
    let Some(disk) = SmallFileSystem::of_kib(64) else {
        return;
    };
    let Some(wire) = wire("") else { return };
    let memory = disk.file("memory");
    memory.set_len(BYTES as u64).unwrap();
    disk.fill();
    let mut a = FrontEnd::with_memory(connected(&wire.sockets[0]), memory.into());
    a.negotiate(FEATURES);
    a.add_ring(0);
    a.describe_ring(0, 0);
    let kick = EventFd::new().unwrap().into_fd();
    a.says(SET_VRING_KICK, &0_u64.to_ne_bytes(), &[kick.as_fd()]);
    assert!(a.is_cut_off());
    wire.graph.until("a/ring_faults", |count| count == 1);
}
