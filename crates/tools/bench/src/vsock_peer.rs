//! A VM whose vsock device is `vhost-device-vsock` of rust-vmm, and a plain stream through the
//! device: of an application that uses AF_VSOCK itself, and of one for which socat does.
//!
//! ```text
//!  guest                                                          host
//!  bench-peer ---------- AF_VSOCK -- vhost-device-vsock (process) -- Unix socket, benchmark
//!  bench-peer -- socat --'
//!  bench-peer, a flow -------------- VMPI over virtqueues --------- control messages
//! ```

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use carina_api::control::VmpiKind;
use carina_lab::{GuestCpu, GuestSpec, TestGuest, TestNode};
use carina_namespaces::ChildProcess;
use carina_vm::{GuestImage, Image};

use crate::Progress;
use crate::booted::boot;
use crate::client::Client;
use crate::comparison::{System, TransportSpec};
use crate::error::{Attempt, Error, Result};
use crate::installed::found;

/// The program of the device, and the name of the system.
pub(crate) const PROGRAM: &str = "vhost-device-vsock";

/// A note about the system for the readers of the figures.
pub(crate) const NOTE: &str = "vhost-device-vsock: a stream of AF_VSOCK, with the length in front \
     of each SDU, in a second VM; the device is a program of rust-vmm";

/// Name of the system in which socat connects the application in the guest with the device.
pub(crate) const WITH_SOCAT: &str = "vhost-device-vsock-socat";

/// A note about that system.
pub(crate) const SOCAT_NOTE: &str = "vhost-device-vsock-socat: the same, but the application in \
     the VM has a Unix socket, and socat in the VM connects it with AF_VSOCK, as it does for any \
     program that does not know AF_VSOCK; a flow is for such programs, too";

/// A note for a host without socat.
pub(crate) const SOCAT_MISSING: &str =
    "vhost-device-vsock-socat: left out, because socat is not in a directory of PATH";

/// A note for a host without the program.
pub(crate) const MISSING: &str = "vhost-device-vsock: left out, because the program is not in a \
     directory of PATH; `cargo install vhost-device-vsock` builds the program";

/// The VM with its vsock device. Dropping the value ends both.
#[derive(Debug)]
pub(crate) struct VsockPeer {
    unix_socket: PathBuf,
    has_socat: bool,
    // The guest is dropped before its device.
    _guest: TestGuest,
    _device: ChildProcess,
}

impl VsockPeer {
    /// Starts the device and boots the VM, which has `guest_program` as `carina`. Returns a client
    /// of the application in the VM, too; `None` if the program of the device is not installed.
    ///
    /// # Errors
    /// The device or the VM does not start.
    pub(crate) fn start(
        guest_program: &Path,
        node: &mut TestNode,
        cpu: Option<GuestCpu>,
        progress: Progress,
    ) -> Result<Option<(Self, Client)>> {
        let Some(program) = found(PROGRAM) else {
            return Ok(None);
        };
        progress.step("booting a VM with the vsock device of rust-vmm");
        let unix_socket = node.path().join("other.vsock");
        let vhost_socket = node.path().join("other.vhost");
        let log = File::create(node.path().join("other-vsock.log"));
        let log = log.attempt("making a log file")?;
        let mut command = Command::new(program);
        command.args(["--guest-cid", "3", "--uds-path"]);
        command.arg(&unix_socket).arg("--socket").arg(&vhost_socket);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let mut device = ChildProcess::start(&mut command, PROGRAM)?;
        let deadline = Instant::now() + LISTEN;
        while !vhost_socket.exists() {
            device.check_alive()?;
            if Instant::now() >= deadline {
                let what = format!("{PROGRAM} does not listen within {} s", LISTEN.as_secs());
                return Err(Error::NoAnswer(what));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let spec = GuestSpec {
            name: "bench-peer".to_owned(),
            // This device has the guest share its memory, which vhost-user needs.
            vmpi: vec![VmpiKind::Virtqueue],
            memory_mib: 512,
            nics: Vec::new(),
            bridge: None,
            node_config: String::new(),
            parameters: Vec::new(),
            vsock_socket: Some(vhost_socket),
        };
        let image = Image::new().program("/bin/carina", guest_program);
        let socat = found("socat");
        let image = match (&socat, image) {
            (Some(socat), Ok(image)) => image.program("/bin/socat", socat),
            (_, image) => image,
        };
        let image = image.and_then(|image| GuestImage::build(&image));
        let image = image.attempt("preparing the guest's image")?;
        let (guest, client) = boot(&image, node, spec, "carina.bench.stream", progress)?;
        if socat.is_some() {
            guest.run(&format!(
                "socat VSOCK-LISTEN:{SOCAT_PORT},fork UNIX-CONNECT:{RELAYED_TO} </dev/null \
                 >/tmp/socat.log 2>&1 &"
            ))?;
        }
        if let Some(cpu) = cpu {
            cpu.pin(&guest);
        }
        let peer = Self {
            unix_socket,
            has_socat: socat.is_some(),
            _guest: guest,
            _device: device,
        };
        Ok(Some((peer, client)))
    }

    /// The systems that are measured, each with its note.
    pub(crate) fn systems(&self) -> Vec<(System, &'static str)> {
        let through = |name, port, relayed_to: Option<&str>| System {
            name,
            transport: TransportSpec::Vsock {
                device: self.unix_socket.clone(),
                port,
                relayed_to: relayed_to.map(PathBuf::from),
            },
        };
        let mut systems = vec![(through(PROGRAM, PORT, None), NOTE)];
        if self.has_socat {
            let relayed = through(WITH_SOCAT, SOCAT_PORT, Some(RELAYED_TO));
            systems.push((relayed, SOCAT_NOTE));
        }
        systems
    }
}

/// The port of the guest at which the application listens, one measurement after the other.
const PORT: u32 = 5201;
/// The port of the guest at which socat listens, and the socket to which it connects.
const SOCAT_PORT: u32 = 5202;
const RELAYED_TO: &str = "/tmp/relayed.sock";

/// How long the device may take until its socket exists.
const LISTEN: Duration = Duration::from_secs(10);
