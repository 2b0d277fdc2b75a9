//! Test of a user's disk image on which `carina` is installed, in place of Carina's own guest.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use carina_vm::{Cache, Image, Kernel};

use crate::house::{BOOT, CARINA, Host, told};

const DISK_MIB: u64 = 96;

/// The script that the disk runs at boot. Of Carina's own guest it uses only busybox.
const START: &str = "\
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm /run; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run
export PATH=/bin:/sbin
carina node --guest --guest-dif hv.d >/var/log/node.log 2>&1 </dev/null &
exec carina ping --listen echo.disk --wait 240s
";

/// A disk image on which `carina` is installed, and how a VM boots it.
pub(crate) struct Disk {
    /// The qcow2 file.
    pub(crate) file: PathBuf,
    /// Arguments for `--qemu-args`.
    pub(crate) boot: String,
}

impl Disk {
    /// Makes a disk in the run directory of the host. The guest's kernel loads the modules that the
    /// disk needs, and `modules`.
    pub(crate) fn make(host: &Host, modules: &[&str]) -> Disk {
        let place = host.run_dir().join("disk");
        fs::create_dir(&place).unwrap();
        let cache = Cache::default_location().unwrap();
        let kernel = Kernel::obtain(&cache).unwrap();
        let file = place.join("disk.qcow2");
        make_disk(&cache, &kernel, &place, &file);
        // In a distribution's kernel the drivers of the disk are modules.
        let modules = [
            &["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"],
            modules,
        ]
        .concat();
        let loader = modules
            .iter()
            .fold(Image::new(), |image, name| image.module(name));
        let loader = loader.build(&cache, &kernel).unwrap();

        // As in the page getting-started, with a kernel of the user's choice.
        let command = "mount -t ext4 /dev/vda /root && chroot /root /bin/sh /start";
        let append = format!(
            "console=ttyS0 quiet panic=-1 no_timer_check carina.modules={} carina.cmd={}",
            modules.join(","),
            command.replace(' ', "%20")
        );
        let boot = format!(
            "-kernel '{}' -initrd '{}' -append \"{append}\"",
            kernel.image.display(),
            loader.display()
        );
        Disk { file, boot }
    }
}

#[test]
fn disk_image_with_carina_inside_is_booted_and_pinged() {
    let host = Host::start();
    let Disk { file: disk, boot } = Disk::make(&host, &[]);
    let run = ["vm", "run", "d", "--memory", "256", "--disk"];
    let args = [&run[..], &[path(&disk), "--qemu-args", &boot]].concat();
    let output = host.carina(&args);
    assert!(output.status.success(), "{}", told(&output));
    host.until("the disk's application is registered", BOOT, || {
        host.knows("echo.disk").then_some(())
    });
    for size in ["0", "64", "4000", "1M"] {
        host.pings("echo.disk", size, 5);
    }
    let output = host.carina(&["vm", "stop", "d"]);
    assert!(output.status.success(), "{}", told(&output));
    assert!(!host.knows("echo.disk"));
    assert!(disk.exists(), "a disk is its owner's");
}

#[test]
fn unusable_disk_is_refused_by_name_and_leaves_nothing() {
    let host = Host::start();
    let run = |disk: &str| host.carina(&["vm", "run", "d", "--disk", disk]);
    let output = run("/no/such.qcow2");
    assert!(
        !output.status.success() && told(&output).contains("/no/such.qcow2"),
        "{output:?}"
    );
    // For errors that only QEMU knows, QEMU's own message is shown.
    let broken = host.run_dir().join("broken.qcow2");
    fs::write(
        &broken,
        [&b"QFI\xfb\x00\x00\x00\x09"[..], &[0; 1000]].concat(),
    )
    .unwrap();
    let output = run(path(&broken));
    assert!(!output.status.success(), "{output:?}");
    let words = told(&output);
    assert!(
        words.contains("QEMU has ended") && words.contains("version"),
        "{words}"
    );
    assert_eq!(
        host.json(&["vm", "list"])["machines"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Makes a file system with busybox, this `carina` and [`START`], as a qcow2 file.
fn make_disk(cache: &Cache, kernel: &Kernel, place: &Path, disk: &Path) {
    let image = Image::new()
        .program("/bin/carina", Path::new(CARINA))
        .unwrap();
    let archive = image
        .file("/start", 0o755, START)
        .build(cache, kernel)
        .unwrap();
    let root = place.join("root");
    fs::create_dir(&root).unwrap();
    // The exit status is ignored: it reports device files, which an ordinary user may not make and
    // this disk does not need.
    let unpacked = Command::new("busybox")
        .args(["cpio", "-idmu"])
        .current_dir(&root)
        .stdin(fs::File::open(archive).unwrap())
        .stderr(Stdio::null())
        .status();
    unpacked.expect("busybox is installed");
    assert!(root.join("bin/carina").exists());
    let raw = place.join("disk.raw");
    let made = Command::new("mke2fs")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-q", "-t", "ext4", "-d"])
        .arg(&root)
        .arg(&raw)
        .arg(format!("{DISK_MIB}M"))
        .output()
        .expect("mke2fs is installed: package e2fsprogs");
    assert!(made.status.success(), "{}", told(&made));
    write_qcow2(&fs::read(&raw).unwrap(), disk);
}

/// Writes the simplest qcow2 file (QEMU's `docs/interop/qcow2`, version 2) with clusters of 64 KiB:
/// header, reference counts, one table of tables, one table, and then the clusters that are not all
/// zero.
fn write_qcow2(content: &[u8], path: &Path) {
    const CLUSTER: u64 = 1 << 16;
    const ONE_REFERENCE: u64 = 1 << 63;
    let [counts_table, counts, tables, table, data] = [1, 2, 3, 4, 5].map(|n| n * CLUSTER);
    let mut file = fs::File::create(path).unwrap();
    let mut put = |at: u64, bytes: &[u8]| {
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(bytes).unwrap();
    };
    let mut end = data;
    let zeroes = [0; CLUSTER as usize];
    for (index, chunk) in (0u64..).zip(content.chunks(CLUSTER as usize)) {
        if chunk != &zeroes[..chunk.len()] {
            put(end, chunk);
            put(table + 8 * index, &(end | ONE_REFERENCE).to_be_bytes());
            end += CLUSTER;
        }
    }
    put(counts_table, &counts.to_be_bytes());
    for cluster in 0..end / CLUSTER {
        put(counts + 2 * cluster, &1u16.to_be_bytes());
    }
    put(tables, &(table | ONE_REFERENCE).to_be_bytes());
    let words = |list: &[u32]| {
        list.iter()
            .flat_map(|word| word.to_be_bytes())
            .collect::<Vec<u8>>()
    };
    let longs = |list: &[u64]| {
        list.iter()
            .flat_map(|long| long.to_be_bytes())
            .collect::<Vec<u8>>()
    };
    let head = [
        b"QFI\xfb".to_vec(),
        // Version, no backing file (offset, length), bits of a cluster.
        words(&[2, 0, 0, 0, 16]),
        longs(&[content.len() as u64]),
        // No encryption, number of entries in the table of tables.
        words(&[0, 1]),
        longs(&[tables, counts_table]),
        // Number of clusters of the table of counts, number of snapshots.
        words(&[1, 0]),
        longs(&[0]),
    ];
    put(0, &head.concat());
}
