//! A machine under QEMU that boots Debian's Xen, with Carina's guest as Dom0.

use std::fs;
use std::path::Path;
use std::time::Duration;

use carina_vm::{Accel, Boot, Image, Kernel, Machine, Running, XenHost};

use crate::house::{BOOT, CARINA, cache};

/// How long one step may take: a domain under an emulated Xen boots in half a minute on a quiet
/// machine, and takes five times as long beside other tests.
const STEP: Duration = Duration::from_secs(480);

/// Xen and its tools; `None`, with a line that says so, if they cannot be had here.
pub(super) fn xen_host() -> Option<XenHost> {
    XenHost::obtain(&cache())
        .inspect_err(|error| {
            println!("SKIP: packages of Xen 4.17 (xen-hypervisor-4.17-amd64): {error}");
        })
        .ok()
}

/// Dom0 of a machine whose hypervisor is Xen.
pub(super) struct Dom0 {
    vm: Running,
    _directory: tempfile::TempDir,
}

/// What Dom0 has besides Xen and Carina.
#[derive(Default)]
pub(super) struct Extras<'a> {
    /// Programs, which may use libraries of Xen, and their paths in Dom0.
    pub(super) programs: &'a [(&'a str, &'a Path)],
    /// Modules that Dom0 loads.
    pub(super) modules: &'a [&'a str],
    /// Modules for domains.
    pub(super) of_domains: &'a [&'a str],
}

impl Dom0 {
    /// Boots Xen; `None` if the packages of Xen cannot be had here.
    pub(super) fn boot() -> Option<Dom0> {
        Some(Dom0::boot_with(&xen_host()?, &Extras::default()))
    }

    /// Like [`Dom0::boot`], with more in Dom0.
    pub(super) fn boot_with(xen: &XenHost, extras: &Extras<'_>) -> Dom0 {
        let kernel = Kernel::obtain(&cache()).unwrap();
        let image = dom0_image(xen, extras, &kernel);
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
        let cpu = std::env::var("CARINA_XEN_CPU").unwrap_or_else(|_| "qemu64".to_owned());
        let machine = Machine::new("xen", directory.path())
            .unwrap()
            .boot(boot)
            // Xen does not boot on all models of processors of QEMU.
            .accel(Accel::Tcg)
            .extra_args(["-cpu", cpu.as_str()])
            .memory_mib(1800)
            .cpus(2)
            .dies_with_parent();
        let modules = XenHost::MODULES.iter().chain(extras.modules);
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

    /// Starts a domain with a node and an application that echoes, `echo.` and its name.
    pub(super) fn runs_domain(&self, domain: &str) {
        self.does(&format!(
            "carina vm run {domain} --hypervisor xen --memory 200 --command \
             'carina ping --listen echo.{domain} --wait 200s >/tmp/echo.log 2>&1 &'"
        ));
    }

    pub(super) fn starts_node(&self) {
        self.does("carina node >>/var/log/carina.log 2>&1 </dev/null & echo $! >/run/node.pid");
        self.until("the node of Dom0 answers", "carina ipcp list");
    }

    /// Runs a command that must succeed, and returns its output.
    pub(super) fn does(&self, command: &str) -> String {
        self.does_within(command, STEP)
    }

    /// Like [`Dom0::does`], with another limit than that of a step.
    pub(super) fn does_within(&self, command: &str, limit: Duration) -> String {
        let output = self.vm.run_within(command, limit).unwrap();
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
    pub(super) fn starts(&self, command: &str) {
        self.does(&format!("{command} >/tmp/started.log 2>&1 </dev/null &"));
    }

    pub(super) fn pings(&self, name: &str, size: &str, count: u32) {
        self.does(&format!(
            "carina ping {name} --wait 200s -s {size} -c {count} -i 1ms -q -W 200s"
        ));
    }

    /// Runs a command on the console of a domain; it must succeed.
    pub(super) fn in_domain(&self, domain: &str, command: &str) {
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

    pub(super) fn until(&self, what: &str, command: &str) {
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
    pub(super) fn channels(&self) -> usize {
        let text = self.does("/usr/lib/xen-4.17/bin/lsevtchn 0 | grep -c Interdomain; true");
        text.trim().parse().unwrap()
    }

    /// Number of granted pages that a domain maps.
    pub(super) fn mapped_grants(&self) -> usize {
        let text = self.does("xl debug-keys g; xl dmesg | grep -c 'pin='; true");
        text.trim().parse().unwrap()
    }

    fn logs(&self) -> String {
        let commands = "carina ipcp list; tail -n 20 /var/log/carina.log; xl list; \
             tail -n 8 /var/log/xen/guest-*.log";
        let told = self.vm.run_within(commands, STEP);
        told.map_or_else(|error| error.to_string(), |output| output.text())
    }
}

/// The image of Dom0: Carina's guest with Xen, and what `extras` names.
fn dom0_image(xen: &XenHost, extras: &Extras<'_>, kernel: &Kernel) -> Image {
    let guest = carina_vm::guest_program(Path::new(CARINA));
    let image = Image::new()
        .program("/bin/carina", Path::new(CARINA))
        .and_then(|image| image.program("/bin/carina-guest", &guest))
        .and_then(|image| xen.tools(image))
        .unwrap();
    let image = extras
        .programs
        .iter()
        .fold(image, |image, (path, program)| {
            xen.program(image, path, program).unwrap()
        });
    let modules = extras.modules.iter().chain(extras.of_domains);
    let image = modules.fold(image, |image, name| image.module(name));
    // The kernel of the domains, where `carina vm run` looks for it. The domains have
    // the same modules as Dom0.
    let release = &kernel.release;
    let kernels = "/root/.cache/carina/kernel";
    let builtin = fs::read(kernel.modules.join("modules.builtin")).unwrap();
    image
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
        )
}
