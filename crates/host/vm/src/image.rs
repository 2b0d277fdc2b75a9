//! The image: the guest's root directory as an initramfs, with its first process, busybox, `carina`
//! and kernel modules.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cache::{Cache, write_whole};
use crate::cpio::Archive;
use crate::elf;
use crate::error::{Context, Error, Result};
use crate::hash::Hash;
use crate::kernel::Kernel;
use crate::modules::Index;
use crate::tool;

/// Path of the program that a guest runs. It is the small program `carina-guest` in the directory
/// of `own`, if that file exists; otherwise `own`, which is a program of Carina.
pub fn guest_program(own: &Path) -> PathBuf {
    let path = own.with_file_name("carina-guest");
    if path.is_file() { path } else { own.to_owned() }
}

/// The files and modules that a guest's image will contain; [`Image::build`] builds it.
#[derive(Debug, Clone, Default)]
pub struct Image {
    files: Vec<(String, u32, Vec<u8>)>,
    programs: Vec<(String, PathBuf)>,
    modules: BTreeSet<String>,
}

impl Image {
    /// Starts an image with the first process, busybox, and [`Image::STOCK_MODULES`].
    pub fn new() -> Image {
        let modules = Image::STOCK_MODULES
            .iter()
            .map(|name| (*name).to_owned())
            .collect();
        Image {
            modules,
            ..Image::default()
        }
    }

    /// The modules in every image. A guest loads those that its machine needs.
    pub const STOCK_MODULES: &[&str] = &[
        "virtio_pci",
        "virtio_net",
        "e1000",
        "e1000e",
        "vfio_iommu_type1",
        "vfio_pci",
        "tun",
        "vmw_vsock_virtio_transport",
    ];

    /// Adds the node's program as `/bin/carina`: [`guest_program`] of `own`.
    ///
    /// # Errors
    ///
    /// As for [`Image::program`].
    pub fn node(self, own: &Path) -> Result<Image> {
        self.program("/bin/carina", &guest_program(own))
    }

    /// Adds an executable of the host, stripped of symbols. If it is not static, adds its shared
    /// libraries.
    ///
    /// # Errors
    ///
    /// The program cannot be read, is not an ELF program, or lacks a library.
    pub fn program(self, guest_path: &str, program: &Path) -> Result<Image> {
        let libraries = elf::shared_libraries(program)?;
        Ok(self.with_libraries(libraries, guest_path, program))
    }

    /// Adds a shared library of the host that programs load at run time, stripped of symbols, with
    /// the libraries that it needs.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not a shared library, or lacks a library.
    pub fn library(self, guest_path: &str, library: &Path) -> Result<Image> {
        let libraries = elf::needed(library, None)?;
        Ok(self.with_libraries(libraries, guest_path, library))
    }

    fn with_libraries(
        mut self,
        libraries: Vec<PathBuf>,
        guest_path: &str,
        program: &Path,
    ) -> Image {
        for library in libraries {
            let path = library.to_string_lossy().into_owned();
            if !self.programs.iter().any(|(known, _)| *known == path) {
                self.programs.push((path, library));
            }
        }
        self.programs
            .push((guest_path.to_owned(), program.to_owned()));
        self
    }

    /// Like [`Image::program`]; shared libraries are also looked for in the directory `libraries`.
    pub(crate) fn program_with_libraries(
        mut self,
        guest_path: &str,
        program: &Path,
        libraries: &Path,
    ) -> Result<Image> {
        for library in elf::libraries_from(program, Some(libraries))? {
            // In the guest all libraries are where the loader looks for them.
            let path = match library.strip_prefix(libraries) {
                Ok(name) => format!("/lib/x86_64-linux-gnu/{}", name.display()),
                Err(_) => library.to_string_lossy().into_owned(),
            };
            if !self.programs.iter().any(|(known, _)| *known == path) {
                self.programs.push((path, library));
            }
        }
        self.programs
            .push((guest_path.to_owned(), program.to_owned()));
        Ok(self)
    }

    /// Adds a file with the given permission bits.
    pub fn file(mut self, guest_path: &str, mode: u32, data: impl Into<Vec<u8>>) -> Image {
        self.files.push((guest_path.to_owned(), mode, data.into()));
        self
    }

    /// Adds a kernel module that is not a stock module.
    pub fn module(mut self, name: &str) -> Image {
        self.modules.insert(name.replace('-', "_"));
        self
    }

    /// Builds the image for `kernel`. If the cache has an image with the same contents, returns
    /// that one.
    ///
    /// # Errors
    ///
    /// busybox is missing or not static, a module does not exist, or the cache cannot be written.
    pub fn build(&self, cache: &Cache, kernel: &Kernel) -> Result<PathBuf> {
        let busybox = busybox()?;
        let name = self.hash(&busybox, kernel)?;
        let _lock = cache.lock()?;
        let path = cache.path("images").join(format!("{name}.cpio"));
        if !path.is_file() {
            let bytes = self.archive(cache, &busybox, kernel)?;
            write_whole(&path, &bytes)?;
            forget_old_images(&cache.path("images"), &path);
        }
        Ok(path)
    }

