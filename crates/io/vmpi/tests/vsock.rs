//! VMPI over vsock with a real VM: this program runs on the host, and again in the guest, where it
//! opens the guest's side over AF_VSOCK. QEMU has a vsock device that Carina serves.

#![expect(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carina_sys::monotonic_ns;
use carina_vm::{Boot, Cache, Image, Machine};
use carina_vmpi::ll::vsock::{HostPort, PORT_DEFAULT, open_guest};
use carina_vmpi::ll::{DownReason, LinkState, VmpiImpl};
use carina_vsock::hybrid::{connect_line, parse_ok};
use carina_vsock::{Device, DeviceConfig};
use socket2::{Domain, SockAddr, Socket, Type};

type Dev = Box<dyn VmpiImpl + Send>;

/// The tests judge nothing by this time; it only ends a test that hangs.
const PATIENCE: Duration = Duration::from_secs(240);

/// The port of AF_VSOCK at which a program in the guest listens.
const ECHO_PORT: u32 = 4242;

/// The variable that tells this program that it runs in the guest.
const IN_GUEST: &str = "CARINA_TEST_IN_GUEST";

/// In the guest: returns every record to the host, until the VM ends. On the host: does nothing.
#[test]
fn guest_side_echoes() {
    if std::env::var_os(IN_GUEST).is_none() {
        return;
    }
    let mut device = open_guest(PORT_DEFAULT).unwrap();
    loop {
        let _ = device.link(monotonic_ns());
        while let Some(lease) = device.next().unwrap() {
            let record = lease.to_vec();
            device.release();
            send(&mut device, &record);
        }
        if device.arm(monotonic_ns()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        device.disarm();
    }
}

/// In the guest: returns every byte of a connection to port 4242. On the host: does nothing.
#[test]
fn guest_port_echoes() {
    if std::env::var_os(IN_GUEST).is_none() {
        return;
    }
    let listener = Socket::new(Domain::VSOCK, Type::STREAM, None).unwrap();
    let any_cid = u32::MAX;
    listener.bind(&SockAddr::vsock(any_cid, ECHO_PORT)).unwrap();
    listener.listen(8).unwrap();
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            stream.write_all(&bytes[..read]).unwrap();
        }
    }
}

