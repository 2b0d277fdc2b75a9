//! Test of a stock Debian guest without a network card: an image with cloud-init, which gets a node
//! and keys from a volume.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::house::{CARINA, Host, cache, told};
use crate::internet::{Internet, fill};

/// Packages of the image; the kernel has the drivers of virtual machines only.
const PACKAGES: &str = "systemd-sysv,udev,linux-image-cloud-amd64,cloud-init,openssh-server,git,\
    ca-certificates,iproute2";

/// Words of apt when it cannot reach an archive.
const UNREACHABLE: [&str; 4] = [
    "Could not resolve",
    "Could not connect",
    "Unable to connect",
    "Failed to fetch",
];

/// A Debian system without a boot loader: a disk, and its kernel beside it.
struct Image {
    disk: PathBuf,
    kernel: PathBuf,
    initrd: PathBuf,
}

impl Image {
    /// An image with a new disk in `place`, over the disk in the cache. The first time, makes that
    /// one from the archive that apt of this machine uses; `None` where that is impossible.
    fn obtain(place: &Path) -> Option<Image> {
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let codename = release
            .lines()
            .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
        let has = |program: &str| {
            let places = ["/usr/bin", "/usr/sbin", "/sbin"].map(Path::new);
            places.iter().any(|place| place.join(program).is_file())
        };
        let missing = ["mmdebstrap", "genisoimage", "mke2fs", "qemu-img"]
            .into_iter()
            .find(|program| !has(program));
        let (Some(codename), None) = (codename, missing) else {
            println!("SKIP: {missing:?} is missing, or this is not Debian");
            return None;
        };
        let kept = cache().path(&format!("stock-{codename}-{VERSION}"));
        if !kept.is_dir() {
            let root = kept.parent().unwrap();
            let new = tempfile::tempdir_in(root).unwrap();
            make(new.path(), codename)?;
            // Another test program may have made it at the same time.
            if fs::rename(new.path(), &kept).is_ok() {
                let _ = new.keep();
            }
        }
        let disk = place.join("disk.qcow2");
        let mut overlay = Command::new("qemu-img");
        overlay.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]);
        let made = overlay.arg(kept.join(DISK)).arg(&disk).output().unwrap();
        assert!(made.status.success(), "{}", told(&made));
        Some(Image {
            disk,
            kernel: kept.join(KERNEL),
            initrd: kept.join(INITRD),
        })
    }
}

/// Makes the files of an image; `None` if no archive can be reached.
fn make(place: &Path, codename: &str) -> Option<()> {
    let root = place.join("root");
    let mut make = Command::new("mmdebstrap");
    make.arg("--variant=minbase");
    make.arg(format!("--include={PACKAGES}"));
    let made = make.arg(codename).arg(&root).output().unwrap();
    let words = told(&made);
    if !made.status.success() && UNREACHABLE.iter().any(|error| words.contains(error)) {
        println!("SKIP: no archive of Debian packages can be reached: {words}");
        return None;
    }
    assert!(made.status.success(), "{words}");
    // Names of the guest's network, which is the namespace of this test.
    fs::write(
        root.join("etc/apt/sources.list"),
        "deb [trusted=yes] http://deb.example/debian ./\n",
    )
    .unwrap();
    let _ = fs::remove_dir_all(root.join("etc/apt/sources.list.d"));
    for (link, file) in [("vmlinuz", KERNEL), ("initrd.img", INITRD)] {
        let link = fs::read_link(root.join(link)).unwrap();
        let inside = root.join(link.strip_prefix("/").unwrap_or(&link));
        fs::copy(inside, place.join(file)).unwrap();
    }
    let mut make = Command::new("mke2fs");
    make.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    make.args(["-q", "-t", "ext4", "-d"]).arg(&root);
    let made = make.arg(place.join(DISK)).arg("2G").output().unwrap();
    assert!(made.status.success(), "{}", told(&made));
    fs::remove_dir_all(root).unwrap();
    Some(())
}

/// Names of an image's files in the cache.
const DISK: &str = "disk.raw";
const KERNEL: &str = "vmlinuz";
const INITRD: &str = "initrd.img";

