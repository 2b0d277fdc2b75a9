//! Tunnels of other projects between two namespaces: boringtun (WireGuard), OpenVPN and tinc.
//!
//! ```text
//!   client -- tun -- daemon == UDP over lan1, or lan2 if lan1 is down == daemon -- tun -- server
//! ```

use std::fs::Permissions;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use carina_namespaces::{ChildProcess, Namespace, run_within};
use carina_scratch::Scratch;
use carina_sys::end_with_parent;

use super::pair::LINKS;
use crate::error::{Attempt, Error, Result};
use crate::in_namespace::within;
use crate::installed::is_installed;

/// Name of Cloudflare's WireGuard in user space.
pub(super) const BORINGTUN: &str = "boringtun";
/// Name of OpenVPN, with AES-256-GCM and without its kernel module.
pub(super) const OPENVPN: &str = "openvpn";
/// Name of tinc, with its default cipher.
pub(super) const TINC: &str = "tinc";

/// The tunnels, and the programs that each needs.
const NEEDED: [(&str, &[&str]); 3] = [
    (BORINGTUN, &["boringtun-cli", "wg"]),
    (OPENVPN, &["openvpn", "openssl"]),
    (TINC, &["tincd"]),
];

/// The server's address on the interface of a tunnel.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 8, 2);

/// A tunnel between two namespaces. All of it ends when the value is dropped.
pub(super) struct Tunnel {
    /// Part of names, unique on the host.
    id: String,
    names: [String; 2],
    // The daemons end before their files and namespaces.
    daemons: Vec<ChildProcess>,
    directory: Scratch,
    namespaces: [Namespace; 2],
}

/// The tunnels that are installed, and a note for each that is not.
pub(super) fn installed() -> (Vec<&'static str>, Vec<String>) {
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    for (system, programs) in NEEDED {
        match programs.iter().find(|program| !is_installed(program)) {
            None => found.push(system),
            Some(program) => notes.push(format!("{system}: left out: no program {program} here")),
        }
    }
    (found, notes)
}