    fn hash(&self, busybox: &Path, kernel: &Kernel) -> Result<Hash> {
        let mut hash = Hash::new();
        hash.field(INIT);
        hash.field(KEEP_NODE.as_bytes());
        hash.field(kernel.release.as_bytes());
        hash.field(&fs::read(busybox).context("read", busybox)?);
        for name in &self.modules {
            hash.field(name.as_bytes());
        }
        for (guest_path, path) in &self.programs {
            hash.field(guest_path.as_bytes());
            hash.field(&fs::read(path).context("read", path)?);
        }
        for (guest_path, mode, data) in &self.files {
            hash.field(guest_path.as_bytes());
            hash.field(&mode.to_le_bytes());
            hash.field(data);
        }
        Ok(hash)
    }

    fn archive(&self, cache: &Cache, busybox: &Path, kernel: &Kernel) -> Result<Vec<u8>> {
        let mut archive = base(busybox)?;
        let index = Index::read(&kernel.modules)?;
        let mut packed = BTreeSet::new();
        for name in &self.modules {
            let mut order = String::new();
            for module in index.closure(name)? {
                let path = format!("/lib/modules/{}.ko", module.name);
                order.push_str(&format!("{path}\n"));
                if packed.insert(path.clone()) {
                    archive.file(&path, 0o644, &module.object);
                }
            }
            archive.file(&format!("/lib/carina/{name}"), 0o644, order.as_bytes());
        }
        for (guest_path, path) in &self.programs {
            archive.file(guest_path, 0o755, &stripped(cache, path)?);
        }
        for (guest_path, mode, data) in &self.files {
            archive.file(guest_path, *mode, data);
        }
        Ok(archive.finish())
    }
}

/// A root directory that boots to a shell and contains nothing else.
fn base(busybox: &Path) -> Result<Archive> {
    let mut archive = Archive::new();
    // The kernel opens it for the first process before anything is mounted.
    archive.character_device("/dev/console", 0o600, 5, 1);
    for directory in ["/proc", "/sys", "/run", "/tmp", "/root", "/var/log", "/etc"] {
        archive.directory(directory);
    }
    archive.file(
        "/bin/busybox",
        0o755,
        &fs::read(busybox).context("read", busybox)?,
    );
    let listing = tool::output(Command::new(busybox).arg("--list"))?;
    for applet in String::from_utf8_lossy(&listing).split_whitespace() {
        if applet != "busybox" {
            archive.symlink(&format!("/bin/{applet}"), "/bin/busybox");
        }
    }
    archive.file("/etc/passwd", 0o644, b"root::0:0:root:/root:/bin/sh\n");
    archive.file("/etc/group", 0o644, b"root:x:0:\n");
    archive.file("/init", 0o755, INIT);
    archive.file("/sbin/keep-node", 0o755, KEEP_NODE.as_bytes());
    Ok(archive)
}

/// The image for probing the accelerator: it prints `marker` on the console and powers off.
pub(crate) fn probe_archive(marker: &str) -> Result<Vec<u8>> {
    let mut archive = base(&busybox()?)?;
    let script = format!(
        "#!/bin/busybox sh\n/bin/busybox mount -t proc proc /proc\necho {marker}\n\
         /bin/busybox poweroff -f\n"
    );
    archive.file("/init", 0o755, script.as_bytes());
    Ok(archive.finish())
}

fn busybox() -> Result<PathBuf> {
    let path = tool::find("busybox", "busybox-static")?;
    if elf::is_static(&path)? {
        return Ok(path);
    }
    Err(Error::Invalid {
        what: path.display().to_string(),
        reason: "needs shared libraries, which a guest lacks; install busybox-static".into(),
    })
}

/// The program without symbols, if the host has `strip`. Otherwise unchanged, which only boots
/// slower.
fn stripped(cache: &Cache, program: &Path) -> Result<Vec<u8>> {
    let out = cache.path(&format!("strip.{}.part", std::process::id()));
    if let Ok(strip) = tool::find("strip", "binutils") {
        let mut command = Command::new(strip);
        if tool::output(command.arg("-o").arg(&out).arg(program)).is_ok() {
            let bytes = fs::read(&out).context("read", &out);
            let _ = fs::remove_file(&out);
            return bytes;
        }
    }
    fs::read(program).context("read", program)
}

/// Removes old images except the newest few, because each build of `carina` creates another one.
/// An image that is not old may be in use: a test program builds its image once.
fn forget_old_images(directory: &Path, keep: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    let mut images: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let made = entry.metadata().ok()?.modified().ok()?;
            let is_old = made.elapsed().is_ok_and(|age| age > OLD);
            is_old.then(|| (made, entry.path()))
        })
        .filter(|(_, path)| path != keep)
        .collect();
    images.sort();
    let surplus = images.len().saturating_sub(IMAGES_KEPT);
    for (_, path) in images.into_iter().take(surplus) {
        // Another process may have removed it already.
        let _ = fs::remove_file(path);
    }
}

const IMAGES_KEPT: usize = 8;
const OLD: Duration = Duration::from_secs(3600);
/// The first process, from the crate `guest`; `build.rs` compiles it.
const INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest"));
const KEEP_NODE: &str = include_str!("../../../rina/guest/keep-node");
