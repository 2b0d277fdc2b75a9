//! Test of a stock Debian guest without a network card: an image with cloud-init, which gets a node
//! and keys from a volume.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::house::{Host, told};
use crate::internet::{Internet, fill};

/// Packages of the image; the kernel has the drivers of virtual machines only.
const PACKAGES: &str = "systemd-sysv,udev,linux-image-cloud-amd64,cloud-init,openssh-server,git,\
    ca-certificates,iproute2";

/// A Debian system without a boot loader: a disk, and its kernel beside it.
struct Image {
    disk: PathBuf,
    kernel: PathBuf,
    initrd: PathBuf,
}

/// Makes the image from the archive that apt of this machine uses; `None` where that is impossible.
fn make_image(place: &Path) -> Option<Image> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let has = |program: &str| {
        let places = ["/usr/bin", "/usr/sbin", "/sbin"].map(Path::new);
        places.iter().any(|place| place.join(program).is_file())
    };
    let missing = ["mmdebstrap", "genisoimage", "mke2fs"]
        .into_iter()
        .find(|program| !has(program));
    let (Some(codename), None) = (codename, missing) else {
        println!("SKIP: {missing:?} is missing, or this is not Debian");
        return None;
    };
    let root = place.join("root");
    let mut make = Command::new("mmdebstrap");
    make.arg("--variant=minbase");
    make.arg(format!("--include={PACKAGES}"));
    let made = make.arg(codename).arg(&root).output().unwrap();
    assert!(made.status.success(), "{}", told(&made));
    // Names of the guest's network, which is the namespace of this test.
    fs::write(
        root.join("etc/apt/sources.list"),
        "deb [trusted=yes] http://deb.example/debian ./\n",
    )
    .unwrap();
    let _ = fs::remove_dir_all(root.join("etc/apt/sources.list.d"));
    let image = Image {
        disk: place.join("disk.raw"),
        kernel: place.join("vmlinuz"),
        initrd: place.join("initrd.img"),
    };
    for (link, file) in [("vmlinuz", &image.kernel), ("initrd.img", &image.initrd)] {
        let link = fs::read_link(root.join(link)).unwrap();
        let inside = root.join(link.strip_prefix("/").unwrap_or(&link));
        fs::copy(inside, file).unwrap();
    }
    let mut make = Command::new("mke2fs");
    make.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    make.args(["-q", "-t", "ext4", "-d"]).arg(&root);
    let made = make.arg(&image.disk).arg("2G").output().unwrap();
    assert!(made.status.success(), "{}", told(&made));
    fs::remove_dir_all(root).unwrap();
    Some(image)
}

fn ssh(host: &Host, command: &str) -> Output {
    host.carina(&["ssh", "d", command])
}

fn succeeds(host: &Host, command: &str) -> String {
    let output = ssh(host, command);
    assert!(output.status.success(), "{command}: {}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// What a user does with a downloaded image.
#[test]
#[ignore = "makes a Debian image and boots it under emulation: about five minutes"]
fn stock_debian_guest_without_a_card_has_ssh_apt_and_git() {
    let Some(internet) = Internet::start() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let Some(image) = make_image(place.path()) else {
        return;
    };
    fill(&internet.site());
    let pid = internet.pid().to_string();
    let host = Host::start_through(&["nsenter", "-t", &pid, "--net", "--mount"]);
    let boot = format!(
        "-kernel '{}' -initrd '{}' -append 'root=/dev/vda rw console=ttyS0 quiet'",
        image.kernel.display(),
        image.initrd.display()
    );
    let disk = image.disk.to_str().unwrap();
    let options = ["--disk", disk, "--memory", "1024", "--qemu-args", &boot];
    let rules = ["deb.example:80", "git.example", "203.0.113.1"];
    let rules: Vec<_> = rules.iter().flat_map(|rule| ["--internet", rule]).collect();
    let run = [&["vm", "run", "d", "--ssh"][..], &options, &rules].concat();
    let started = host.carina(&run);
    assert!(
        started.status.success(),
        "{}{}",
        told(&started),
        fs::read_to_string(host.run_dir().join("vm/d.log")).unwrap_or_default()
    );
    assert_eq!(succeeds(&host, "ls /sys/class/net"), "lo\n");
    assert_eq!(succeeds(&host, "hostname"), "d\n");
    let updated = succeeds(&host, "apt-get update");
    assert!(updated.contains("http://deb.example/debian"), "{updated}");
    let known = succeeds(&host, "apt-cache show nothing");
    assert!(known.contains("Package: nothing"), "{known}");
    let clone = "git clone -q http://git.example/repository.git && cat repository/file";
    assert_eq!(succeeds(&host, clone), "text\n");
    let refused = ssh(
        &host,
        "git clone -q http://other.example/repository.git other",
    );
    assert!(!refused.status.success());
    let stopped = host.carina(&["vm", "stop", "d"]);
    assert!(stopped.status.success(), "{}", told(&stopped));
    let left = fs::read_dir(host.run_dir().join("vm")).unwrap().count();
    assert_eq!(left, 0, "files of the VM");
}