impl Tunnel {
    /// Starts the daemons of a system, and waits until the tunnel carries packets.
    pub(super) fn start(system: &str) -> Result<Tunnel> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}{}", std::process::id(), letter(number));
        let names = SIDES.map(|side| format!("bvpn{id}-{side}"));
        let namespaces = [Namespace::new(&names[0])?, Namespace::new(&names[1])?];
        join(&namespaces)?;
        let mut tunnel = Tunnel {
            directory: Scratch::new(&format!("ip-{system}-{id}"))?,
            id,
            names,
            daemons: Vec::new(),
            namespaces,
        };
        match system {
            BORINGTUN => tunnel.start_boringtun()?,
            OPENVPN => tunnel.start_openvpn()?,
            TINC => tunnel.start_tinc()?,
            other => return Err(Error::NoAnswer(format!("there is no tunnel {other}"))),
        }
        tunnel.wait_until_it_carries(system)?;
        Ok(tunnel)
    }

    /// The names of the two namespaces: the client's and the server's.
    pub(super) fn namespaces(&self) -> [&str; 2] {
        [&self.names[0], &self.names[1]]
    }

    /// Takes the first link down at the client's side: its packets go over the second.
    pub(super) fn take_down_first(&self) -> Result<()> {
        Ok(self.namespaces[0].ip(&["link", "set", LINKS[0], "down"])?)
    }

    fn start_boringtun(&mut self) -> Result<()> {
        let mut keys = Vec::new();
        for side in SIDES {
            let key = output(Command::new("wg").arg("genkey"))?;
            let file = self.directory.path().join(format!("key-{side}"));
            std::fs::write(&file, &key).attempt("writing a key of WireGuard")?;
            let derive = format!("wg pubkey < {}", file.display());
            keys.push(
                output(Command::new("sh").args(["-c", &derive]))?
                    .trim()
                    .to_owned(),
            );
        }
        for (n, side) in SIDES.iter().enumerate() {
            let tun = self.tun(n);
            let mut daemon = self.namespaces[n].command("boringtun-cli");
            daemon.args(["--foreground", "--disable-drop-privileges"]);
            // A connected socket would not follow a peer that moves.
            daemon.args(["--disable-connected-udp", "--verbosity", "error", &tun]);
            self.spawn(daemon, "boringtun-cli")?;
            let socket = format!("/var/run/wireguard/{tun}.sock");
            until("the daemon to listen", || Path::new(&socket).exists())?;
            let key = self.directory.path().join(format!("key-{side}"));
            let key = key.to_string_lossy().into_owned();
            let other = format!("10.9.8.{}/32", 2 - n);
            let mut set = Command::new("wg");
            set.args(["set", &tun, "listen-port", PORT, "private-key", &key]);
            set.args(["peer", &keys[1 - n], "allowed-ips", &other]);
            if n == 0 {
                set.args(["endpoint", &format!("{OUTER}:{PORT}")]);
            }
            output(&mut set)?;
            self.set_up(n)?;
        }
        Ok(())
    }

    fn start_openvpn(&mut self) -> Result<()> {
        let mut prints = Vec::new();
        for side in SIDES {
            let path = |name: &str| self.directory.path().join(format!("{name}-{side}"));
            let mut make = Command::new("openssl");
            make.args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
            ]);
            make.args(["-nodes", "-days", "1", "-subj", "/CN=bench", "-keyout"]);
            output(make.arg(path("key")).arg("-out").arg(path("cert")))?;
            let mut print = Command::new("openssl");
            print.args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]);
            let text = output(print.arg(path("cert")))?;
            let hex = text.trim().rsplit_once('=').map(|(_, hex)| hex.to_owned());
            let wrong = || Error::NoAnswer(format!("openssl has printed {text}"));
            prints.push(hex.ok_or_else(wrong)?);
        }
        for (n, side) in SIDES.iter().enumerate() {
            let path = |name: &str| self.directory.path().join(format!("{name}-{side}"));
            let mut daemon = self.namespaces[n].command("openvpn");
            daemon.args(["--dev", &self.tun(n), "--dev-type", "tun", "--proto", "udp"]);
            daemon.args(["--port", PORT, "--float", "--disable-dco", "--verb", "1"]);
            let addresses = [format!("10.9.8.{}", n + 1), format!("10.9.8.{}", 2 - n)];
            daemon.arg("--ifconfig").args(addresses);
            daemon.args(["--cipher", "AES-256-GCM", "--data-ciphers", "AES-256-GCM"]);
            daemon
                .arg("--cert")
                .arg(path("cert"))
                .arg("--key")
                .arg(path("key"));
            daemon.args(["--peer-fingerprint", &prints[1 - n]]);
            if n == 0 {
                daemon.args(["--tls-client", "--remote", OUTER]);
            } else {
                daemon.args(["--tls-server", "--dh", "none", "--local", OUTER]);
            }
            self.spawn(daemon, "openvpn")?;
        }
        Ok(())
    }

    fn start_tinc(&mut self) -> Result<()> {
        for (n, side) in SIDES.iter().enumerate() {
            let path = self.directory.path().join(side);
            let hosts = path.join("hosts");
            std::fs::create_dir_all(&hosts).attempt("making a directory of tinc")?;
            let connect = if n == 0 { "ConnectTo = b\n" } else { "" };
            let config = format!("Name = {side}\nInterface = {}\n{connect}", self.tun(n));
            let address = if n == 1 {
                format!("Address = {OUTER}\n")
            } else {
                String::new()
            };
            let host = format!("Subnet = 10.9.8.{}/32\nPort = {PORT}\n{address}", n + 1);
            let up = format!(
                "#!/bin/sh\nip address add 10.9.8.{}/24 dev $INTERFACE\n\
                 ip link set $INTERFACE up\n",
                n + 1
            );
            for (file, text) in [
                (path.join("tinc.conf"), config),
                (hosts.join(side), host),
                (path.join("tinc-up"), up),
            ] {
                std::fs::write(&file, text).attempt("writing a file of tinc")?;
            }
            std::fs::set_permissions(path.join("tinc-up"), Permissions::from_mode(0o755))
                .attempt("making a script of tinc executable")?;
            output(Command::new("tincd").arg("-c").arg(&path).arg("-K2048"))?;
        }
        let directory = self.directory.path();
        for (side, other) in [("a", "b"), ("b", "a")] {
            let from = directory.join(side).join("hosts").join(side);
            let to = directory.join(other).join("hosts").join(side);
            std::fs::copy(from, to).attempt("copying a key of tinc")?;
        }
        for (n, side) in SIDES.iter().enumerate() {
            let path = self.directory.path().join(side);
            let mut daemon = self.namespaces[n].command("tincd");
            daemon
                .arg("-c")
                .arg(&path)
                .args(["-D", "--pidfile"])
                .arg(path.join("pid"));
            self.spawn(daemon, "tincd")?;
        }
        Ok(())
    }

    /// The name of an interface: the sockets of boringtun have it, so it is unique on the host.
    fn tun(&self, n: usize) -> String {
        format!("bv{}{}", self.id, SIDES[n])
    }

    /// Gives the interface of a tunnel its address.
    fn set_up(&self, n: usize) -> Result<()> {
        let tun = self.tun(n);
        let address = format!("10.9.8.{}/24", n + 1);
        self.namespaces[n].ip(&["address", "add", &address, "dev", &tun])?;
        Ok(self.namespaces[n].ip(&["link", "set", &tun, "mtu", "1420", "up"])?)
    }

    fn spawn(&mut self, mut command: Command, what: &str) -> Result<()> {
        let log = std::fs::File::create(self.directory.path().join(format!("{what}.log")));
        let log = log.attempt("making a log")?;
        end_with_parent(&mut command).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(log);
        self.daemons.push(ChildProcess::start(&mut command, what)?);
        Ok(())
    }

    fn wait_until_it_carries(&self, system: &str) -> Result<()> {
        let at = SocketAddr::from((SERVER, UNUSED_PORT));
        until(&format!("{system} to carry a packet"), || {
            let connected = within(&self.names[0], || Ok(TcpStream::connect_timeout(&at, ONCE)));
            // The answer of the server's kernel has crossed the tunnel.
            matches!(connected, Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused)
        })
    }
}

