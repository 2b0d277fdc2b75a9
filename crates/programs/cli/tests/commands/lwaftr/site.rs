//! A customer, an AFTR and a host of the Internet, each in a namespace of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::commands::node::CARINA;
use crate::room::Room;
use crate::traffic::{FAR, OWN, PATIENCE};

/// The customer's end of the tunnel: a tunnel of apps, because not every kernel has one.
const B4: &str = include_str!("../../../../../../examples/lwaftr/b4.toml");

/// `own` has the customer's address; the Internet is one host.
pub(crate) fn configuration(internal_mtu: u16, b4: &str) -> String {
    format!(
        "softwire-config {{ instance {{ device a; queue {{ id 0;\n\
         external-interface {{ ip 10.9.9.1; mac 02:00:00:00:00:e4; next-hop {{ ip {FAR}; }} }}\n\
         internal-interface {{ ip fd00:1::1; mac 02:00:00:00:00:e6;\n\
         next-hop {{ ip fd00:1::b4; }} }} }} }}\n\
         external-interface {{ mtu 1500; }} internal-interface {{ mtu {internal_mtu}; }}\n\
         binding-table {{ softwire {{ ipv4 {OWN}; psid 0; b4-ipv6 {b4}; br-address fd00:2::1;\n\
         port-set {{ psid-length 0; }} }} }} }}\n"
    )
}

pub(crate) struct Site {
    pub customer: Room,
    pub aftr: Room,
    pub far: Room,
    pub run: tempfile::TempDir,
    pub children: Vec<Child>,
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Site {
    /// A customer whose tunnel is a graph of apps.
    pub(crate) fn new() -> Option<Site> {
        let mut site = Site::without_tunnel()?;
        let graph = site.run.path().join("b4.toml");
        fs::write(&graph, B4).unwrap();
        let mut command = site.command(&["graph", "run", graph.to_str().unwrap()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = site.customer.run(move || command.spawn().unwrap());
        site.children.push(child);
        let end = Instant::now() + PATIENCE;
        while !site.customer.run(|| carina_netdev::interface_exists("b4")) {
            assert!(Instant::now() < end, "no interface b4");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        site.address_tunnel();
        Some(site)
    }

    /// A customer whose tunnel is the kernel's.
    pub(crate) fn of_kernel() -> Option<Site> {
        let site = Site::without_tunnel()?;
        let made = site.customer.run(|| {
            let mut command = Command::new("ip");
            command.args(["-6", "tunnel", "add", "b4", "mode", "ipip6"]);
            command.args(["local", "fd00:1::b4", "remote", "fd00:2::1", "dev", "wan"]);
            // With the tunnel encapsulation limit that Linux sends by default.
            command.output()
        });
        if !made.is_ok_and(|made| made.status.success()) {
            println!("SKIP: this kernel has no tunnels of IPv4 in IPv6 (ip6tnl)");
            return None;
        }
        site.customer.ip("address add fd00:1::b4/64 dev wan nodad");
        site.customer.ip("route add fd00:2::1/128 via fd00:1::1");
        site.customer.ip("link set b4 mtu 1460");
        site.address_tunnel();
        Some(site)
    }

    fn address_tunnel(&self) {
        self.customer.ip(&format!("address add {OWN}/32 dev b4"));
        self.customer.ip("link set b4 up");
        self.customer.ip("route add default dev b4");
    }

    /// A customer whose end of the tunnel is yet to be made.
    pub(crate) fn without_tunnel() -> Option<Site> {
        let site = Site {
            customer: Room::new()?,
            aftr: Room::new()?,
            far: Room::new()?,
            run: tempfile::tempdir().unwrap(),
            children: Vec::new(),
        };
        site.customer.join("wan", &site.aftr, "inside", 1600);
        site.far.join("far0", &site.aftr, "outside", 1500);
        // The AFTR has a MAC address of its own.
        for interface in ["inside", "outside"] {
            site.aftr.ip(&format!("link set {interface} promisc on"));
        }
        site.customer.ip("link set wan promisc on");
        site.far.ip(&format!("address add {FAR}/32 dev far0"));
        site.far.ip("route add 10.9.9.1 dev far0");
        site.far
            .ip(&format!("route add {OWN} via 10.9.9.1 dev far0"));
        Some(site)
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(self.run.path()).args(words);
        command
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.run.path().join("lwaftr.conf")
    }

    pub(crate) fn write(&self, text: &str) {
        // A file that is half written would be read so.
        let new = self.run.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    pub(crate) fn start(&mut self, text: &str) {
        self.start_with(text, &[]);
    }

    pub(crate) fn start_with(&mut self, text: &str, more: &[&str]) {
        self.write(text);
        let file = self.file();
        let words = [
            "lwaftr", "run", "--v4", "outside", "--v6", "inside", "--conf",
        ];
        let mut command = self.command(&words);
        command
            .arg(file)
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = self.aftr.run(move || command.spawn().unwrap());
        self.children.push(child);
    }

    pub(crate) fn reload(&self) {
        let pid = rustix::process::Pid::from_child(self.children.last().unwrap());
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    }

    /// Counters of the AFTR that runs, once `is_there` finds in them what it wants.
    pub(crate) fn counters(&self, is_there: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let output = self
                .command(&["--json", "lwaftr", "query"])
                .output()
                .unwrap();
            let all: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let one = all.as_object().and_then(|all| all.values().next().cloned());
            if let Some(one) = one.filter(&is_there) {
                return one;
            }
            assert!(Instant::now() < end, "{all}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
