//! Tests of networks whose links are flows of a DIF, and of a user's own disk images.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use carina_vm::{Cache, Image, Kernel};
use serde_json::Value;

use crate::commands::providers::is_root;

/// A run directory with an agent that `up` starts. Everything that the agent has made is removed
/// when the value is dropped.
struct Here(tempfile::TempDir);

impl Here {
    fn new() -> Here {
        Here(tempfile::tempdir().unwrap())
    }

    fn write(&self, file: &str, text: &str) -> String {
        let path = self.0.path().join(file);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn carina(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_carina"));
        command
            .args(words)
            .env("CARINA_RUN", self.0.path().join("run"))
            .env("CARINA_IMAGES", self.0.path().join("images"));
        command.output().unwrap()
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.carina(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.done(&["--json", "vnet", "status"])).unwrap()
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let _ = self.carina(&["vnet", "down", "--all"]);
    }
}

/// A document with a row of three nodes, which `more` may close to a ring.
fn row(carrier: &str, kind: &str, more: &str) -> String {
    let link =
        |ends: &str| format!("[[link]]\nends = [{ends}]\nrate = \"50Mbps\"\nas = \"{carrier}\"\n");
    format!(
        "[vnet]\nname = \"same\"\n[defaults]\nkind = \"{kind}\"\nmemory = 256\n[node.a]\n[node.b]\n[node.c]\n\
         {}{}{more}[[test]]\nping = [\"a\", \"c\"]\nrtt_max = \"5s\"\n\
         [[test]]\nthroughput = [\"a\", \"c\"]\nrate_min = \"500kbps\"\n",
        link("\"a\", \"b\""),
        link("\"b\", \"c\"")
    )
}

#[test]
fn same_file_passes_the_same_tests_over_tunnels_and_flows() {
    if !is_root() {
        return;
    }
    let here = Here::new();
    for (carrier, mtu) in [("ipip", 1480), ("dif", 1400)] {
        let file = here.write("same.toml", &row(carrier, "namespace", ""));
        here.done(&["vnet", "up", &file]);
        let tested = here.done(&["vnet", "test"]);
        assert_eq!(tested.matches(" yes ").count(), 3, "{tested}");
        let links = here.done(&["vnet", "exec", "b", "ip", "-o", "link", "show"]);
        let told = format!("mtu {mtu} ");
        assert_eq!(links.matches(&told).count(), 2, "{links}");
        if carrier == "ipip" {
            here.done(&["vnet", "down"]);
        }
    }
    // Nodes reach each other by name, and also over IP.
    let printed = here.done(&["vnet", "exec", "a", "carina", "ping", "c", "-c", "3"]);
    assert!(printed.contains("PING c in same"), "{printed}");
    let printed = here.done(&["vnet", "exec", "a", "carina", "dif", "map", "same"]);
    assert!(
        printed
            .lines()
            .any(|line| line.contains('b') && line.contains('c')),
        "{printed}"
    );
    here.done(&[
        "vnet", "exec", "a", "busybox", "ping", "-c", "3", "-W", "30", "10.0.0.6",
    ]);
    // A link is added while the network runs: members get a further flow, and none is recreated.
    let addresses = |here: &Here| here.done(&["vnet", "exec", "c", "carina", "ipcp", "list"]);
    let before = addresses(&here);
    let more = "[[link]]\nends = [\"c\", \"a\"]\nrate = \"50Mbps\"\nas = \"dif\"\n";
    let file = here.write("same.toml", &row("dif", "namespace", more));
    here.done(&["vnet", "apply", &file]);
    let after = addresses(&here);
    assert!(
        after.contains("link.2") && !before.contains("link.2"),
        "{after}"
    );
    let status = here.status();
    assert_eq!(status["state"], "ready", "{status}");
    // A link that loses all frames is down; names still answer over the other path.
    here.done(&["vnet", "impair", "a,c", "loss=100%"]);
    let tested = here.carina(&["vnet", "test"]);
    let printed = String::from_utf8_lossy(&tested.stdout);
    assert_eq!(tested.status.code(), Some(1), "{printed}");
    here.done(&["vnet", "impair", "a,c", "--clear"]);
    // When the links are no longer flows, the Carina nodes end.
    let run = here.0.path().join("run/vnet/same/a.carina/lock");
    let pid = std::fs::read_to_string(&run).unwrap();
    let file = here.write("same.toml", &row("ipip", "namespace", ""));
    here.done(&["vnet", "apply", &file]);
    let stat = Path::new("/proc").join(pid.trim()).join("stat");
    // The node ends in order; its parent may notice that late, so a zombie counts as ended.
    let runs = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    let begun = Instant::now();
    while runs() && begun.elapsed() < ENDS {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!runs(), "the node of a, {pid}, goes on");
    here.done(&["vnet", "test"]);
    here.done(&["vnet", "down"]);
}

#[test]
fn machines_are_members_of_a_dif_and_are_confined() {
    if !is_root() {
        return;
    }
    let here = Here::new();
    let text = row("dif", "vm", "").replace("[node.c]\n", "[node.c]\nkind = \"namespace\"\n");
    let file = here.write("same.toml", &text);
    here.done(&["vnet", "up", &file]);
    here.done(&["vnet", "exec", "c", "carina", "ping", "a", "-c", "2"]);
    here.done(&["vnet", "exec", "a", "carina", "ping", "b", "-c", "2"]);
    let tested = here.done(&["vnet", "test"]);
    assert_eq!(tested.matches(" yes ").count(), 3, "{tested}");
    // Each VM has a user of its own, cannot gain rights, has filtered system calls, and only its
    // own groups.
    let places: Vec<Value> =
        serde_json::from_str(&here.done(&["--json", "vnet", "where"])).unwrap();
    let pids: Vec<i64> = places
        .iter()
        .filter_map(|place| place["pid"].as_i64())
        .collect();
    assert_eq!(pids.len(), 2, "{places:?}");
    let events = here.done(&["vnet", "events"]);
    let mut users = Vec::new();
    for pid in &pids {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let of = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap().split_whitespace().next().unwrap().to_owned()
        };
        assert_eq!(
            (of("NoNewPrivs:"), of("Seccomp:")),
            ("1".to_owned(), "2".to_owned())
        );
        assert_eq!(u64::from_str_radix(&of("CapEff:"), 16), Ok(0), "{status}");
        users.push(of("Uid:"));
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert!(
            groups.contains("/carina-") || events.contains("a group:"),
            "{groups}"
        );
    }
    assert_ne!(users[0], users[1]);
    assert!(
        users
            .iter()
            .all(|user| events.contains(&format!("user {user}"))),
        "{events}"
    );
    let file = here.0.path().join("run/vnet/same/groups");
    let groups = std::fs::read_to_string(file).unwrap();
    assert!(
        groups.lines().all(|group| Path::new(group).is_dir()),
        "{groups}"
    );
    here.done(&["vnet", "down"]);
    assert!(
        !groups
            .lines()
            .any(|group| Path::new(group).parent().unwrap().exists())
    );
    assert!(
        !pids
            .iter()
            .any(|pid| Path::new(&format!("/proc/{pid}")).exists())
    );
}

