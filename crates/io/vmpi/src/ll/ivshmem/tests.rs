//! Tests of the host port against a fake QEMU.

mod conformance;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use carina_sys::{EventFd, Memory, recv_with_fds};

use super::host::HostPort;
use crate::ll::qemu::{Form, Process, State, StateFile};
use crate::ll::{DownReason, LinkState};

const REGION: usize = 64 << 10;

/// A directory on a tmpfs, which is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = PathBuf::from(format!(
            "/dev/shm/carina-vmpi-{name}-{}",
            std::process::id()
        ));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn port(&self) -> HostPort {
        HostPort::open(&self.0, "vm", REGION).unwrap()
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Simulates a restart of the node while a listening QEMU keeps running.
    fn remember(&self, qemu: Process, next_peer_id: u16, form: Form) {
        let file = StateFile::new(self.0.join("vm.state"));
        file.write(&State {
            qemu,
            next_peer_id,
            form,
        })
        .unwrap();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Reads one message of the server protocol.
fn message(socket: &UnixStream) -> Option<(i64, Option<OwnedFd>)> {
    let mut bytes = [0; 8];
    let mut datagram = recv_with_fds(socket, &mut bytes).ok()?;
    assert!(datagram.bytes == 8 || datagram.bytes == 0);
    (datagram.bytes == 8).then(|| (i64::from_le_bytes(bytes), datagram.fds.pop()))
}

fn own_process() -> Process {
    Process::running(std::process::id() as i32).unwrap()
}

/// Calls the port's tick as if a second has passed since the last call.
fn tick(port: &mut HostPort) {
    static NOW_S: AtomicU64 = AtomicU64::new(1);
    port.on_readable();
    port.on_tick(NOW_S.fetch_add(1, Ordering::Relaxed) * 1_000_000_000);
}

/// Checks the complete welcome. Returns the region, the host's doorbell and the guest's doorbell.
fn welcome(qemu: &UnixStream) -> (OwnedFd, EventFd, EventFd) {
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(message(qemu).unwrap());
    }
    let values: Vec<i64> = all.iter().map(|(value, _)| *value).collect();
    assert_eq!(values, [0, 1, -1, 2, 1]);
    assert!(all[0].1.is_none() && all[1].1.is_none());
    let mut fds = all.into_iter().filter_map(|(_, fd)| fd);
    let memory = fds.next().unwrap();
    let doorbells = [fds.next().unwrap(), fds.next().unwrap()];
    let [host, guest] = doorbells.map(|fd| EventFd::from_fd(fd).unwrap());
    (memory, host, guest)
}

#[test]
fn qemu_that_connects_gets_memory_and_both_doorbells() {
    let directory = Directory::new("connects");
    let mut port = directory.port();
    let mut device = port.device().unwrap();
    assert_eq!(device.link(1), LinkState::Down(DownReason::Detached));
    let qemu = UnixStream::connect(port.listen_socket()).unwrap();
    port.on_readable();
    let (memory, host_doorbell, _) = welcome(&qemu);
    assert_eq!(
        fs::File::from(memory).metadata().unwrap().len(),
        REGION as u64
    );
    assert_eq!(port.qemu_pid(), Some(std::process::id() as i32));
    assert_eq!(device.link(2), LinkState::Down(DownReason::NoPeer));
    // The data plane waits on the doorbell that the guest rings.
    device.disarm();
    host_doorbell.signal();
    use rustix::event::{PollFd, PollFlags, poll};
    let fd = device.wait_fd().unwrap();
    assert_eq!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], None), Ok(1));
}

#[test]
fn node_connects_to_a_qemu_that_listens() {
    let directory = Directory::new("listens");
    let mut port = directory.port();
    tick(&mut port);
    assert_eq!(port.qemu_pid(), None);
    let listener = UnixListener::bind(port.qemu_socket()).unwrap();
    tick(&mut port);
    let (qemu, _) = listener.accept().unwrap();
    welcome(&qemu);
    assert_eq!(port.qemu_pid(), Some(std::process::id() as i32));
    // The port does not connect a second time.
    tick(&mut port);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
}

