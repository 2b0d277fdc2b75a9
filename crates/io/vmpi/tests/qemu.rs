//! The host port against a real QEMU. The test plays the guest through QEMU's qtest socket: the VM
//! attaches, both sides ring each other, the node restarts, and the VM attaches again.

#![expect(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use carina_sys::monotonic_ns;
use carina_vmpi::ll::ivshmem::HostPort;
use carina_vmpi::ll::{DownReason, LinkState, VmpiImpl};

type Dev = Box<dyn VmpiImpl + Send>;

const REGION: usize = 1 << 20;
/// The tests judge nothing by this time; it only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Where the test, in the role of the firmware, places the BARs.
const BAR0: u64 = 0xfe00_0000;
const BAR2: u64 = 0xe000_0000;

/// A stopped QEMU. No guest runs; the test accesses the guest's memory in its place.
struct Qemu {
    child: Child,
    qtest: BufReader<UnixStream>,
}

impl Qemu {
    fn start(directory: &Path, chardev: &str, serve: &mut dyn FnMut()) -> Qemu {
        let qtest = directory.join("qtest");
        let child = Command::new("qemu-system-x86_64")
            .args("-accel tcg -display none -nodefaults -S -m 64 -machine pc".split(' '))
            .args(["-chardev", chardev])
            .args([
                "-device",
                "ivshmem-doorbell,vectors=32,chardev=iv,addr=04.0",
            ])
            .arg("-qtest")
            .arg(format!("unix:{},server=on,wait=off", qtest.display()))
            .args(["-qtest-log", "/dev/null"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        let socket = loop {
            serve();
            match UnixStream::connect(&qtest) {
                Ok(socket) => break socket,
                Err(_) => assert!(Instant::now() < deadline, "QEMU does not start"),
            }
            sleep(Duration::from_millis(20));
        };
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let mut qemu = Qemu {
            child,
            qtest: BufReader::new(socket),
        };
        qemu.place_bars(serve);
        qemu
    }

    fn place_bars(&mut self, serve: &mut dyn FnMut()) {
        let config = |register: u32, value: u64| {
            let address = 0x8000_0000 | 4 << 11 | register;
            [
                format!("outl 0xcf8 {address:#x}"),
                format!("outl 0xcfc {value:#x}"),
            ]
        };
        let writes = [
            config(0x10, BAR0),
            config(0x18, BAR2),
            config(0x1c, 0),
            config(0x04, 6),
        ];
        for line in writes.as_flattened() {
            self.ask_while(line, serve);
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.ask_while(line, &mut || {})
    }

    fn ask_while(&mut self, line: &str, serve: &mut dyn FnMut()) -> String {
        writeln!(self.qtest.get_mut(), "{line}").unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut answer = String::new();
        while !answer.ends_with('\n') {
            assert!(Instant::now() < deadline, "no answer to {line}");
            serve();
            let _ = self.qtest.read_line(&mut answer);
        }
        let words = answer.trim().strip_prefix("OK");
        words
            .unwrap_or_else(|| panic!("{line}: {answer}"))
            .trim()
            .into()
    }

    fn read_u32(&mut self, offset: u64) -> u32 {
        let hex = self.ask(&format!("readl {:#x}", BAR2 + offset));
        u32::from_str_radix(hex.trim_start_matches("0x"), 16).unwrap()
    }

    fn write_u32(&mut self, offset: u64, value: u32) {
        self.ask(&format!("writel {:#x} {value:#x}", BAR2 + offset));
    }

    /// Acts as a guest's node that meets a host: shows `epoch`, and shows the host's epoch as seen.
    fn answer_host(&mut self, epoch: u32) {
        let seen = self.read_u32(0x100);
        self.write_u32(0x184, seen);
        self.write_u32(0x180, epoch);
    }

    /// Rings the doorbell whose number the host shows.
    fn ring(&mut self) -> u32 {
        let doorbell = self.read_u32(0x10c);
        self.ask(&format!("writel {:#x} {:#x}", BAR0 + 12, doorbell << 16));
        doorbell
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Directory(PathBuf);

impl Directory {
    /// `None` if this machine has no QEMU; the reason is then printed.
    fn with_qemu(name: &str) -> Option<Directory> {
        if Command::new("qemu-system-x86_64")
            .arg("--version")
            .output()
            .is_err()
        {
            println!("SKIP: qemu-system-x86_64 is not installed");
            return None;
        }
        let path = PathBuf::from(format!(
            "/dev/shm/carina-qemu-{name}-{}",
            std::process::id()
        ));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Some(Directory(path))
    }

    fn node(&self) -> (HostPort, Dev) {
        let port = HostPort::open(&self.0, "vm", REGION).unwrap();
        let device = port.device().unwrap();
        (port, device)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn serve(port: &mut HostPort) {
    port.on_readable();
    port.on_tick(monotonic_ns());
}

/// Drives the node until the link has the wanted state.
fn wait_for(port: &mut HostPort, device: &mut Dev, wanted: impl Fn(&LinkState) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        serve(port);
        let state = device.link(monotonic_ns());
        if wanted(&state) {
            return;
        }
        assert!(Instant::now() < deadline, "link stays {state:?}");
        sleep(Duration::from_millis(5));
    }
}

fn rings(device: &Dev) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    let fd = device.wait_fd().unwrap();
    poll(
        &mut [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)],
        Some(&timeout),
    ) == Ok(1)
}

#[test]
fn listening_qemu_re_attaches_after_each_restart_of_the_node() {
    let Some(directory) = Directory::with_qemu("listens") else {
        return;
    };
    let (mut port, mut device) = directory.node();
    let chardev = format!(
        "socket,path={},id=iv,server=on,wait=on",
        port.qemu_socket().display()
    );
    let mut qemu = Qemu::start(&directory.0, &chardev, &mut || serve(&mut port));
    wait_for(&mut port, &mut device, |s| {
        *s == LinkState::Down(DownReason::NoPeer)
    });
    let _ = device.link(monotonic_ns());
    assert_eq!(qemu.read_u32(0), u32::from_le_bytes(*b"CARI"));
    for restart in 0..4 {
        qemu.answer_host(100 + restart);
        wait_for(&mut port, &mut device, |s| *s == LinkState::Up);
        device.disarm();
        assert_eq!(
            qemu.ring(),
            2 + restart,
            "an id that this QEMU has never heard of"
        );
        assert!(
            rings(&device),
            "the guest's doorbell reaches restarted node {restart}"
        );
        // As if the node was killed: no destructor of the data plane runs, and the sockets close.
        std::mem::forget(device);
        drop(port);
        sleep(Duration::from_millis(50));
        assert!(qemu.is_running());
        (port, device) = directory.node();
        wait_for(&mut port, &mut device, |s| {
            *s == LinkState::Down(DownReason::NoPeer)
        });
    }
    // From host to guest: the test reads the bytes from the BAR.
    qemu.answer_host(200);
    wait_for(&mut port, &mut device, |s| *s == LinkState::Up);
    let mut slot = device.reserve(4).unwrap();
    slot.write_at(0, b"ping");
    slot.commit(false);
    device.publish();
    assert_eq!(qemu.read_u32(8192), 4, "length of the first record");
    assert_eq!(qemu.read_u32(8192 + 8), u32::from_le_bytes(*b"ping"));
    // The link ends because QEMU ends, before its silence would end it.
    qemu.child.kill().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while port.qemu_pid().is_some() {
        assert!(Instant::now() < deadline, "the end of QEMU is not seen");
        serve(&mut port);
        sleep(Duration::from_millis(5));
    }
    assert_eq!(
        device.link(monotonic_ns()),
        LinkState::Down(DownReason::Detached)
    );
    // A new QEMU gets the complete welcome again.
    drop(qemu);
    let _ = fs::remove_file(directory.0.join("qtest"));
    let mut qemu = Qemu::start(&directory.0, &chardev, &mut || serve(&mut port));
    wait_for(&mut port, &mut device, |s| {
        *s != LinkState::Down(DownReason::Detached)
    });
    qemu.answer_host(300);
    wait_for(&mut port, &mut device, |s| *s == LinkState::Up);
    assert!(qemu.is_running());
}

#[test]
fn connecting_qemu_is_polled_after_a_restart_of_the_node() {
    let Some(directory) = Directory::with_qemu("connects") else {
        return;
    };
    let (mut port, mut device) = directory.node();
    let chardev = format!("socket,path={},id=iv", port.listen_socket().display());
    let mut qemu = Qemu::start(&directory.0, &chardev, &mut || serve(&mut port));
    wait_for(&mut port, &mut device, |s| {
        *s == LinkState::Down(DownReason::NoPeer)
    });
    qemu.answer_host(1);
    wait_for(&mut port, &mut device, |s| *s == LinkState::Up);
    device.disarm();
    qemu.ring();
    assert!(rings(&device));
    std::mem::forget(device);
    drop(port);
    (port, device) = directory.node();
    let _ = device.link(monotonic_ns());
    qemu.answer_host(2);
    wait_for(&mut port, &mut device, |s| *s == LinkState::Up);
    assert_eq!(
        qemu.read_u32(0x110),
        0,
        "the host neither rings nor is rung"
    );
    qemu.child.kill().unwrap();
    wait_for(&mut port, &mut device, |s| {
        *s == LinkState::Down(DownReason::Detached)
    });
}
