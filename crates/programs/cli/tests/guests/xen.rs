//! VMPI over Xen, on real parts: a machine under QEMU boots Debian's Xen with Carina's guest as
//! Dom0; `carina vm run --hypervisor xen` starts domains there. One boot serves all cases.

use std::fs;
use std::path::Path;
use std::time::Duration;

use carina_vm::{Accel, Boot, Image, Kernel, Machine, Running, XenHost};

use crate::house::{BOOT, CARINA, cache, until};

/// How long one step may take: a domain under an emulated Xen boots in half a minute on a quiet
/// machine, and takes five times as long beside other tests.
const STEP: Duration = Duration::from_secs(480);

#[test]
#[ignore = "boots three domains under an emulated Xen: ten minutes or more"]
fn nodes_in_domains_of_xen_form_flows_and_survive_kills() {
    let xen = match XenHost::obtain(&cache()) {
        Ok(xen) => xen,
        Err(error) => {
            println!("SKIP: packages of Xen 4.17 (xen-hypervisor-4.17-amd64): {error}");
            return;
        }
    };
    let dom0 = Dom0::boot(&xen);
    dom0.starts_node();
    let channels = dom0.channels();
    for domain in ["a", "b"] {
        // A PV domain: QEMU's processor model has no nested paging, which PVH needs.
        dom0.does(&format!(
            "carina vm run {domain} --hypervisor xen --memory 200 --command \
             'carina ping --listen echo.{domain} --wait 200s >/tmp/echo.log 2>&1 &'"
        ));
    }
    domains_are_reached_by_name(&dom0);
    domains_reach_each_other_through_a_normal_dif(&dom0);
    node_of_dom0_is_killed(&dom0);
    node_of_a_domain_is_killed(&dom0);
    domain_is_destroyed(&dom0);
    user_gets_lines_for_a_domain_of_their_own(&dom0);
    nothing_is_left(&dom0, channels);
}

fn domains_are_reached_by_name(dom0: &Dom0) {
    for (size, count) in [("0", 3), ("64", 30), ("1400", 30), ("64K", 5), ("1M", 2)] {
        for domain in ["a", "b"] {
            dom0.pings(&format!("echo.{domain}"), size, count);
        }
    }
    dom0.starts("carina ping --listen echo.host");
    dom0.in_domain(
        "a",
        "carina ping echo.host --wait 200s -c 10 -i 1ms -q -s 1400 -W 200s",
    );
}

/// Figure 4b of "Reducing Complexity of Virtual Machine Networking", on Xen.
fn domains_reach_each_other_through_a_normal_dif(dom0: &Dom0) {
    dom0.does("carina dif create net --over hv.a,hv.b");
    for domain in ["a", "b"] {
        let join = format!("carina dif join net --over hv.{domain} --wait 200s");
        dom0.in_domain(domain, &join);
    }
    dom0.in_domain("b", "(carina ping --listen inner.b >/tmp/inner.log 2>&1 &)");
    dom0.in_domain(
        "a",
        "carina ping inner.b --wait 200s -c 10 -i 1ms -q -s 1400 -W 200s",
    );
    for domain in ["a", "b"] {
        dom0.in_domain(domain, "carina dif leave net");
    }
    dom0.does("carina dif leave net");
}

fn node_of_dom0_is_killed(dom0: &Dom0) {
    dom0.does("kill -9 $(cat /run/node.pid)");
    dom0.starts_node();
    dom0.pings("echo.a", "1400", 20);
}

fn node_of_a_domain_is_killed(dom0: &Dom0) {
    // The guest's first process restarts the node.
    dom0.in_domain(
        "a",
        "kill -9 $(pidof carina | tr ' ' '\\n' | sort -n | head -n 1)",
    );
    dom0.until(
        "the name of the killed node is gone",
        "! carina app list | grep -qw echo.a",
    );
    dom0.in_domain(
        "a",
        "(carina ping --listen echo.again --wait 200s >/tmp/again.log 2>&1 &)",
    );
    dom0.pings("echo.again", "1400", 20);
    // The other domain has noticed nothing.
    dom0.pings("echo.b", "64", 5);
}

