//! Which accelerator runs guests here, found out by booting one.
//!
//! `/dev/kvm` may exist, and QEMU may accept it, on hosts (nested ones, mostly) where a guest then
//! hangs. Hence the only test that counts: boot the kernel and wait for its first words.

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
    /// By the processor's virtualisation.
    Kvm,
    /// By translation; works everywhere, slowly.
    Tcg,
}

impl Accel {
    /// The word used in records and output.
    pub fn name(self) -> &'static str {
        match self {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        }
    }

    /// The QEMU arguments.
    ///
    /// An emulated processor does not say that it is fast at `rep movsb` and `rep stosb` (ERMS): a
    /// guest would use them for all that it copies, and QEMU emulates them byte by byte. Translated
    /// code may take 256 MiB; QEMU's own bound is 1 GiB, which is more than a machine in a control
    /// group has room for beside its guest. A boot takes 50 MiB.
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

    /// Whether this process may use `/dev/kvm`, which need not mean that guests run there.
    pub(crate) fn may_be_kvm() -> bool {
        let mut options = fs::File::options();
        options.read(true).write(true).open("/dev/kvm").is_ok()
    }

    /// Chooses KVM if a guest boots under it within 15 s, else TCG.
    ///
    /// The answer is kept in the cache for this QEMU, guest kernel, host kernel and processor.
    ///
    /// # Errors
    ///
    /// When QEMU or busybox is missing or the cache cannot be written; that KVM does not work is
    /// no error.
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

/// Finds QEMU.
///
/// # Errors
/// It is not installed; the error names the package that has it.
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

/// The line of proc(5) that names the host's processor.
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
    // A guest that does not boot never ends by itself.
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
    let said = says(&mut child, MARKER, PROBE_LIMIT);
    // It may have powered off by itself.
    let _ = child.kill();
    let _ = child.wait();
    Ok(said)
}

/// Waits until the child's standard output holds `marker`, it ends, or the time is over.
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
