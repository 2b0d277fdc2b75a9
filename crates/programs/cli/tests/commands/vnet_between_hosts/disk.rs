//! Test of a VM with a disk of the image store that moves between two hosts of a provider.
//!
//! The guest writes blocks to its disk all the time, and keeps their sums in its memory. Each round
//! it reads all blocks and compares them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use carina_vm::{Cache, Image, Kernel};

use crate::commands::node::CARINA;
use crate::commands::providers::is_root;

use super::house::{House, is_for_time};
use super::{HOSTS, TRIES, other};

/// The script of the guest. 40 blocks of 64 KiB are written in turn, from the middle of the
/// disk on. A round of writes and comparisons prints one line.
const SCRIPT: &str = "\
round=0; mkdir -p /tmp/sums
while sleep 0.2; do
round=$((round+1)); block=$((round%40)); at=$((256+block))
head -c 65536 /dev/urandom >/tmp/block
md5sum </tmp/block >/tmp/sums/$block
dd if=/tmp/block of=/dev/vda bs=64k seek=$at conv=notrunc,fsync 2>/dev/null
sync; echo 3 >/proc/sys/vm/drop_caches
for sum in /tmp/sums/*; do block=${sum##*/}
dd if=/dev/vda bs=64k skip=$((256+block)) count=1 2>/dev/null | md5sum >/tmp/now
cmp -s /tmp/now $sum || echo WRONG $block
done
dd if=/dev/vda bs=64k count=1 2>/dev/null | tr -d 'i' | grep -q . && echo WRONG image
echo round $round
done";
const DISK_BYTES: usize = 48 << 20;

/// Adds the image `small` to the store of a host, with a disk of bytes of one value.
fn add_image(house: &House, host: &str, value: u8) {
    let disk = PathBuf::from(house.path(&format!("disk-{value}")));
    std::fs::write(&disk, vec![value; DISK_BYTES]).unwrap();
    let cache = Cache::default_location().unwrap();
    let kernel = Kernel::obtain(&cache).unwrap();
    let modules = ["virtio_pci", "virtio_blk"];
    let loader = modules.iter();
    let loader = loader.fold(Image::new(), |image, name| image.module(name));
    let loader = loader.file("/rounds", 0o755, SCRIPT);
    let initramfs = loader.build(&cache, &kernel).unwrap();
    let line = format!(
        "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off 8250.nr_uarts=2 \
         carina.modules={} carina.cmd=sh%20/rounds",
        modules.join(",")
    );
    let mut command = Command::new(CARINA);
    command.args(["vnet", "image", "add"]).arg(disk);
    command.args(["--name", "small", "--append", &line]);
    command.arg("--kernel").arg(&kernel.image);
    command.arg("--initramfs").arg(&initramfs);
    succeeds(command.env("CARINA_IMAGES", house.store(host)));
}

fn remove_image(house: &House, host: &str) {
    let mut command = Command::new(CARINA);
    command.args(["vnet", "image", "remove", "small"]);
    succeeds(command.env("CARINA_IMAGES", house.store(host)));
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The disks of nodes in the store of a host.
fn disks(house: &House, host: &str) -> Vec<PathBuf> {
    let nodes = Path::new(&house.store(host)).join("nodes");
    let list = |directory: &Path| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let all = list(&nodes).into_iter().flat_map(|vnet| list(&vnet));
    all.filter(|path| path.extension().is_some_and(|ending| ending == "qcow2"))
        .collect()
}

/// The last round that the guest has printed on a host.
fn round(house: &House, host: &str) -> Option<u64> {
    let log = std::fs::read(house.network(host).join("vm/r.log")).ok()?;
    let log = String::from_utf8_lossy(&log);
    assert!(!log.contains("WRONG"), "{log}\n{}", house.logs());
    let rounds = log
        .lines()
        .filter_map(|line| line.trim().strip_prefix("round "));
    rounds.filter_map(|number| number.parse().ok()).next_back()
}

/// Waits until the guest has finished two more rounds than `before`. A guest that has booted again
/// would begin with the first round.
fn wait_for_rounds(house: &House, host: &str, before: u64) -> u64 {
    house.wait("rounds of the guest", || {
        let round = round(house, host)?;
        assert!(round >= before, "{round} after {before}\n{}", house.logs());
        (round >= before + 2).then_some(round)
    })
}

fn moves(house: &House, to: &str) -> Output {
    house.migration("uk", "r", to).output().unwrap()
}

/// Moves the VM; on a busy machine it may take longer than the agents wait for each other.
fn move_to(house: &House, to: &str) {
    for _ in 0..TRIES {
        let output = moves(house, to);
        let printed = String::from_utf8_lossy(&output.stderr);
        println!("{}{printed}", String::from_utf8_lossy(&output.stdout));
        if output.status.success() {
            return;
        }
        assert!(is_for_time(&printed), "{printed}\n{}", house.logs());
        house.wait_until_moved();
        house.wait_until_ready();
    }
    panic!("it has stayed {TRIES} times\n{}", house.logs());
}

/// Waits until the VM and its disk are on one host, and nothing of either on the other.
fn wait_for_one_disk(house: &House) -> &'static str {
    house.wait("one place, and one disk there", || {
        let [place] = house.places()[..] else {
            return None;
        };
        let counts = [place, other(place)].map(|host| disks(house, host).len());
        (counts == [1, 0]).then_some(place)
    })
}