/// How long a node may take to end on a busy machine.
const ENDS: Duration = Duration::from_secs(60);
/// The script that the disk runs. It reads its address from the volume for cloud-init.
const START: &str = "\
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
export PATH=/bin:/sbin
mkdir -p /cidata; mount -t iso9660 -o ro /dev/vdb /cidata
hostname \"$(sed -n 's/^local-hostname: //p' /cidata/meta-data)\"
ip link set eth0 mtu \"$(sed -n 's/^ *mtu: //p' /cidata/network-config)\"
ip addr add \"$(sed -n 's/.*addresses: \\[\"\\(.*\\)\"\\]/\\1/p' /cidata/network-config)\" dev eth0
ip link set eth0 up
echo \"$(hostname) says $(cat /cidata/user-data) $(ls /kept 2>/dev/null)\"
echo >/kept; sync
while :; do setsid cttyhack sh; sleep 0.2; done
";

/// Makes `disk.qcow2`, which runs [`START`], and `over.qcow2` with `disk.qcow2` as backing file.
/// Returns the command that adds the first one.
fn make_disk(here: &Here) -> Vec<String> {
    let place = here.0.path().to_owned();
    let cache = Cache::default_location().unwrap();
    let kernel = Kernel::obtain(&cache).unwrap();
    let archive = Image::new()
        .file("/start", 0o755, START)
        .build(&cache, &kernel)
        .unwrap();
    let root = place.join("root");
    std::fs::create_dir(&root).unwrap();
    let script = format!(
        "cd {0} && busybox cpio -idmu <{1} 2>/dev/null; PATH=$PATH:/usr/sbin:/sbin\n\
         mke2fs -q -t ext4 -d {0} {2}/disk.raw 48M && \
         qemu-img convert -O qcow2 {2}/disk.raw {2}/disk.qcow2 && \
         qemu-img create -q -f qcow2 -F qcow2 -b {2}/disk.qcow2 {2}/over.qcow2",
        root.display(),
        archive.display(),
        place.display()
    );
    let made = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let modules = [
        "virtio_pci",
        "virtio_blk",
        "virtio_net",
        "crc32c_generic",
        "ext4",
        "isofs",
    ];
    let loader = modules
        .iter()
        .fold(Image::new(), |image, name| image.module(name));
    let loader = loader.build(&cache, &kernel).unwrap();
    let append = format!(
        "console=ttyS0 quiet panic=-1 no_timer_check carina.modules={} \
         carina.cmd=mount%20-t%20ext4%20/dev/vda%20/root%20&&%20chroot%20/root%20/bin/sh%20/start",
        modules.join(",")
    );
    let path = |name: &str| place.join(name).to_str().unwrap().to_owned();
    let user_data = here.write("user-data", "hello");
    let (kernel, loader) = (kernel.image.to_str().unwrap(), loader.to_str().unwrap());
    let disk = path("disk.qcow2");
    let words = [
        "vnet", "image", "add", &disk, "--name", "own", "--kernel", kernel,
    ];
    let more = [
        "--initramfs",
        loader,
        "--append",
        &append,
        "--user-data",
        &user_data,
    ];
    words
        .iter()
        .chain(&more)
        .map(|word| (*word).to_owned())
        .collect()
}