/// Speaks the dialect of Firecracker as a program of the host does, and exchanges bytes with a port
/// of the guest.
fn program_of_the_host_connects(path: &Path) {
    let deadline = Instant::now() + PATIENCE;
    let (mut stream, rest) = loop {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // Bytes may follow the line at once.
        let line = format!("{}early", connect_line(ECHO_PORT));
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut bytes = [0; 64];
        let rest = loop {
            let read = stream.read(&mut bytes).unwrap_or(0);
            answer.extend_from_slice(&bytes[..read]);
            match parse_ok(&answer).unwrap() {
                Some((port, len)) => {
                    assert!(port >= 1 << 30, "{port}");
                    break Some(answer.split_off(len));
                }
                None if read == 0 => break None,
                None => {}
            }
        };
        if let Some(rest) = rest {
            break (stream, rest);
        }
        // The program in the guest does not listen yet, so the device closes the connection.
        assert!(Instant::now() < deadline, "the guest's port is not reached");
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut returned = rest;
    let sent: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let whole = [&b"early"[..], &sent].concat();
    let writing = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut bytes = vec![0; 64 << 10];
    while returned.len() < whole.len() {
        let read = stream.read(&mut bytes).unwrap();
        assert!(read > 0, "the guest has closed after {}", returned.len());
        returned.extend_from_slice(&bytes[..read]);
    }
    writing.join().unwrap();
    assert!(returned == whole, "the bytes differ");
}

#[test]
fn guest_attaches_by_af_vsock_and_either_end_may_be_killed() {
    let directory = std::env::temp_dir().join(format!("carina-vmpi-vsock-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let mut port = HostPort::open(&directory, "v", None).unwrap();
    let mut host = port.device().unwrap();
    let served = Device::start(&DeviceConfig {
        vhost_socket: port.qemu_socket().to_owned(),
        path: directory.join("v.vsock"),
        guest_cid: 42,
    });
    let served = served.unwrap();

    let this: PathBuf = std::env::current_exe().unwrap();
    let cache = Cache::default_location().unwrap();
    let image = Image::new()
        .module(DRIVER)
        .program("/bin/probe", &this)
        .unwrap();
    let boot = Boot::prepare(&cache, &image).unwrap();
    let start = format!("{IN_GUEST}=1 /bin/probe guest_side_echoes --exact >/tmp/probe.log 2>&1 &");
    let vm = Machine::new("v", directory.join("vm")).unwrap();
    let vm = vm
        .boot(boot)
        .memory_mib(256)
        .extra_args(device_args(&port))
        .module("virtio_pci")
        .module(DRIVER)
        .command(&start)
        .dies_with_parent();
    let vm = vm.start(&cache).unwrap();
    vm.wait_ready(PATIENCE).unwrap();

    until(&mut host, |_, state| *state == LinkState::Up);
    for len in [1, 64, 1400, 9000, 16 << 10] {
        echo(&mut host, len, 50);
    }
    port.on_tick(monotonic_ns());
    assert_eq!(port.qemu_pid(), Some(std::process::id() as i32));

    // Another port of the same guest, beside the link.
    vm.must_run(&format!(
        "ln -s probe /bin/echoing; \
         {IN_GUEST}=1 /bin/echoing guest_port_echoes --exact >/tmp/echoing.log 2>&1 &"
    ))
    .unwrap();
    program_of_the_host_connects(&directory.join("v.vsock"));
    echo(&mut host, 64, 20);

    // The guest's end is killed, and a new one attaches.
    vm.must_run("kill -9 $(pidof probe)").unwrap();
    let gone = LinkState::Down(DownReason::PeerLeft);
    until(&mut host, |_, state| *state == gone);
    vm.must_run(&start).unwrap();
    until(&mut host, |_, state| *state == LinkState::Up);
    echo(&mut host, 1400, 20);

    // The host's end is killed, and a new one is found.
    drop(host);
    let mut host = port.device().unwrap();
    until(&mut host, |_, state| *state == LinkState::Up);
    echo(&mut host, 9000, 20);
    let counts = served.counts();
    assert_eq!((counts.violations, counts.dropped), (0, 0), "{counts:?}");
    assert_eq!((counts.attached, counts.connections), (1, 1), "{counts:?}");

    // The VM ends, and with it the link.
    drop(vm);
    until(&mut host, |_, state| *state == gone);
    drop(served);
    port.destroy();
    fs::remove_dir_all(directory).unwrap();
}

/// The module by which the guest's kernel uses its vsock device.
const DRIVER: &str = "vmw_vsock_virtio_transport";

/// The arguments of QEMU for the device, with memory that QEMU shares with this process.
fn device_args(port: &HostPort) -> Vec<String> {
    let socket = port.qemu_socket().display();
    let memory = "memory-backend-memfd,id=shared,share=on,size=256M";
    let chardev = format!("socket,id=vsock,path={socket},server=on,wait=on");
    let words = [
        ["-object", memory],
        ["-m", "256M"],
        ["-machine", "memory-backend=shared"],
        ["-chardev", &chardev],
        ["-device", "vhost-user-vsock-pci,chardev=vsock"],
    ];
    words.concat().into_iter().map(String::from).collect()
}

fn send(device: &mut Dev, record: &[u8]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(mut slot) = device.reserve(record.len()) {
            slot.write_at(0, record);
            slot.commit(false);
            break;
        }
        device.publish();
        assert!(Instant::now() < deadline, "there is no room");
    }
    device.publish();
}

/// Sends records of a length one after another, and waits for each to come back.
fn echo(device: &mut Dev, len: usize, count: u8) {
    let begin = Instant::now();
    for number in 0..count {
        let record = vec![number; len];
        send(device, &record);
        until(device, |device, state| {
            assert_eq!(*state, LinkState::Up);
            let lease = device.next().unwrap();
            let is_back = lease.is_some_and(|lease| lease.to_vec() == record);
            device.release();
            is_back
        });
    }
    let each = begin.elapsed() / u32::from(count);
    println!("{len} bytes: {each:?} there and back");
}

fn until(device: &mut Dev, mut is_done: impl FnMut(&mut Dev, &LinkState) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let state = device.link(monotonic_ns());
        if is_done(device, &state) {
            return;
        }
        assert!(Instant::now() < deadline, "the last state is {state:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