#[test]
fn disk_moves_with_its_machine_whatever_is_killed() {
    if !is_root() {
        return;
    }
    let mut house = House::start();
    HOSTS.iter().for_each(|host| add_image(&house, host, b'i'));
    let document = "[vnet]\nname = \"moves\"\non_insufficient = \"queue 25m\"\n\
        [node.r]\nmemory = 192\nimage = \"small\"\nlocation = [\"london\", \"berlin\"]\n";
    std::fs::write(house.path("disk.toml"), document).unwrap();
    // The hosts report their images every two seconds.
    house.wait("a provider that knows the image", || {
        let output = house.operator(&["up", &house.path("disk.toml")]);
        if output.status.success() {
            return Some(());
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(
            printed.contains("has no image"),
            "{output:?}\n{}",
            house.logs()
        );
        let _ = house.operator(&["down"]);
        None
    });
    let mut here = wait_for_one_disk(&house);
    let mut rounds = wait_for_rounds(&house, here, 0);
    for _ in 0..2 {
        let target = other(here);
        move_to(&house, target);
        house.wait_until_ready();
        here = wait_for_one_disk(&house);
        assert_eq!(here, target);
        rounds = wait_for_rounds(&house, here, rounds);
    }
    is_refused(&house, here);
    rounds = wait_for_rounds(&house, here, rounds);
    for (process, wait) in [("here", 700), ("there", 700), ("pip", 900), ("here", 1500)] {
        let target = other(here);
        let process = match process {
            "here" => here,
            "there" => target,
            other => other,
        };
        let mut moves = house.migration("uk", "r", target);
        let moves = moves.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        std::thread::sleep(Duration::from_millis(wait));
        house.kill_and_begin(process);
        moves.unwrap().wait().unwrap();
        house.wait_until_moved();
        house.wait_until_ready();
        let place = wait_for_one_disk(&house);
        println!("{process} killed after {wait} ms: from {here} to {place}");
        rounds = wait_for_rounds(&house, place, rounds);
        here = place;
    }
    let output = house.operator(&["down"]);
    assert!(output.status.success(), "{output:?}\n{}", house.logs());
    for host in HOSTS {
        assert_eq!(disks(&house, host), Vec::<PathBuf>::new());
    }
}

/// Checks that the VM stays if the other host has another image of this name, or none.
fn is_refused(house: &House, here: &str) {
    let target = other(here);
    let refusal = |words: &str| {
        let output = moves(house, target);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_right = printed.contains(words) && printed.contains("small");
        assert!(
            !output.status.success() && is_right && printed.contains("carina vnet image add"),
            "{output:?}\n{}",
            house.logs()
        );
        house.wait_until_moved();
        assert_eq!(wait_for_one_disk(house), here);
    };
    remove_image(house, target);
    add_image(house, target, b'j');
    refusal("different disks");
    remove_image(house, target);
    refusal("no image");
    add_image(house, target, b'i');
}
