//! Tests of the image, the command port, and the end of machines.

use std::path::Path;
use std::time::{Duration, Instant};

use carina_vm::{Backend, Model, Nic, Stopped};

use crate::support::{BOOT, machine, up};

#[test]
fn guest_boots_obeys_reboots_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (machine, cache) = machine("a", directory.path());
    let started = Instant::now();
    let machine = machine.file("/etc/given", 0o600, "from outside");
    let vm = up(machine.node_config("# none"), &cache);
    eprintln!(
        "booted in {:?} under {}",
        started.elapsed(),
        vm.record().accel
    );

    assert_eq!(vm.run("hostname").unwrap().text(), "a");
    assert_eq!(vm.run("cat /etc/given").unwrap().text(), "from outside");
    // This image has no node program.
    let wait = "until grep -q 'ended with status 127' /var/log/carina.log; do sleep 1; done";
    assert!(vm.run_within(wait, BOOT).unwrap().is_success());
    assert_eq!(vm.run("cat /etc/carina.toml").unwrap().text(), "# none");
    let failing = vm.run("echo out; echo err >&2; exit 3").unwrap();
    assert_eq!(
        (failing.status, failing.text(), failing.error_text()),
        (3, "out".into(), "err".into())
    );

    let every_byte: Vec<u8> = (0..=255).cycle().take(1000).collect();
    vm.push("/tmp/it's here", &every_byte).unwrap();
    assert_eq!(vm.run("cat \"/tmp/it's here\"").unwrap().stdout, every_byte);

    let large = vm
        .run("dd if=/dev/zero bs=1024 count=100 2>/dev/null")
        .unwrap();
    assert_eq!(large.stdout, vec![0; 100 * 1024]);

    // A long command does not block another: each of the two waits for the other.
    let meet = |own: &str, other: &str| {
        let wait = format!("touch /tmp/{own}; until test -e /tmp/{other}; do sleep 1; done");
        vm.run(&format!("{wait}; echo {own}")).unwrap().text()
    };
    std::thread::scope(|scope| {
        let one = scope.spawn(|| meet("one", "two"));
        assert_eq!(meet("two", "one"), "two");
        assert_eq!(one.join().unwrap(), "one");
    });
    let error = vm
        .run_within("sleep 60", Duration::from_millis(300))
        .unwrap_err();
    assert!(error.to_string().contains("sleep 60"), "{error}");

    assert!(vm.qmp().unwrap().status().unwrap().running);
    vm.reboot(BOOT).unwrap();
    assert!(vm.run("test ! -e \"/tmp/it's here\"").unwrap().is_success());

    let listed = carina_vm::list(directory.path()).unwrap();
    assert_eq!(listed, std::slice::from_ref(vm.record()));
    let pid = vm.pid();
    drop(vm);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn cards_iommu_boot_command_and_module_parameter_exist() {
    let directory = tempfile::tempdir().unwrap();
    let (machine, cache) = machine("b", directory.path());
    let nic = |model| Nic {
        model,
        backend: Backend::User(vec![]),
        mac: None,
    };
    let vm = up(
        machine
            .nic(nic(Model::VirtioNet))
            .nic(nic(Model::E1000))
            .iommu()
            .parameter("virtio_net.napi_tx=0")
            .command("echo 'at boot: 100%' \\n"),
        &cache,
    );
    let cards = vm.run("ls /sys/class/net").unwrap().text();
    assert_eq!(
        cards.split_whitespace().collect::<Vec<_>>(),
        ["eth0", "eth1", "lo"]
    );
    let napi_tx = "cat /sys/module/virtio_net/parameters/napi_tx";
    assert_eq!(vm.run(napi_tx).unwrap().text(), "N");
    assert!(
        vm.run("ls /sys/kernel/iommu_groups/0")
            .unwrap()
            .is_success()
    );
    assert!(vm.run("test -c /dev/vfio/vfio").unwrap().is_success());
    assert!(
        vm.console_text().contains("at boot: 100% n"),
        "{}",
        vm.console_text()
    );
}

#[test]
fn detached_machine_is_found_by_its_record_and_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let (machine, cache) = machine("c", directory.path());
    let vm = up(machine, &cache);
    let pid = vm.pid();
    let record = vm.detach();
    assert!(record.is_alive());
    let (again, _) = crate::support::machine("c", directory.path());
    let error = again.start(&cache).unwrap_err();
    assert!(error.to_string().contains("runs already"), "{error}");
    let stopped = carina_vm::stop(directory.path(), "c", Duration::ZERO).unwrap();
    assert_eq!(stopped, Stopped::Quit);
    assert!(!record.is_alive(), "process {pid} still runs");
    assert!(carina_vm::list(directory.path()).unwrap().is_empty());
}

#[test]
fn guest_powers_itself_off_within_its_grace() {
    let directory = tempfile::tempdir().unwrap();
    let (machine, cache) = machine("g", directory.path());
    let record = up(machine, &cache).detach();
    let stopped = carina_vm::stop(directory.path(), "g", BOOT).unwrap();
    assert_eq!(stopped, Stopped::PoweredOff);
    assert!(!record.is_alive());
}

#[test]
fn machine_that_hangs_is_killed_after_its_grace() {
    let directory = tempfile::tempdir().unwrap();
    let (machine, cache) = machine("h", directory.path());
    let record = up(machine, &cache).detach();
    // A QEMU that is stopped answers nothing.
    let pid = rustix::process::Pid::from_raw(record.pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let stopped = carina_vm::stop(directory.path(), "h", Duration::from_millis(100)).unwrap();
    assert_eq!(stopped, Stopped::Killed);
    assert!(!record.is_alive());
}

#[test]
fn qemu_that_refuses_its_arguments_is_quoted() {
    let directory = tempfile::tempdir().unwrap();
    let (machine, cache) = machine("d", directory.path());
    let vm = machine
        .extra_args(["-device", "no-such-device"])
        .start(&cache)
        .unwrap();
    let error = vm.wait_ready(BOOT).unwrap_err();
    assert!(error.to_string().contains("no-such-device"), "{error}");
}

#[test]
fn panic_of_the_guests_kernel_ends_the_wait() {
    let directory = tempfile::tempdir().unwrap();
    let (machine, cache) = machine("p", directory.path());
    let vm = machine.parameter("rdinit=/no-init").start(&cache).unwrap();
    let error = vm.wait_ready(BOOT).unwrap_err().to_string();
    assert!(
        error.starts_with("machine p: the guest's kernel panicked: "),
        "{error}"
    );
}

#[test]
fn machine_that_waits_for_a_node_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (machine, cache) = machine("e", directory.path());
    let vm = machine
        .ivshmem(directory.path().join("e.sock"))
        .start(&cache)
        .unwrap();
    let error = vm.wait_ready(Duration::from_secs(2)).unwrap_err();
    assert!(error.to_string().contains("node"), "{error}");
}
