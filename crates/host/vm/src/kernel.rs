//! The guest's kernel: a package of the host's distribution, downloaded and unpacked but never
//! installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::Cache;
use crate::error::{Context, Error, Result};
use crate::tool;
use crate::vmlinux::unpacked;

/// Kernel parameters of every guest.
///
/// - `panic=-1`: a guest whose kernel has panicked reboots at once.
/// - `no_timer_check`: the kernel counts timer interrupts during a span of its own processor time.
///   Under emulation on a busy host too few arrive in that span. The kernel then considers the
///   timer broken ("MP-BIOS bug: 8254 timer not connected to IO-APIC"), tries other ways to connect
///   it, and panics or continues without it. Under KVM the kernel skips the check itself
///   (`kvm_guest_init` in Linux).
/// - The rest skips work that a guest without real hardware does not need at boot: tests of
///   ciphers, audit, ports beyond the console and the agent's, waiting for entropy, services of PCI
///   Express ports (cards are plugged in by ACPI).
pub(crate) const PARAMETERS: &str = "console=ttyS0 quiet panic=-1 no_timer_check cryptomgr.notests \
    audit=0 8250.nr_uarts=2 random.trust_cpu=on rcupdate.rcu_expedited=1 pcie_ports=compat";

/// Additional kernel parameters of a guest whose processor is emulated. Such a processor does not
/// speculate, so mitigations are not needed, and its time stamp counter is QEMU's own clock. The
/// kernel neither zeroes each page before use, nor write-protects its own code (for which it goes
/// through all page tables). These measures guard a kernel against its own errors, and take a
/// fifteenth of a boot.
pub(crate) const EMULATED: &str = " tsc=reliable mitigations=off init_on_alloc=0 rodata=off";

/// A kernel package that was downloaded and unpacked.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The kernel's release, such as `6.1.0-56-amd64`.
    pub release: String,
    /// The kernel file that QEMU boots.
    pub image: PathBuf,
    /// The directory `lib/modules/RELEASE`.
    pub modules: PathBuf,
}

impl Kernel {
    /// Returns the kernel from the cache. If the cache has none, downloads and unpacks it first.
    ///
    /// The package is the one that the distribution's `linux-image-amd64` (Debian) or
    /// `linux-image-virtual` (Ubuntu) depends on. This needs no root: if the host has no package
    /// lists, or outdated ones, new lists are downloaded into the cache.
    ///
    /// # Errors
    ///
    /// The host is not an x86-64 machine with apt, the network is not reachable, or the disk is
    /// full.
    pub fn obtain(cache: &Cache) -> Result<Kernel> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(Error::Invalid {
                what: format!("architecture {}", std::env::consts::ARCH),
                reason: "guests can be booted on x86_64 only".into(),
            });
        }
        let _lock = cache.lock()?;
        let root = cache.path("kernel");
        if let Some(mut kernel) = Kernel::newest_in(&root) {
            kernel.image = unpacked(&kernel.image, &kernel.release)?;
            return Ok(kernel);
        }
        let part = cache.path("kernel.part");
        // The host's lists may be missing, or outdated and name packages that no longer exist.
        if Apt::of_this_machine()?.fetch(&part).is_err() {
            Apt::with_fresh_lists(&cache.path("apt"))?.fetch(&part)?;
        }
        let kernel = Kernel::newest_in(&part).ok_or_else(|| Error::Command {
            command: "dpkg -x on the kernel's packages".into(),
            detail: "there is no boot/vmlinuz-* with its lib/modules/* inside".into(),
        })?;
        if root.exists() {
            fs::remove_dir_all(&root).context("remove", &root)?;
        }
        fs::rename(&part, &root).context("rename to", &root)?;
        Ok(Kernel {
            image: root.join(kernel.image.strip_prefix(&part).unwrap_or(&kernel.image)),
            modules: root.join(
                kernel
                    .modules
                    .strip_prefix(&part)
                    .unwrap_or(&kernel.modules),
            ),
            release: kernel.release,
        })
    }

    /// Finds the newest kernel in an unpacked package, by the order of the names. `None` if the
    /// package has no kernel.
    pub fn newest_in(root: &Path) -> Option<Kernel> {
        let mut found: Vec<Kernel> = fs::read_dir(root.join("boot"))
            .ok()?
            .filter_map(|entry| {
                let image = entry.ok()?.path();
                let release = image
                    .file_name()?
                    .to_str()?
                    .strip_prefix("vmlinuz-")?
                    .to_owned();
                let modules = ["lib/modules", "usr/lib/modules"]
                    .iter()
                    .map(|directory| root.join(directory).join(&release))
                    .find(|directory| directory.is_dir())?;
                Some(Kernel {
                    release,
                    image,
                    modules,
                })
            })
            .collect();
        found.sort_by(|a, b| a.release.cmp(&b.release));
        found.pop()
    }
}