fn domain_is_destroyed(dom0: &Dom0) {
    let id = dom0.does("xl domid b");
    let path = format!("/local/domain/{}", id.trim());
    dom0.does("xl destroy b");
    dom0.until(
        "the destroyed domain is gone, which needs its memory unmapped",
        "! xl list | tail -n +3 | grep -qw -e b -e '(null)'",
    );
    dom0.does(&format!("! xenstore-read {path}"));
    dom0.until(
        "the link of b is down",
        "carina ipcp list | grep -w b | grep -qw down",
    );
    // The port waits for a domain of the same name.
    dom0.does(
        "carina vm run b --hypervisor xen --memory 200 --command \
         'carina ping --listen echo.b2 --wait 200s >/tmp/echo.log 2>&1 &'",
    );
    dom0.pings("echo.b2", "1400", 10);
    dom0.does("carina vm stop b");
}

fn user_gets_lines_for_a_domain_of_their_own(dom0: &Dom0) {
    let lines = dom0.does("carina vm args own --vmpi xen");
    assert!(lines.contains("name = \"own\""), "{lines}");
    dom0.does("carina vm stop own");
}

/// After all domains have ended, Dom0 has as many event channels as before, maps no grant, and the
/// xenstore has no directory of a domain.
fn nothing_is_left(dom0: &Dom0, channels: usize) {
    dom0.does("carina vm stop a");
    dom0.until(
        "only Dom0 runs",
        "test $(xl list | tail -n +2 | wc -l) = 1 && \
         test \"$(xenstore-list /local/domain)\" = 0",
    );
    dom0.does("kill $(cat /run/node.pid); wait");
    let left = until(Duration::from_secs(30), || {
        (dom0.channels() <= channels).then_some(())
    });
    assert!(
        left.is_some(),
        "{} channels, {channels} before",
        dom0.channels()
    );
    let grants = dom0.does("xl debug-keys g; xl dmesg | grep -c 'pin='; true");
    assert_eq!(grants.trim(), "0", "grants that are still mapped");
}

/// Dom0 of a machine whose hypervisor is Xen.
struct Dom0 {
    vm: Running,
    _directory: tempfile::TempDir,
}

impl Dom0 {
    fn boot(xen: &XenHost) -> Dom0 {
        let kernel = Kernel::obtain(&cache()).unwrap();
        let guest = carina_vm::guest_program(Path::new(CARINA));
        let image = Image::new()
            .program("/bin/carina", Path::new(CARINA))
            .and_then(|image| image.program("/bin/carina-guest", &guest))
            .and_then(|image| xen.tools(image))
            .unwrap();
        // The kernel of the domains, where `carina vm run` looks for it. Its modules are those of
        // Dom0.
        let release = &kernel.release;
        let kernels = "/root/.cache/carina/kernel";
        let builtin = fs::read(kernel.modules.join("modules.builtin")).unwrap();
        let image = image
            .file(
                &format!("{kernels}/boot/vmlinux-{release}"),
                0o644,
                fs::read(&kernel.image).unwrap(),
            )
            .file(&format!("{kernels}/boot/vmlinuz-{release}"), 0o644, "")
            .file("/lib/modules/modules.builtin", 0o644, builtin)
            .file(
                "/etc/kernels",
                0o755,
                format!(
                    "#!/bin/sh\nmkdir -p {kernels}/lib/modules\n\
                     ln -s /lib/modules {kernels}/lib/modules/{release}\n"
                ),
            );
        let initramfs = image.build(&cache(), &kernel).unwrap();
        let boot = Boot::Xen {
            hypervisor: xen.hypervisor(),
            options: "dom0_mem=1100M,max:1100M loglvl=warning guest_loglvl=warning".into(),
            kernel: kernel.image,
            initramfs,
        };
        let directory = tempfile::Builder::new()
            .prefix("carina-xen-")
            .tempdir()
            .unwrap();
        let machine = Machine::new("xen", directory.path())
            .unwrap()
            .boot(boot)
            // Xen does not boot on all models of processors of QEMU.
            .accel(Accel::Tcg)
            .extra_args(["-cpu", "qemu64"])
            .memory_mib(1800)
            .cpus(2)
            .dies_with_parent();
        let modules = XenHost::MODULES.iter();
        let machine = modules.fold(machine, |machine, name| machine.module(name));
        let vm = machine.start(&cache()).unwrap();
        vm.wait_ready(BOOT).unwrap();
        let dom0 = Dom0 {
            vm,
            _directory: directory,
        };
        dom0.does("sh /etc/kernels && sh /sbin/start-xen");
        dom0
    }

