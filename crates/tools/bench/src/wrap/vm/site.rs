//! The guest with its two network cards, the host's node, and the servers on the host.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carina_api::control::VmpiKind;
use carina_lab::{GuestCpu, GuestSpec, Network, TestGuest, TestNode};
use carina_measure::results::OURS;
use carina_namespaces::ChildProcess;
use carina_vm::{Backend, GuestImage, Image, Model};
use carina_wrap::library::{LIBRARY, library_of};

use super::client::{self, HTTP_PORT, IPERF3_PORT, SSH_KEY, SSH_PORT, Target};
use super::{Case, IP, PASST, USER, Work, passt};
use crate::booted::explain;
use crate::cards::{Addresses, Card};
use crate::error::{Attempt, Error, Result};
use crate::installed::path_of;
use crate::peer::app_name;
use crate::vm_and_host::program_of_guest;
use crate::wrap::processes::{START, command, spawn, words};
use crate::wrap::sshd;
use crate::{Options, Progress};

/// Everything that a measurement needs. Dropping the value ends all of it.
pub(super) struct Site {
    systems: Vec<&'static str>,
    works: Vec<Work>,
    notes: Vec<String>,
    // Dropped in this order: the guest before passt, the servers and the host.
    guest: TestGuest,
    _passt: Option<ChildProcess>,
    /// The servers, and the host's end of the addresses over the DIF.
    servers: Vec<ChildProcess>,
    node: TestNode,
}

impl Site {
    /// Starts the node, the servers and the guest.
    ///
    /// # Errors
    /// Something is missing or does not start.
    pub(super) fn start(options: &Options<Case>, guest_program: Option<&Path>) -> Result<Site> {
        let progress = options.progress;
        let (works, mut notes) = possible(options);
        let cpu = GuestCpu::reserve();
        progress.step("starting the host's node");
        let node = TestNode::start(NAME, Network::Shared, None)?;
        passt::set_up_network(&node)?;
        make_files(&node, &options.sizes)?;
        if works.contains(&Work::Ssh) {
            let directory = ssh_directory(node.path());
            std::fs::create_dir(&directory).attempt("making a directory for keys")?;
            sshd::make_files(&directory, &format!("Port {SSH_PORT}\n"))?;
        }
        progress.step("building the guest's image (kernel, busybox, carina, clients)");
        let image = image(&works, guest_program, &node)?;
        let passt = match passt::start(&node, [GUEST, HOST_NUMBER].map(address)) {
            Ok(passt) => Some(passt),
            Err(error) => {
                notes.push(format!("passt is not measured: {error}"));
                None
            }
        };
        progress.step("booting a VM with the shared-memory device and two cards");
        let guest = TestGuest::start(&image, &node, spec(&node, passt.is_some())?)?;
        let mut systems = vec![OURS, IP, USER];
        systems.extend(passt.is_some().then_some(PASST));
        let mut site = Site {
            systems,
            works,
            notes,
            guest,
            _passt: passt,
            servers: Vec::new(),
            node,
        };
        let prepared = site.prepare(progress);
        prepared.map_err(|error| site.explain(error))?;
        let cpu = cpu.filter(|cpu| cpu.pin(&site.guest));
        site.notes.push(site.description());
        site.notes.extend(NOTES.map(str::to_owned));
        site.notes.extend(cpu.map(GuestCpu::note));
        Ok(site)
    }

    /// Waits for the guest, sets its cards up, and starts the servers.
    fn prepare(&mut self, progress: Progress) -> Result<()> {
        self.guest.wait_ready(BOOT)?;
        progress.step("the guest is up; starting the servers on the host");
        for card in &CARDS {
            if self.systems.contains(&card.system) {
                let address = format!("{}/24", ADDRESSES.of(card, GUEST));
                self.guest
                    .set_address(ADDRESSES.mac_of(card, GUEST), &address)?;
            }
        }
        if self.systems.contains(&PASST) {
            passt::set_mtu(&self.guest, ADDRESSES.mac_of(&CARDS[1], GUEST))?;
        }
        let mut ports = Vec::new();
        for work in [Work::Send, Work::Http, Work::Ssh] {
            if self
                .works
                .iter()
                .any(|has| server_of(*has) == server_of(work))
            {
                ports.push(self.start_server(work)?);
            }
        }
        let dif = TestGuest::dif(NAME, VmpiKind::Ivshmem)?;
        for port in ports {
            let name = format!("{HOST}:{port}");
            self.guest.wait_for_name_in(dif.as_str(), &name, BOOT)?;
        }
        self.start_ip(dif.as_str())
    }