/// Downloads packages of the host's distribution and unpacks them into `into`. New package lists,
/// if needed, go to `lists`.
///
/// # Errors
/// The archive has no such package, or the network is not reachable.
pub(crate) fn download(lists: &Path, packages: &[&str], into: &Path) -> Result<()> {
    let packages: Vec<String> = packages.iter().map(ToString::to_string).collect();
    if Apt::of_this_machine()?
        .fetch_packages(&packages, into)
        .is_ok()
    {
        return Ok(());
    }
    Apt::with_fresh_lists(lists)?.fetch_packages(&packages, into)
}

/// apt, with the host's own package lists or with lists in the cache.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// apt with the package lists of the host.
    fn of_this_machine() -> Result<Apt> {
        tool::find(
            "apt-get",
            "apt (Carina takes its guest kernel from a Debian or Ubuntu archive)",
        )?;
        tool::find("dpkg", "dpkg")?;
        Ok(Apt {
            options: Vec::new(),
        })
    }

    /// Downloads package lists of the host's archives into `root`, which needs no rights on the
    /// host's own lists.
    fn with_fresh_lists(root: &Path) -> Result<Apt> {
        let (lists, cache) = (root.join("lists"), root.join("cache"));
        for directory in [lists.join("partial"), cache.join("archives/partial")] {
            fs::create_dir_all(&directory).context("create", &directory)?;
        }
        let apt = Apt {
            options: vec![
                format!("-oDir::State::lists={}", lists.display()),
                format!("-oDir::Cache={}", cache.display()),
                // The user that apt would change to may have no access to the cache.
                "-oAPT::Sandbox::User=root".to_owned(),
            ],
        };
        tool::output(apt.command("apt-get").args(["-q", "update"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(&self.options);
        command
    }

    /// Downloads and unpacks the packages of the newest kernel.
    fn fetch(&self, into: &Path) -> Result<()> {
        let packages = self.resolve().ok_or_else(|| Error::Command {
            command: "apt-cache depends linux-image-amd64 (or linux-image-virtual)".into(),
            detail: "no kernel package in the lists of this machine's archive".into(),
        })?;
        self.fetch_packages(&packages, into)
    }

    /// Downloads and unpacks packages.
    fn fetch_packages(&self, packages: &[String], into: &Path) -> Result<()> {
        if into.exists() {
            fs::remove_dir_all(into).context("remove", into)?;
        }
        fs::create_dir_all(into).context("create", into)?;
        let mut download = self.command("apt-get");
        download.args(["-q", "download"]).args(packages);
        tool::output(download.current_dir(into))?;
        for entry in fs::read_dir(into).context("read", into)? {
            let deb = entry.context("read", into)?.path();
            if deb.extension().is_some_and(|extension| extension == "deb") {
                tool::output(Command::new("dpkg").arg("-x").arg(&deb).arg(into))?;
                fs::remove_file(&deb).context("remove", &deb)?;
            }
        }
        Ok(())
    }

    fn resolve(&self) -> Option<Vec<String>> {
        META_PACKAGES.iter().find_map(|meta| {
            let image = self.depends(meta, "linux-image-")?.into_iter().next()?;
            // In Ubuntu the modules are in a separate package.
            let mut packages = self.depends(&image, "linux-modules-").unwrap_or_default();
            packages.insert(0, image);
            Some(packages)
        })
    }

    fn depends(&self, package: &str, prefix: &str) -> Option<Vec<String>> {
        let listing = tool::output(self.command("apt-cache").args([
            "depends",
            "--no-recommends",
            "--no-suggests",
            package,
        ]));
        let found = parse_depends(&String::from_utf8_lossy(&listing.ok()?), prefix);
        (!found.is_empty()).then_some(found)
    }
}

fn parse_depends(listing: &str, prefix: &str) -> Vec<String> {
    listing
        .lines()
        .filter_map(|line| {
            line.trim()
                .trim_start_matches('|')
                .strip_prefix("Depends: ")
        })
        .filter(|name| name.starts_with(prefix) && name.contains(|c: char| c.is_ascii_digit()))
        .map(str::to_owned)
        .collect()
}

const META_PACKAGES: [&str; 3] = [
    "linux-image-amd64",
    "linux-image-virtual",
    "linux-image-generic",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concrete_packages_are_read_from_the_dependencies() {
        let debian = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n";
        assert_eq!(
            parse_depends(debian, "linux-image-"),
            ["linux-image-6.1.0-56-amd64"]
        );
        let ubuntu = "linux-image-6.8.0-31-generic\n  Depends: kmod\n |Depends: linux-base\n  \
            Depends: linux-modules-6.8.0-31-generic\n  Conflicts: linux-modules-1\n";
        assert_eq!(
            parse_depends(ubuntu, "linux-modules-"),
            ["linux-modules-6.8.0-31-generic"]
        );
        assert!(parse_depends("a\n  Depends: linux-image-generic", "linux-image-").is_empty());
    }

    #[test]
    fn kernel_without_its_modules_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        for path in ["boot", "lib/modules/6.1.0-9"] {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        for release in ["6.1.0-9", "6.2.0-1"] {
            fs::write(root.path().join(format!("boot/vmlinuz-{release}")), b"").unwrap();
        }
        assert_eq!(Kernel::newest_in(root.path()).unwrap().release, "6.1.0-9");
        assert!(Kernel::newest_in(&root.path().join("boot")).is_none());
    }
}