#[test]
fn restarted_node_sends_only_new_doorbells_and_a_new_id() {
    let directory = Directory::new("restart");
    let mut port = directory.port();
    let listener = UnixListener::bind(port.qemu_socket()).unwrap();
    tick(&mut port);
    let (first, _) = listener.accept().unwrap();
    let (memory, _, _) = welcome(&first);
    Memory::file(&directory.0.join("vm.region"), REGION)
        .unwrap()
        .map()
        .unwrap()
        .write(9000, b"kept");
    for expected in [3, 4, 5] {
        drop(port);
        // The requested size is ignored, because QEMU has already mapped the region.
        port = HostPort::open(&directory.0, "vm", 4 * REGION).unwrap();
        assert_eq!(port.region_bytes(), REGION);
        tick(&mut port);
        let (qemu, _) = listener.accept().unwrap();
        let (value, fd) = message(&qemu).unwrap();
        assert_eq!((value, fd.is_some()), (expected, true));
        let (value, fd) = message(&qemu).unwrap();
        assert_eq!((value, fd.is_some()), (1, true), "the VM's next vector");
        qemu.set_nonblocking(true).unwrap();
        assert!(message(&qemu).is_none(), "no more messages");
    }
    let mut kept = [0; 4];
    carina_sys::Mapping::shared(std::os::fd::AsFd::as_fd(&memory), 0, REGION)
        .unwrap()
        .read(9000, &mut kept);
    assert_eq!(&kept, b"kept");
}

#[test]
fn guest_is_rung_only_after_it_heard_the_restarted_node() {
    let directory = Directory::new("vector");
    let listener = UnixListener::bind(directory.0.join("vm.qemu")).unwrap();
    let mut port = directory.port();
    tick(&mut port);
    welcome(&listener.accept().unwrap().0);
    drop(port);
    let mut port = directory.port();
    tick(&mut port);
    let (qemu, _) = listener.accept().unwrap();
    let _host_doorbell = message(&qemu).unwrap();
    let guest_doorbell = EventFd::from_fd(message(&qemu).unwrap().1.unwrap()).unwrap();

    let region = Memory::file(&directory.0.join("vm.region"), REGION).unwrap();
    let station = region.map().unwrap();
    let word = |offset: usize| {
        let mut bytes = [0; 4];
        station.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    };
    let (takes_doorbell, rings) = (1, 2);
    let mut device = port.device().unwrap();
    let _ = device.link(1);
    // A guest that takes doorbells at the vector of the previous node.
    for (offset, value) in [(0x184, word(0x100)), (0x190, takes_doorbell), (0x180, 7)] {
        station.write(offset, &u32::to_le_bytes(value));
    }
    let mut now_ns = 1;
    let mut look = || {
        now_ns += 2 * crate::ll::HEARTBEAT_NS;
        let _ = device.link(now_ns);
        let _ = device.link(now_ns);
        guest_doorbell.drain()
    };
    look();
    assert_eq!(look(), 1, "one ring on trial in each interval");
    assert_eq!((word(0x110), word(0x114)), (takes_doorbell, 1));
    station.write(0x194, &u32::to_le_bytes(1));
    look();
    assert_eq!((look(), word(0x110)), (0, takes_doorbell | rings));
}

#[test]
fn restarted_node_waits_for_a_qemu_that_cannot_connect_again() {
    let directory = Directory::new("orphan");
    drop(directory.port());
    directory.remember(own_process(), 3, Form::QemuConnected);
    let mut port = directory.port();
    let mut device = port.device().unwrap();
    // The VM is attached although no socket reports it. Neither side can ring, so both poll.
    assert_eq!(device.link(1), LinkState::Down(DownReason::NoPeer));
    let second = UnixStream::connect(port.listen_socket()).unwrap();
    port.on_readable();
    assert!(
        message(&second).is_none(),
        "the region belongs to the running QEMU"
    );
    assert_eq!(port.refused(), 1);
}