#[test]
fn image_of_the_users_own_boots_with_its_addresses() {
    if !is_root() {
        return;
    }
    let here = Here::new();
    let adding = make_disk(&here);
    let path = |name: &str| here.0.path().join(name).to_str().unwrap().to_owned();
    // A disk that refers to another file is refused as an image.
    let refused = here.carina(&["vnet", "image", "add", &path("over.qcow2"), "--name", "own"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let file = here.write(
        "own.toml",
        "[vnet]\nname = \"own\"\n[node.a]\nimage = \"own\"\n[node.b]\nkind = \"namespace\"\n\
         [node.c]\nimage = \"own\"\n[node.d]\nimage = \"own\"\n\
         [[link]]\nends = [\"a\", \"b\"]\nrate = \"50Mbps\"\n\
         [[link]]\nends = [\"c\", \"d\"]\nrate = \"50Mbps\"\n\
         [[test]]\nping = [\"b\", \"a\"]\n",
    );
    let unknown = here.carina(&["vnet", "up", &file]);
    let printed = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        !unknown.status.success() && printed.contains("no image \"own\""),
        "{printed}"
    );
    let adding: Vec<&str> = adding.iter().map(String::as_str).collect();
    here.done(&adding);
    here.done(&["vnet", "up", &file]);
    let tested = here.done(&["vnet", "test"]);
    // The link between c and d has no end that sends a probe, and is up while both machines run.
    assert_eq!(tested.matches(" yes ").count(), 2, "{tested}");
    let refused = here.carina(&["vnet", "exec", "a", "true"]);
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && printed.contains("runs commands"),
        "{printed}"
    );
    let log =
        |here: &Here| std::fs::read_to_string(here.0.path().join("run/vnet/own/vm/a.log")).unwrap();
    // Its output arrives in the log a moment later.
    let begin = Instant::now();
    while !log(&here).contains("a says hello \r\n") {
        assert!(begin.elapsed() < ENDS, "{}", log(&here));
        std::thread::sleep(Duration::from_millis(50));
    }
    // An image that is in use cannot be removed.
    let refused = here.carina(&["vnet", "image", "remove", "own"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    here.done(&["vnet", "down"]);
    let left = std::fs::read_dir(path("images/nodes")).unwrap().count();
    assert_eq!(left, 0);
    here.done(&["vnet", "image", "remove", "own"]);
    assert_eq!(std::fs::read_dir(path("images/blobs")).unwrap().count(), 0);
}