    /// Makes the TUN interface of the host, and waits until the guest reaches the host's address.
    /// The guest's node makes the guest's interface when the module is there.
    fn start_ip(&mut self, dif: &str) -> Result<()> {
        let load = "while read -r file; do insmod $file; done </lib/carina/tun";
        self.guest.run(load)?;
        let run = self.node.path().to_string_lossy().into_owned();
        let carina = carina()?.to_string_lossy().into_owned();
        let address = format!("{}/24", ip_address(HOST_NUMBER));
        let up = [
            &carina,
            "--run",
            &run,
            "ip",
            "up",
            dif,
            "--address",
            &address,
            "--tun",
            NAME,
        ];
        let up = spawn(command(&words(up)), self.node.path(), IP)?;
        self.servers.push(up);
        let host = ip_address(HOST_NUMBER);
        let until_reached = format!(
            "for try in $(seq 60); do ping -c 1 -W 1 {host} && exit 0; sleep 1; done; exit 1"
        );
        let output = self.guest.run_within(&until_reached, BOOT)?;
        if output.status == 0 {
            return Ok(());
        }
        let what = format!("no echo from {host} over {dif}: {}", output.text());
        Err(Error::NoAnswer(what))
    }

    /// Starts the server of a case twice: wrapped, and at a port of the kernel. Returns the port.
    fn start_server(&mut self, work: Work) -> Result<u16> {
        let (port, server) = self.server(work);
        let run = self.node.path().to_string_lossy().into_owned();
        let carina = carina()?.to_string_lossy().into_owned();
        let launcher = [&carina, "--run", &run, "wrap", "--as", HOST, "--"];
        for launcher in [&launcher[..], &[]] {
            let launched = [words(launcher.iter().copied()), server.clone()].concat();
            let name = format!("server-{port}");
            let started = spawn(command(&launched), self.node.path(), &name)?;
            self.servers.push(started);
        }
        self.node
            .wait_for_name(&app_name(&format!("{HOST}:{port}"))?, START)?;
        let deadline = Instant::now() + START;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if Instant::now() > deadline {
                return Err(Error::NoAnswer(format!("no server listens on port {port}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(port)
    }

    /// The port of the server of a case, and its command.
    fn server(&self, work: Work) -> (u16, Vec<String>) {
        let path = self.node.path();
        match work {
            Work::Send | Work::Receive => {
                let port = IPERF3_PORT.to_string();
                (IPERF3_PORT, words(["iperf3", "-s", "-p", &port]))
            }
            Work::Http => {
                let (port, files) = (HTTP_PORT.to_string(), files(path));
                let directory = files.to_string_lossy();
                let server = [
                    PYTHON,
                    "-m",
                    "http.server",
                    &port,
                    "--directory",
                    &directory,
                ];
                (HTTP_PORT, words(server))
            }
            Work::Ssh => (SSH_PORT, sshd::command(&ssh_directory(path))),
        }
    }

    /// The systems that can be measured, in the order of the tables.
    pub(super) fn systems(&self) -> Vec<&'static str> {
        self.systems.clone()
    }

    /// Whether the programs that this work needs are in the guest and on this system.
    pub(super) fn can(&self, work: Work) -> bool {
        self.works.contains(&work)
    }

    /// Transfers `size` bytes, and returns the goodput in 10⁶ bits per second.
    ///
    /// # Errors
    /// The guest does not answer in time, or the client in it fails.
    pub(super) fn measure(&mut self, system: &str, work: Work, size: u64) -> Result<f64> {
        let card = CARDS.iter().find(|card| card.system == system);
        let host = match card {
            Some(card) => ADDRESSES.of(card, HOST_NUMBER).to_string(),
            None if system == IP => ip_address(HOST_NUMBER).to_string(),
            None => format!("{HOST}.dif.internal"),
        };
        let file = file(&files(self.node.path()), size);
        let target = Target {
            launcher: if system == OURS { "carina wrap " } else { "" },
            host: &host,
            file: &file.to_string_lossy(),
            size,
        };
        let command = client::command(work, target);
        let limit = LIMIT + Duration::from_secs(size / BYTES_PER_S_MIN);
        let output = self.guest.run_within(&command, limit)?;
        let printed = output.text();
        let is_done = output.status == 0;
        let goodput = is_done.then(|| client::goodput_mbps(work, &printed));
        goodput.flatten().ok_or_else(|| {
            let start = printed.chars().count().saturating_sub(PRINTED_MAX);
            let end: String = printed.chars().skip(start).collect();
            Error::NoAnswer(format!("{command}: {end} {}", output.error_text()))
        })
    }

    /// Adds the last lines of logs to an error.
    pub(super) fn explain(&self, error: Error) -> Error {
        explain(error, &self.guest, &self.node)
    }

    pub(super) fn into_notes(self) -> Vec<String> {
        self.notes
    }

    fn description(&self) -> String {
        format!(
            "one boot of one VM under QEMU with {}, 1 CPU, 512 MiB; clients are in the guest, \
             servers on the host",
            self.guest.accelerator()
        )
    }
}

/// The chosen works whose programs are installed, and a note for each other.
fn possible(options: &Options<Case>) -> (Vec<Work>, Vec<String>) {
    let (mut works, mut notes) = (Vec::new(), Vec::new());
    for case in &options.cases {
        let mut needed = needed(case.work).iter();
        match needed.find(|name| path_of(name).is_none()) {
            None => works.push(case.work),
            Some(missing) => notes.push(format!("{}: no program {missing} here", case.name)),
        }
    }
    (works, notes)
}

/// The programs of a case: the client, which the guest gets, first.
fn needed(work: Work) -> &'static [&'static str] {
    match work {
        Work::Send | Work::Receive => &["iperf3"],
        Work::Http => &["curl", "python3"],
        Work::Ssh => &["ssh", "sshd", "ssh-keygen"],
    }
}

/// The program that serves a case.
fn server_of(work: Work) -> &'static str {
    needed(work).get(1).copied().unwrap_or("iperf3")
}

/// The guest's image: the node, the clients, and the library by which `carina wrap` runs them.
fn image(works: &[Work], guest_program: Option<&Path>, host: &TestNode) -> Result<GuestImage> {
    let own = std::env::current_exe().attempt("finding this program")?;
    let missing = || Error::NoAnswer(format!("{LIBRARY} is not beside {}", own.display()));
    let library = library_of(&own).ok_or_else(missing)?;
    let node = program_of_guest(guest_program)?;
    let mut base = Image::new();
    if works.contains(&Work::Ssh) {
        let key = sshd::key(&ssh_directory(host.path()));
        let key = std::fs::read(key).attempt("reading a key")?;
        base = base.file(SSH_KEY, 0o600, key);
    }
    let pack = || {
        let mut image = base
            .program("/bin/carina", &node)?
            .library(&format!("/lib/carina/{LIBRARY}"), &library)?;
        for work in works {
            let name = needed(*work)[0];
            if let Some(client) = path_of(name) {
                image = image.program(&format!("/usr/bin/{name}"), &client)?;
            }
        }
        GuestImage::build(&image)
    };
    pack().attempt("preparing the guest's image")
}

/// Path of `carina`, which starts wrapped servers.
fn carina() -> Result<PathBuf> {
    let own = std::env::current_exe().attempt("finding this program")?;
    Ok(own.with_file_name("carina"))
}

/// Makes files of zeros, without using memory for them.
fn make_files(node: &TestNode, sizes: &[u64]) -> Result<()> {
    let files = files(node.path());
    std::fs::create_dir(&files).attempt("making a directory for files")?;
    for size in sizes {
        let made = std::fs::File::create(file(&files, *size));
        made.and_then(|made| made.set_len(*size))
            .attempt("making a file to transfer")?;
    }
    Ok(())
}

fn files(directory: &Path) -> PathBuf {
    directory.join("files")
}

fn file(files: &Path, size: u64) -> PathBuf {
    files.join(size.to_string())
}

/// The address that passt gives a host number.
fn address(number: u8) -> String {
    ADDRESSES.of(&CARDS[1], number).to_string()
}

fn spec(node: &TestNode, has_passt: bool) -> Result<GuestSpec> {
    let dif = TestGuest::dif(NAME, VmpiKind::Ivshmem)?;
    let backend = |card: &Card| match card.system {
        PASST if has_passt => Some(Backend::Other(format!(
            "stream,server=off,addr.type=unix,addr.path={}",
            passt::socket(node).display()
        ))),
        PASST => Some(Backend::Unplugged),
        _ => {
            let (subnet, host) = (ADDRESSES.of(card, 0), ADDRESSES.of(card, HOST_NUMBER));
            Some(Backend::Other(format!("user,net={subnet}/24,host={host}")))
        }
    };
    Ok(GuestSpec {
        name: NAME.to_owned(),
        vmpi: vec![VmpiKind::Ivshmem],
        memory_mib: 512,
        nics: ADDRESSES.nics(NAME, GUEST, backend),
        bridge: None,
        node_config: format!(
            "[[ip]]\ndif = \"{dif}\"\naddress = [\"{}/24\"]\n",
            ip_address(GUEST)
        ),
        parameters: Vec::new(),
        vsock_socket: None,
    })
}

/// An address of the interfaces over the DIF.
fn ip_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, ADDRESSES.network, IP_SUBNET, number)
}