/// To be changed with [`PACKAGES`] and [`make`]: images of another version are not used.
const VERSION: u32 = 1;

/// Stops the VM when the test ends, also when the test is killed.
struct StopsVm(Child);

impl StopsVm {
    fn of(host: &Host) -> StopsVm {
        // The standard input ends with this process.
        let mut command = Command::new("sh");
        command.args(["-c", "cat; exec \"$0\" --run \"$1\" vm stop d", CARINA]);
        command.arg(host.run_dir()).stdin(Stdio::piped());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        StopsVm(command.spawn().unwrap())
    }
}

impl Drop for StopsVm {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Boots the VM from the disk, and waits until its sshd is reachable.
fn boot(host: &Host, image: &Image) {
    // Without KVM, a busy host delays the timer that the kernel would check.
    let boot = format!(
        "-kernel '{}' -initrd '{}' -append 'root=/dev/vda rw console=ttyS0 quiet no_timer_check \
         panic=-1'",
        image.kernel.display(),
        image.initrd.display()
    );
    let disk = image.disk.to_str().unwrap();
    let options = ["--disk", disk, "--memory", "1024", "--qemu-args", &boot];
    let rules = ["deb.example:80", "git.example", "203.0.113.1"];
    let rules: Vec<_> = rules.iter().flat_map(|rule| ["--internet", rule]).collect();
    let started = host.carina(&[&["vm", "run", "d", "--ssh"][..], &options, &rules].concat());
    assert!(
        started.status.success(),
        "{}{}",
        told(&started),
        fs::read_to_string(host.run_dir().join("vm/d.log")).unwrap_or_default()
    );
}

/// Runs a command in the guest, which must end within five minutes.
fn ssh(host: &Host, command: &str) -> Output {
    let alive = [
        "-o",
        "ServerAliveInterval=30",
        "-o",
        "ServerAliveCountMax=4",
    ];
    let command = format!("timeout 300 sh -c '{command}'");
    host.carina(&[&["ssh"], &alive[..], &["d", &command]].concat())
}

fn succeeds(host: &Host, command: &str) -> String {
    let output = ssh(host, command);
    assert!(output.status.success(), "{command}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn stop(host: &Host) {
    let stopped = host.carina(&["vm", "stop", "d"]);
    assert!(stopped.status.success(), "{}", told(&stopped));
    let left = fs::read_dir(host.run_dir().join("vm")).unwrap().count();
    assert_eq!(left, 0, "files of the VM");
}

/// What a user does with a downloaded image.
#[test]
#[ignore = "boots a Debian image twice under emulation: five minutes, and as long to make the image"]
fn stock_debian_guest_without_a_card_has_ssh_apt_and_git() {
    let Some(internet) = Internet::start() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let Some(image) = Image::obtain(place.path()) else {
        return;
    };
    fill(&internet.site());
    let pid = internet.pid().to_string();
    let host = Host::start_through(&["nsenter", "-t", &pid, "--net", "--mount"]);
    let _stops = StopsVm::of(&host);
    boot(&host, &image);
    assert_eq!(succeeds(&host, "ls /sys/class/net"), "lo\n");
    assert_eq!(succeeds(&host, "hostname"), "d\n");
    let updated = succeeds(&host, "apt-get update");
    assert!(updated.contains("http://deb.example/debian"), "{updated}");
    let known = succeeds(&host, "apt-cache show nothing");
    assert!(known.contains("Package: nothing"), "{known}");
    let clone = "rm -rf repository && git clone -q http://git.example/repository.git && \
        cat repository/file && sync";
    assert_eq!(succeeds(&host, clone), "text\n");
    let refused = ssh(
        &host,
        "git clone -q http://other.example/repository.git other",
    );
    assert!(!refused.status.success());
    stop(&host);

    // The disk keeps its files, and takes the new keys.
    boot(&host, &image);
    assert_eq!(succeeds(&host, "cat repository/file"), "text\n");
    let updated = succeeds(&host, "apt-get update");
    assert!(updated.contains("http://deb.example/debian"), "{updated}");
    stop(&host);
}