    fn starts_node(&self) {
        self.does("carina node >>/var/log/carina.log 2>&1 </dev/null & echo $! >/run/node.pid");
        self.until("the node of Dom0 answers", "carina ipcp list");
    }

    /// Runs a command that must succeed, and returns its output.
    fn does(&self, command: &str) -> String {
        let output = self.vm.run_within(command, STEP).unwrap();
        assert!(
            output.is_success(),
            "in Dom0: {command}: status {}: {} {}\n{}",
            output.status,
            output.text(),
            output.error_text(),
            self.logs(),
        );
        output.text()
    }

    /// Starts a command in the background.
    fn starts(&self, command: &str) {
        self.does(&format!("{command} >/tmp/started.log 2>&1 </dev/null &"));
    }

    fn pings(&self, name: &str, size: &str, count: u32) {
        self.does(&format!(
            "carina ping {name} --wait 200s -s {size} -c {count} -i 1ms -q -W 200s"
        ));
    }

    /// Runs a command on the console of a domain; it must succeed.
    fn in_domain(&self, domain: &str, command: &str) {
        let mark = format!(
            "mark-{}",
            self.does("cat /proc/sys/kernel/random/uuid").trim()
        );
        // The command line itself, which the console echoes, has the two words of the mark apart.
        let line = format!("{{ {command}; }} && echo \"{mark}\"-done || echo \"{mark}\"-failed");
        self.does(&format!(
            "echo '{}' >\"$(xenstore-read /local/domain/$(xl domid {domain})/console/tty)\"",
            line.replace('\'', "'\\''")
        ));
        let log = format!("/var/log/xen/guest-{domain}.log");
        let looks = format!("grep -a '{mark}-[df]' {log}");
        let ended = self.polls(&looks);
        assert!(
            ended.is_some_and(|text| text.contains("-done")),
            "in domain {domain}: {command}\n{}\n{}",
            self.does(&format!("tail -n 30 {log}")),
            self.logs()
        );
    }

    fn until(&self, what: &str, command: &str) {
        let is_so = self.polls(command);
        assert!(is_so.is_some(), "not in time: {what}\n{}", self.logs());
    }

    /// Repeats a command until it succeeds, and returns its output. Dom0 itself repeats it, once a
    /// second: each command from outside costs the emulated processors more than the sleep.
    fn polls(&self, command: &str) -> Option<String> {
        let seconds = STEP.as_secs() / 2;
        let poll =
            format!("for i in $(seq {seconds}); do ( {command} ) && exit 0; sleep 1; done; exit 1");
        let output = self.vm.run_within(&poll, STEP).unwrap();
        output.is_success().then(|| output.text())
    }

    /// Number of event channels of Dom0.
    fn channels(&self) -> usize {
        let text = self.does("/usr/lib/xen-4.17/bin/lsevtchn 0 | grep -c Interdomain; true");
        text.trim().parse().unwrap()
    }

    fn logs(&self) -> String {
        let commands = "carina ipcp list; tail -n 20 /var/log/carina.log; xl list; \
             tail -n 8 /var/log/xen/guest-*.log";
        let told = self.vm.run_within(commands, STEP);
        told.map_or_else(|error| error.to_string(), |output| output.text())
    }
}