/// Directory of the sshd's files below a node's run directory.
fn ssh_directory(node: &Path) -> PathBuf {
    node.join("ssh")
}

/// Name of the VM and part of that of the node.
const NAME: &str = "wrapvm";

/// The name under which wrapped servers are reachable.
const HOST: &str = "bench";

const PYTHON: &str = "python3";

/// The card of each other system.
const CARDS: [Card; 2] = [
    Card {
        system: USER,
        model: Model::VirtioNet,
        subnet: 1,
    },
    Card {
        system: PASST,
        model: Model::VirtioNet,
        subnet: 2,
    },
];
const ADDRESSES: Addresses = Addresses {
    network: 79,
    cards: &CARDS,
};
/// Third byte of the addresses over the DIF; the cards have others.
const IP_SUBNET: u8 = 3;
/// Last byte of an address at which the guest reaches the host.
const HOST_NUMBER: u8 = 1;
/// Last byte of an address of the guest.
const GUEST: u8 = 2;

/// How long the guest may take to boot. TCG is slow.
const BOOT: Duration = Duration::from_secs(180);
/// How long a measurement may take, besides the time for its bytes.
const LIMIT: Duration = Duration::from_secs(75);
/// Goodput below which a measurement counts as failed, in bytes per second.
const BYTES_PER_S_MIN: u64 = 1 << 20;
/// Number of last characters of a client's output in an error.
const PRINTED_MAX: usize = 1000;

const NOTES: [&str; 5] = [
    "carina: client and server run under carina wrap, over shared memory; user: QEMU's -netdev \
     user, MTU 1500; passt: -netdev stream, MTU 65520; both cards are virtio-net cards of the same \
     VM",
    "ip: TCP over IP packets that travel over flows, between TUN interfaces of guest and host \
     (carina ip)",
    "http: python3 -m http.server and curl, without the time until the first byte",
    "ssh: ssh in the guest prints a file by cat on the host, without the time until the first byte; \
     its processor encrypts, which limits all systems",
    "under TCG the guest's processor is emulated and limits all systems",
];
