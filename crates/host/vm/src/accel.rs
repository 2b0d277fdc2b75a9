//! The accelerator for guests on this host, determined by booting a guest.
//!
//! `/dev/kvm` may exist, and QEMU may accept it, on hosts (mostly nested ones) where a guest then
//! hangs. The only reliable test is to boot a kernel and wait for its first output.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cache::{Cache, write_whole};
use crate::error::{Context, Result};
use crate::hash::Hash;
use crate::image::probe_archive;
use crate::kernel::{self, Kernel};
use crate::tool;

/// How QEMU runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// KVM: the processor runs them by hardware virtualization.
    Kvm,
    /// TCG: QEMU translates them. This works everywhere, but is slow.
    Tcg,
}

impl Accel {
    /// The accelerator's name in records and output: `kvm` or `tcg`.
    pub fn name(self) -> &'static str {
        match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        }
    }

    /// The QEMU arguments for the accelerator.
    ///
    /// An emulated processor does not announce fast `rep movsb` and `rep stosb` (ERMS): a guest
    /// would use these instructions for every copy, and QEMU emulates them byte by byte. The cache
    /// for translated code is limited to 256 MiB; QEMU's default is 1 GiB, which is more than a
    /// control group has room for beside the guest's memory. A boot needs 50 MiB of it.
    pub fn qemu_args(self) -> [&'static str; 4] {
        match self {
            Accel::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Accel::Tcg => [
                "-accel",
                "tcg,thread=multi,tb-size=256",
                "-cpu",
                "max,-erms",
            ],
        }
    }

    /// Whether this process may use `/dev/kvm`. That does not prove that guests run under KVM.
    pub(crate) fn may_be_kvm() -> bool {
        let mut options = fs::File::options();
        options.read(true).write(true).open("/dev/kvm").is_ok()
    }

    /// Chooses KVM if a guest boots under it within 15 s, otherwise TCG.
    ///
    /// The cache keeps the result for this QEMU, guest kernel, host kernel and processor.
    ///
    /// # Errors
    ///
    /// QEMU or busybox is missing, or the cache cannot be written. A KVM that does not work is not
    /// an error.
    pub fn probe(cache: &Cache, kernel: &Kernel) -> Result<Accel> {
        if !Accel::may_be_kvm() {
            return Ok(Accel::Tcg);
        }
        let qemu = qemu()?;
        let path = cache
            .path("accel")
            .join(key(&cache.hash_of(&qemu)?, kernel));
        if let Some(accel) = remembered(&path) {
            return Ok(accel);
        }
        let _lock = cache.lock()?;
        if let Some(accel) = remembered(&path) {
            return Ok(accel);
        }
        let accel = if boots_under_kvm(&qemu, cache, kernel)? {
            Accel::Kvm
        } else {
            Accel::Tcg
        };
        write_whole(&path, accel.name().as_bytes())?;
        Ok(accel)
    }
}

/// Finds the QEMU program.
///
/// # Errors
/// QEMU is not installed; the error names its package.
pub fn qemu() -> Result<std::path::PathBuf> {
    tool::find("qemu-system-x86_64", "qemu-system-x86")
}

fn remembered(path: &Path) -> Option<Accel> {
    match fs::read(path).ok()?.as_slice() {
        b"kvm" => Some(Accel::Kvm),
        b"tcg" => Some(Accel::Tcg),
        _ => None,
    }
}

fn key(qemu: &str, kernel: &Kernel) -> String {
    let mut hash = Hash::new();
    hash.field(qemu.as_bytes());
    hash.field(kernel.release.as_bytes());
    hash.field(rustix::system::uname().release().to_bytes());
    hash.field(rustix::system::uname().nodename().to_bytes());
    hash.field(processor_model().as_bytes());
    hash.to_string()
}

/// The line of `/proc/cpuinfo` that names the host's processor.
pub(crate) fn processor_model() -> String {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors
        .lines()
        .find(|line| line.starts_with("model name"));
    model.unwrap_or_default().to_owned()
}

fn boots_under_kvm(qemu: &Path, cache: &Cache, kernel: &Kernel) -> Result<bool> {
    let initramfs = cache.path("accel").join("probe.cpio");
    write_whole(&initramfs, &probe_archive(MARKER)?)?;
    let mut command = Command::new(qemu);
    // A guest that does not boot never ends, so its QEMU must end with this process.
    let mut child = carina_sys::end_with_parent(&mut command)
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        .args([
            "-machine", "q35", "-m", "256", "-smp", "1", "-serial", "stdio",
        ])
        .args(Accel::Kvm.qemu_args())
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(&initramfs)
        .args(["-append", kernel::PARAMETERS])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("run", qemu)?;
    let has_booted = says(&mut child, MARKER, PROBE_LIMIT);
    // QEMU may have ended already.
    let _ = child.kill();
    let _ = child.wait();
    Ok(has_booted)
}

/// Waits until the child's standard output contains `marker`, the child ends, or `limit` has
/// passed. Returns whether the marker was found.
fn says(child: &mut Child, marker: &str, limit: Duration) -> bool {
    let Some(mut stdout) = child.stdout.take() else {
        return false;
    };
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stdout.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    let deadline = Instant::now() + limit;
    let mut text = Vec::new();
    while let Ok(bytes) = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        text.extend(bytes);
        if text
            .windows(marker.len())
            .any(|window| window == marker.as_bytes())
        {
            return true;
        }
    }
    false
}

const MARKER: &str = "carina-guest-has-booted";
const PROBE_LIMIT: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(script)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    #[test]
    fn marker_is_found_in_pieces_and_silence_is_a_no() {
        let mut child = shell("printf 'noise car'; sleep 0.05; printf 'ina!'; exec sleep 30");
        assert!(says(&mut child, "carina!", Duration::from_secs(20)));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut child = shell("echo other");
        assert!(!says(&mut child, "carina!", Duration::from_secs(20)));
        child.wait().unwrap();
        let mut child = shell("exec sleep 30");
        assert!(!says(&mut child, "carina!", Duration::from_millis(50)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
