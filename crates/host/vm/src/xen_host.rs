//! Xen and its tools, as packages of the host's distribution that are downloaded and unpacked but
//! never installed: for a machine whose hypervisor is Xen, with Carina's own guest as Dom0.
//!
//! Tests and benchmarks use it: Dom0 runs under QEMU, and starts its domains by `xl`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::{Cache, write_whole};
use crate::error::{Context, Result};
use crate::image::Image;
use crate::kernel::download;
use crate::tool;

/// The unpacked packages of Xen.
#[derive(Debug, Clone)]
pub struct XenHost {
    root: PathBuf,
}

impl XenHost {
    /// Returns Xen from the cache. If the cache has none, downloads and unpacks it first.
    ///
    /// # Errors
    /// The archive of this machine has no packages of Xen 4.17 (Debian 12 has them), or the network
    /// is not reachable.
    pub fn obtain(cache: &Cache) -> Result<XenHost> {
        let _lock = cache.lock()?;
        let root = cache.path("xen");
        if !root.join(HYPERVISOR).is_file() {
            let part = cache.path("xen.part");
            download(&cache.path("apt"), &PACKAGES, &part)?;
            let packed = part.join("boot/xen-4.17-amd64.gz");
            let gzip = tool::find("gzip", "gzip")?;
            let bytes = tool::output(Command::new(gzip).arg("-dc").arg(&packed))?;
            write_whole(&part.join(HYPERVISOR), &bytes)?;
            if root.exists() {
                fs::remove_dir_all(&root).context("remove", &root)?;
            }
            fs::rename(&part, &root).context("rename to", &root)?;
        }
        Ok(XenHost { root })
    }

    /// The hypervisor, as a file that QEMU boots.
    #[must_use]
    pub fn hypervisor(&self) -> PathBuf {
        self.root.join(HYPERVISOR)
    }

    /// Adds to the image what makes a guest Dom0: `xl`, the xenstore, the consoles of domains, the
    /// kernel modules, and `/sbin/start-xen`, which starts them.
    ///
    /// # Errors
    /// A tool or a library is missing.
    pub fn tools(&self, image: Image) -> Result<Image> {
        let mut image = MODULES.iter().fold(image, |image, name| image.module(name));
        let libraries = self.libraries();
        for (directory, tools) in [(TOOLS, &PRIVATE_TOOLS[..]), ("usr/bin", &STORE_TOOLS)] {
            for tool in tools {
                let path = self.root.join(directory).join(tool);
                let guest_path = format!("/{directory}/{tool}");
                image = image.program_with_libraries(&guest_path, &path, &libraries)?;
            }
        }
        // glibc loads it when a thread is cancelled.
        let unwinder = Path::new("/lib/x86_64-linux-gnu/libgcc_s.so.1");
        let bytes = fs::read(unwinder).context("read", unwinder)?;
        Ok(image
            .file("/lib/x86_64-linux-gnu/libgcc_s.so.1", 0o755, bytes)
            .file("/etc/xen/xl.conf", 0o644, "autoballoon=\"off\"\n")
            .file("/etc/xen/scripts/vif-bridge", 0o755, VIF_BRIDGE)
            .file("/sbin/start-xen", 0o755, START))
    }

    /// Adds a program that uses libraries of Xen.
    ///
    /// # Errors
    /// The program cannot be read, or lacks a library.
    pub fn program(&self, image: Image, guest_path: &str, program: &Path) -> Result<Image> {
        image.program_with_libraries(guest_path, program, &self.libraries())
    }

    /// The directory of the libraries.
    #[must_use]
    pub fn libraries(&self) -> PathBuf {
        self.root.join("usr/lib/x86_64-linux-gnu")
    }

    /// The kernel modules of Dom0, to be loaded in this order.
    pub const MODULES: &[&str] = &MODULES;
}

/// Adds the back end of a domain's card to its bridge. `xl` runs it with `online`, then with
/// `offline`.
const VIF_BRIDGE: &str = "#!/bin/sh\n[ \"$1\" = online ] || exit 0\nset -e\n\
    bridge=$(xenstore-read \"$XENBUS_PATH/bridge\")\n\
    ip link set dev \"$vif\" master \"$bridge\" || brctl addif \"$bridge\" \"$vif\"\n\
    ip link set dev \"$vif\" up\n\
    xenstore-write \"$XENBUS_PATH/hotplug-status\" connected\n";

/// Starts what Dom0 needs before `xl`.
const START: &str = "#!/bin/sh\nset -e\n\
    mkdir -p /run/xen /run/xenstored /run/lock /var/lib/xen /var/lib/xenstored /var/log/xen\n\
    [ -e /var/run ] || ln -s /run /var/run\n\
    [ -e /var/lock ] || ln -s /run/lock /var/lock\n\
    mount -t xenfs xenfs /proc/xen\n\
    cd /usr/lib/xen-4.17/bin\n\
    ./xenstored --pid-file /run/xenstored.pid\n\
    for i in 1 2 3 4 5 6 7 8 9; do xenstore-read / >/dev/null 2>&1 && break; sleep 1; done\n\
    ./xen-init-dom0\n\
    ./xenconsoled --log=guest --log-dir=/var/log/xen\n\
    ln -sf /usr/lib/xen-4.17/bin/xl /bin/xl\n";

const HYPERVISOR: &str = "boot/xen";
const TOOLS: &str = "usr/lib/xen-4.17/bin";
const PRIVATE_TOOLS: [&str; 7] = [
    "xl",
    "xenstored",
    "xenconsoled",
    "xenconsole",
    "xen-init-dom0",
    "libxl-save-helper",
    "lsevtchn",
];
const STORE_TOOLS: [&str; 4] = [
    "xenstore-read",
    "xenstore-write",
    "xenstore-list",
    "xenstore-ls",
];
const MODULES: [&str; 5] = [
    "xen_evtchn",
    "xen_gntdev",
    "xen_gntalloc",
    "xen_privcmd",
    "xenfs",
];

/// Debian's packages of Xen 4.17, with the libraries that `xl` needs.
const PACKAGES: [&str; 14] = [
    "xen-hypervisor-4.17-amd64",
    "xen-utils-4.17",
    "xenstore-utils",
    "libxenmisc4.17",
    "libxentoolcore1",
    "libxentoollog1",
    "libxencall1",
    "libxendevicemodel1",
    "libxenevtchn1",
    "libxenforeignmemory1",
    "libxengnttab1",
    "libxenhypfs1",
    "libxenstore4",
    "libyajl2",
];