/// Joins client and server by two links.
fn join(namespaces: &[Namespace; 2]) -> Result<()> {
    for (n, link) in LINKS.iter().enumerate() {
        namespaces[0].connect(link, &namespaces[1], link)?;
        for (side, namespace) in namespaces.iter().enumerate() {
            let address = format!("10.8.{}.{}/24", n + 1, side + 1);
            namespace.ip(&["address", "add", &address, "dev", link])?;
        }
        // The server has one address over both links; the first is preferred while it is up.
        let (via, metric) = (format!("10.8.{}.2", n + 1), (n + 1).to_string());
        let outer = format!("{OUTER}/32");
        namespaces[0].ip(&["route", "add", &outer, "via", &via, "metric", &metric])?;
    }
    namespaces[1].ip(&["link", "set", "lo", "up"])?;
    namespaces[1].ip(&["address", "add", &format!("{OUTER}/32"), "dev", "lo"])?;
    // The server answers from that address, or boringtun would make the address of one link its
    // peer's, and lose the peer with the link.
    for (n, link) in LINKS.iter().enumerate() {
        let subnet = format!("10.8.{}.0/24", n + 1);
        namespaces[1].ip(&["route", "replace", &subnet, "dev", link, "src", OUTER])?;
    }
    Ok(())
}

/// The letter of a tunnel in names of interfaces, which are short.
fn letter(number: u32) -> char {
    char::from(b'a' + (number % 26) as u8)
}

/// Number of the next tunnel.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Runs a program that must succeed, and returns its standard output.
fn output(command: &mut Command) -> Result<String> {
    let what = command.get_program().to_string_lossy().into_owned();
    let output = run_within(command, &what, START)?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(Error::NoAnswer(format!("{what} fails: {printed}{error}")))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + START;
    while !holds() {
        if Instant::now() > deadline {
            return Err(Error::NoAnswer(format!("waited {START:?} for {what}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

const SIDES: [&str; 2] = ["a", "b"];
/// The server's address over both links.
const OUTER: &str = "10.8.0.2";
const PORT: &str = "51820";
/// How long a tunnel may take to start.
const START: Duration = Duration::from_secs(30);
/// How long one attempt to reach the server may take.
const ONCE: Duration = Duration::from_secs(1);
/// A port at which no program of the server listens.
const UNUSED_PORT: u16 = 9;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn server_answers_from_its_address_over_both_links() {
        let names = SIDES.map(|side| format!("bvpn{}t-{side}", std::process::id()));
        let made = names.each_ref().map(|name| Namespace::new(name));
        let [Ok(client), Ok(server)] = made else {
            return println!("SKIP: network namespaces are made by root");
        };
        let namespaces = [client, server];
        join(&namespaces).unwrap();
        let bind = |name: &str| within(name, || Ok(UdpSocket::bind("0.0.0.0:0").unwrap())).unwrap();
        let [client, server] = names.each_ref().map(|name| bind(name));
        client.set_read_timeout(Some(START)).unwrap();
        server.set_read_timeout(Some(START)).unwrap();
        let at: SocketAddr = (
            OUTER.parse::<Ipv4Addr>().unwrap(),
            server.local_addr().unwrap().port(),
        )
            .into();
        let mut sources = Vec::new();
        for link in LINKS {
            client.send_to(b"?", at).unwrap();
            let (_, source) = server.recv_from(&mut [0; 8]).unwrap();
            server.send_to(b"!", source).unwrap();
            let (_, answered_by) = client.recv_from(&mut [0; 8]).unwrap();
            assert_eq!(answered_by, at, "{link}");
            sources.push(source.ip().to_string());
            namespaces[0].ip(&["link", "set", link, "down"]).unwrap();
        }
        assert_eq!(sources, ["10.8.1.1", "10.8.2.1"]);
    }
}