#[test]
fn end_of_qemu_detaches_the_device_and_forgets_the_state() {
    let directory = Directory::new("end");
    drop(directory.port());
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    directory.remember(
        Process::running(child.id() as i32).unwrap(),
        3,
        Form::QemuConnected,
    );
    let mut port = directory.port();
    let mut device = port.device().unwrap();
    assert_eq!(device.link(1), LinkState::Down(DownReason::NoPeer));
    child.kill().unwrap();
    child.wait().unwrap();
    use rustix::event::{PollFd, PollFlags, poll};
    assert_eq!(poll(&mut [PollFd::new(&port, PollFlags::IN)], None), Ok(1));
    port.on_readable();
    assert_eq!(port.qemu_pid(), None);
    assert_eq!(device.link(2), LinkState::Down(DownReason::Detached));
    assert!(!directory.files().contains(&"vm.state".into()));
}

#[test]
fn stale_state_and_region_are_replaced_at_start() {
    let directory = Directory::new("stale");
    fs::write(directory.0.join("vm.region"), vec![0xaa; 2 * REGION]).unwrap();
    let gone = Process {
        start_time: 1,
        ..own_process()
    };
    directory.remember(gone, 3, Form::QemuListens);
    drop(UnixListener::bind(directory.0.join("vm.ivshmem")).unwrap());
    let port = directory.port();
    assert_eq!(port.region_bytes(), REGION);
    assert_eq!(port.qemu_pid(), None);
    assert!(
        fs::read(directory.0.join("vm.region"))
            .unwrap()
            .iter()
            .all(|b| *b == 0)
    );
    port.destroy();
    assert_eq!(directory.files(), Vec::<String>::new());
}

#[test]
fn malformed_clients_cost_only_their_own_connection() {
    let directory = Directory::new("malformed");
    let mut port = directory.port();
    for round in 0..50u64 {
        // The client hangs up at once, sends bytes, sends bytes and hangs up, or floods.
        let mut qemu = UnixStream::connect(port.listen_socket()).unwrap();
        match round % 4 {
            0 => drop(qemu),
            n => {
                let junk = vec![round as u8; [0, 1, 8, 5000][n as usize]];
                qemu.write_all(&junk).unwrap();
                port.on_readable();
                port.on_readable();
                if n != 2 {
                    let mut all = Vec::new();
                    // A connection reset is as good as an end of file.
                    let _ = qemu.read_to_end(&mut all);
                }
            }
        }
        port.on_readable();
        port.on_readable();
        // This process still runs, so its claim on the region stays until it ends.
        port = {
            drop(port);
            StateFile::new(directory.0.join("vm.state")).remove();
            directory.port()
        };
    }
    let qemu = UnixStream::connect(port.listen_socket()).unwrap();
    port.on_readable();
    welcome(&qemu);
}

#[test]
fn second_client_is_refused_while_the_first_has_the_region() {
    let directory = Directory::new("second");
    let mut port = directory.port();
    let first = UnixStream::connect(port.listen_socket()).unwrap();
    port.on_readable();
    welcome(&first);
    let second = UnixStream::connect(port.listen_socket()).unwrap();
    port.on_readable();
    assert!(message(&second).is_none());
    assert_eq!(port.refused(), 1);
}

#[test]
fn names_that_leave_the_directory_are_refused() {
    let directory = Directory::new("names");
    for name in ["", "../x", "a/b", ".hidden", "sp ace"] {
        let error = HostPort::open(&directory.0, name, REGION).unwrap_err();
        assert!(error.to_string().contains("VM name"), "{error}");
    }
    let error = HostPort::open(&directory.0, "vm", 3 << 20).unwrap_err();
    assert!(error.to_string().contains("power of two"), "{error}");
}
