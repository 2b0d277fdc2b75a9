//! Tests of clones of a guest that was saved after booting.

use std::path::Path;
use std::time::{Duration, Instant};

use carina_vm::{Machine, NicId, Pool, Running, Templates};

use crate::support::{BOOT, machine, nat_card, ping_gateway};

const LIMIT: Duration = Duration::from_secs(120);

/// Templates in memory that are removed with the test.
fn templates() -> (tempfile::TempDir, Templates) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let templates = Templates::new(directory.path().join("templates")).unwrap();
    (directory, templates)
}

fn small(name: &str, run_dir: &Path) -> (Machine, carina_vm::Cache) {
    let (machine, cache) = machine(name, run_dir);
    (machine.memory_mib(128), cache)
}

fn output_of(vm: &Running, command: &str) -> String {
    let output = vm.run(command).unwrap();
    assert!(output.is_success(), "{command}: {}", output.error_text());
    output.text()
}

#[test]
fn clones_answer_with_identities_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let (_shm, templates) = templates();
    let clone = |name: &str, last| {
        let (machine, cache) = small(name, directory.path());
        let machine = machine
            .nic(nat_card([2, 0xca, 0, 0, 0, last]))
            .ports(1)
            .file("/etc/own file", 0o640, name)
            .command(&format!("echo it is {name} >/tmp/said; echo seen"));
        machine.start_clone(&cache, &templates).unwrap()
    };
    let a = clone("a", 1);
    let b = clone("b", 2);
    for vm in [&a, &b] {
        let times = vm.times().unwrap();
        eprintln!("{}: {times:?}", vm.record().name);
        assert!(times.template <= times.restored && times.running <= times.answered);
    }
    let list = templates.list().unwrap();
    assert_eq!(list.len(), 1, "{list:?}");
    assert_eq!(a.record().template, Some(list[0].key.clone()));
    assert_eq!((list[0].memory_mib, list[0].cards), (128, 1));

    for (vm, name, mac) in [
        (&a, "a", "02:ca:00:00:00:01"),
        (&b, "b", "02:ca:00:00:00:02"),
    ] {
        assert_eq!(output_of(vm, "hostname"), name);
        assert_eq!(output_of(vm, "cat /sys/class/net/eth0/address"), mac);
        assert_eq!(
            output_of(vm, "cat '/etc/own file'; stat -c %a '/etc/own file'"),
            format!("{name}640")
        );
        assert_eq!(output_of(vm, "cat /tmp/said"), format!("it is {name}"));
        assert!(vm.console_text().contains("seen"), "{}", vm.console_text());
        let pinged = ping_gateway(vm, "eth0");
        assert!(pinged.contains("1 packets received"), "{pinged}");
    }
    let drawn = "head -c 16 /dev/urandom | base64; cat /proc/sys/kernel/random/boot_id";
    assert_ne!(output_of(&a, drawn), output_of(&b, drawn));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let clock: u64 = output_of(&b, "date +%s").parse().unwrap();
    assert!(
        now.unwrap().as_secs().abs_diff(clock) < 600,
        "its clock says {clock}"
    );

    // No other clone, nor the template, sees what one clone writes.
    output_of(
        &a,
        "dd if=/dev/zero of=/tmp/large bs=1M count=20 2>/dev/null",
    );
    assert!(output_of(&b, "ls /tmp").contains("said"));
    assert!(!output_of(&b, "ls /tmp").contains("large"));
    let second = a.add_nic(&nat_card([2, 0xca, 0, 0, 1, 1])).unwrap();
    assert_eq!(second, NicId(1));
    assert_eq!(
        a.interface_of([2, 0xca, 0, 0, 1, 1], LIMIT).unwrap(),
        "eth1"
    );
    let c = clone("c", 3);
    assert_eq!(output_of(&c, "ls /tmp"), "said");
    assert_eq!(templates.list().unwrap(), list);

    c.reboot(BOOT).unwrap();
    assert_eq!(output_of(&c, "hostname"), "c");
    drop((a, b, c));
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn machines_of_a_pool_run_as_they_are_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let (_shm, templates) = templates();
    let like = |name: &str| {
        let (machine, cache) = small(name, directory.path());
        (machine.nic(nat_card([2, 0xca, 0, 0, 0, 7])).ports(1), cache)
    };
    let (kind, cache) = like("pool");
    let pool = Pool::new(kind, 1, cache, templates).unwrap();
    pool.wait_ready(1, BOOT).unwrap();
    let (machine, cache) = like("r1");
    let vm = pool
        .take(machine.command("echo it is me >/tmp/said"))
        .unwrap();
    eprintln!("of the pool: {:?}", vm.times());
    assert_eq!(output_of(&vm, "hostname; cat /tmp/said"), "r1\nit is me");
    assert!(ping_gateway(&vm, "eth0").contains("1 packets received"));
    // The machine is found by its new name, and another clone has replaced it.
    pool.wait_ready(1, BOOT).unwrap();
    let names: Vec<String> = carina_vm::list(directory.path())
        .unwrap()
        .into_iter()
        .map(|record| record.name)
        .collect();
    assert_eq!(names, ["pool-1", "r1"]);
    vm.remove_nic(NicId(0), LIMIT).unwrap();
    assert_eq!(
        vm.add_nic(&nat_card([2, 0xca, 0, 0, 1, 7])).unwrap(),
        NicId(0)
    );

    let (other, _) = like("r2");
    let error = pool.take(other.memory_mib(192)).unwrap_err().to_string();
    assert!(error.contains("must have the same memory"), "{error}");
    // If no clone is ready, the machine is cloned.
    let first = pool.take(like("r3").0).unwrap();
    let second = pool.take(like("r4").0).unwrap();
    assert_eq!(
        output_of(&first, "hostname") + &output_of(&second, "hostname"),
        "r3r4"
    );
    assert_eq!(pool.failed(), 0);
    drop((vm, first, second, pool, cache));
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn damaged_template_is_made_anew_and_a_small_room_keeps_one() {
    let directory = tempfile::tempdir().unwrap();
    let (_shm, templates) = templates();
    let templates = templates.room_mib(300);
    let (first, cache) = small("a", directory.path());
    let key = templates.obtain(&cache, &first).unwrap().info().key.clone();
    let path = templates.root().join(&key);

    let state = path.join("state");
    let whole = std::fs::read(&state).unwrap();
    std::fs::write(&state, &whole[..whole.len() / 2]).unwrap();
    let vm = first.start_clone(&cache, &templates).unwrap();
    assert_eq!(output_of(&vm, "hostname"), "a");
    assert_eq!(vm.record().template.as_deref(), Some(key.as_str()));
    drop(vm);

    // A machine of another kind has no room beside a template that is in use.
    let (first, _) = small("a", directory.path());
    let (second, _) = small("b", directory.path());
    let second = second.memory_mib(256);
    let in_use = templates.obtain(&cache, &first).unwrap();
    let error = templates.obtain(&cache, &second).unwrap_err().to_string();
    assert!(error.contains("templates may use 300 MiB"), "{error}");
    drop(in_use);
    let other = templates.obtain(&cache, &second).unwrap();
    let list = templates.list().unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0], *other.info());
    drop(other);
    assert_eq!(templates.remove(&list[0].key[..8]).unwrap(), 1);
    assert!(std::fs::read_dir(templates.root()).unwrap().all(|file| {
        let name = file.unwrap().file_name().into_string().unwrap();
        name == format!("{key}.lock")
    }));
}

#[test]
fn machines_started_at_once_share_one_template() {
    let directory = tempfile::tempdir().unwrap();
    let (_shm, templates) = templates();
    let begun = Instant::now();
    let names = ["a", "b", "c"];
    // A machine ends with the thread that starts it.
    std::thread::scope(|scope| {
        for name in names {
            let (directory, templates) = (directory.path(), &templates);
            scope.spawn(move || {
                let (machine, cache) = small(name, directory);
                let vm = machine.start_clone(&cache, templates).unwrap();
                eprintln!("{name}: {:?}, all in {:?}", vm.times(), begun.elapsed());
                assert_eq!(output_of(&vm, "hostname"), name);
            });
        }
    });
    assert_eq!(templates.list().unwrap().len(), 1);
}
