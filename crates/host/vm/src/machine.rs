//! A virtual machine before it starts: its settings and its files.

mod command_line;
mod confined;
mod identity;
mod likeness;
mod start;

pub use self::confined::{can_be_user, can_sandbox};

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use carina_api::LocalName;
use carina_api::control::VmpiKind;

use crate::accel::Accel;
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::network::{Backend, Model, Nic, NicId};

pub(crate) use command_line::{Life, percent_encoded};

/// What the machine boots from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boot {
    /// A kernel and an initramfs, loaded by QEMU itself.
    Direct {
        /// Path of the kernel.
        kernel: PathBuf,
        /// Path of the initramfs. A machine's own files are appended to a copy of it.
        initramfs: PathBuf,
    },
    /// Xen, with a kernel and an initramfs as Dom0.
    Xen {
        /// Path of the hypervisor, uncompressed.
        hypervisor: PathBuf,
        /// Command line of the hypervisor, such as `dom0_mem=512M`.
        options: String,
        /// Path of Dom0's kernel.
        kernel: PathBuf,
        /// Path of Dom0's initramfs. A machine's own files are appended to a copy of it.
        initramfs: PathBuf,
    },
    /// A user's disk image, as qcow2 or another format that QEMU recognizes.
    Disk(PathBuf),
}

impl Boot {
    /// Obtains the kernel and builds the image. The result boots the two.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::obtain`] and [`Image::build`].
    pub fn prepare(cache: &Cache, image: &Image) -> Result<Boot> {
        let kernel = Kernel::obtain(cache)?;
        let initramfs = image.build(cache, &kernel)?;
        Ok(Boot::Direct {
            kernel: kernel.image,
            initramfs,
        })
    }
}

impl Boot {
    /// Path of the initramfs; `None` for a disk.
    pub(crate) fn initramfs(&self) -> Option<&Path> {
        match self {
            Boot::Direct { initramfs, .. } | Boot::Xen { initramfs, .. } => Some(initramfs),
            Boot::Disk(_) => None,
        }
    }

    /// Checks that a guest with `memory_mib` MiB can boot: while its kernel unpacks the image,
    /// memory holds the image twice. For a disk of the user there is no check.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] with the minimum that is needed.
    pub fn check_memory(&self, memory_mib: u32) -> Result<()> {
        let Some(initramfs) = self.initramfs() else {
            return Ok(());
        };
        let bytes = std::fs::metadata(initramfs).map_or(0, |file| file.len());
        let image = bytes.div_ceil(1 << 20);
        let least = 2 * image + KERNEL_MIB;
        if u64::from(memory_mib) >= least {
            return Ok(());
        }
        Err(Error::Invalid {
            what: format!("memory of {memory_mib} MiB"),
            reason: format!(
                "is too little to boot the guest: its image of {image} MiB is in memory twice \
                 while it is unpacked, so at least {least} MiB are needed"
            ),
        })
    }
}

/// Minimum memory of a kernel without its image, in MiB.
const KERNEL_MIB: u64 = 32;

/// Suffix of the volume with the seed, among the files of a machine that boots from a disk.
pub(crate) const SEED: &str = "seed";

/// Settings of a virtual machine that has not started.
///
/// All its files are `NAME.*` in the run directory.
#[derive(Debug, Clone)]
#[must_use]
pub struct Machine {
    name: String,
    run_dir: PathBuf,
    memory_mib: u32,
    cpus: u32,
    boot: Option<Boot>,
    accel: Option<Accel>,
    vmpi: Vec<(VmpiKind, PathBuf)>,
    nics: Vec<Nic>,
    ports: Option<u8>,
    iommu: bool,
    modules: Vec<String>,
    parameters: Vec<String>,
    commands: Vec<String>,
    when_cloned: Option<String>,
    runs_node: bool,
    files: Vec<(String, u32, Vec<u8>)>,
    private_files: Vec<(&'static str, Vec<u8>)>,
    extra_args: Vec<String>,
    launcher: Vec<OsString>,
    network: Option<PathBuf>,
    dies_with_parent: bool,
    confined: confined::Confined,
}

impl Machine {
    /// Starts with 256 MiB, one processor, and no device beyond two serial ports.
    ///
    /// # Errors
    ///
    /// When `name` is not well formed (letters, digits, `.`, `_`, `-`), or the paths of its sockets
    /// would be longer than a Unix socket's may be.
    pub fn new(name: &str, run_dir: impl Into<PathBuf>) -> Result<Machine> {
        let run_dir = run_dir.into();
        let bad = |reason: String| Error::Invalid {
            what: format!("machine name {name:?}"),
            reason,
        };
        let _: LocalName = name.parse().map_err(|error| bad(format!("{error}")))?;
        let longest = run_dir.join(format!("{name}.console"));
        let length = longest.as_os_str().len();
        if length > SOCKET_PATH_BYTES_MAX {
            return Err(bad(format!(
                "{} has {length} bytes; a Unix socket's path has at most {SOCKET_PATH_BYTES_MAX}: \
                 shorten the name or the run directory",
                longest.display()
            )));
        }
        Ok(Machine {
            name: name.to_owned(),
            run_dir,
            memory_mib: 256,
            cpus: 1,
            boot: None,
            accel: None,
            vmpi: Vec::new(),
            nics: Vec::new(),
            ports: None,
            iommu: false,
            modules: Vec::new(),
            parameters: Vec::new(),
            commands: Vec::new(),
            when_cloned: None,
            runs_node: false,
            files: Vec::new(),
            private_files: Vec::new(),
            extra_args: Vec::new(),
            launcher: Vec::new(),
            network: None,
            dies_with_parent: false,
            confined: confined::Confined::default(),
        })
    }

    /// Sets what the machine boots. Without this setting [`Machine::start`] fails.
    pub fn boot(mut self, boot: Boot) -> Machine {
        self.boot = Some(boot);
        self
    }

    /// Sets the memory, in MiB. Guests of [`Image`] need 128.
    pub fn memory_mib(mut self, memory_mib: u32) -> Machine {
        self.memory_mib = memory_mib;
        self
    }

    /// Sets the number of processors.
    pub fn cpus(mut self, cpus: u32) -> Machine {
        self.cpus = cpus;
        self
    }

    /// Sets the accelerator instead of probing for it.
    pub fn accel(mut self, accel: Accel) -> Machine {
        self.accel = Some(accel);
        self
    }

    /// Adds a shared-memory device on a socket that QEMU makes and listens on. QEMU runs no guest
    /// instruction until the node has connected to each and has sent the memory.
    pub fn ivshmem(self, socket: impl Into<PathBuf>) -> Machine {
        self.vmpi(VmpiKind::Ivshmem, socket)
    }

    /// Like [`Machine::ivshmem`], for a device of the given kind.
    pub fn vmpi(mut self, kind: VmpiKind, socket: impl Into<PathBuf>) -> Machine {
        self.vmpi.push((kind, socket.into()));
        match kind {
            // The second is the driver of the bus on which the device lies.
            VmpiKind::Vsock => self.module(VSOCK_MODULE).module("virtio_pci"),
            _ => self,
        }
    }

    /// Adds a network card, and has the guest load its driver.
    pub fn nic(mut self, nic: Nic) -> Machine {
        for module in nic.model.modules() {
            self = self.module(module);
        }
        self.nics.push(nic);
        self
    }

    /// Reserves PCI ports for `free` more cards while the machine runs ([`Running::add_nic`]). Each
    /// virtio card that the machine starts with then has a port of its own too, so that it can be
    /// removed. A machine has at most 16 such ports.
    ///
    /// [`Running::add_nic`]: crate::Running::add_nic
    pub fn ports(mut self, free: u8) -> Machine {
        for module in Model::VirtioNet.modules() {
            self = self.module(module);
        }
        self.ports = Some(free);
        self
    }

    /// Gives the machine an Intel IOMMU, and has the guest load VFIO: its node then takes doorbell
    /// interrupts in user space.
    pub fn iommu(mut self) -> Machine {
        self.iommu = true;
        self.parameters.push("intel_iommu=on".into());
        // VFIO would ask modprobe for the IOMMU's back end, and a guest has none.
        self.module("vfio_iommu_type1").module("vfio_pci")
    }

    /// Has the guest load a kernel module of its image.
    pub fn module(mut self, name: &str) -> Machine {
        let name = name.replace('-', "_");
        if !self.modules.contains(&name) {
            self.modules.push(name);
        }
        self
    }

    /// Adds a word to the kernel's command line. `MODULE.PARAMETER=VALUE` is for a module that the
    /// guest loads.
    pub fn parameter(mut self, word: impl Into<String>) -> Machine {
        self.parameters.push(word.into());
        self
    }

    /// Adds a shell command that the guest runs after its boot. A clone
    /// ([`Machine::start_clone`]) does not boot: it runs the command after it has taken its
    /// identity (name, addresses, files). Output goes to the guest's console. Several commands run
    /// one after another, in the order of these calls.
    pub fn command(mut self, command: &str) -> Machine {
        self.commands.push(command.to_owned());
        self
    }

    /// Sets a script, as for [`Running::run`], that a clone runs after it has taken its identity
    /// and before its commands. Script and identity go to the guest in one request, which saves a
    /// round trip. If the script exits with a status other than 0, the machine does not start. A
    /// machine that boots does not run the script.
    ///
    /// [`Running::run`]: crate::Running::run
    pub fn when_cloned(mut self, script: &str) -> Machine {
        self.when_cloned = Some(script.to_owned());
        self
    }

    /// Puts a file into the guest before it boots.
    pub fn file(mut self, guest_path: &str, mode: u32, data: impl Into<Vec<u8>>) -> Machine {
        self.files.push((guest_path.to_owned(), mode, data.into()));
        self
    }

    /// Sets environment variables of all processes in the guest, including ssh sessions.
    pub fn environment(self, variables: &[(&str, &str)]) -> Machine {
        let lines = variables.iter();
        let lines = lines.map(|(name, value)| format!("{name}={value}\n"));
        let text = lines.collect::<String>();
        self.file("/etc/environment", 0o644, text.clone()).file(
            "/root/.ssh/environment",
            0o600,
            text,
        )
    }

    /// Writes the file `NAME.KIND` into the run directory of the machine `NAME`; only the owner can
    /// read the file. It is removed with the machine.
    pub(crate) fn private_file(mut self, kind: &'static str, data: impl Into<Vec<u8>>) -> Machine {
        self.private_files.push((kind, data.into()));
        self
    }

    /// Gives the guest a configuration with which it runs `carina node`. The guest restarts the
    /// node whenever the node ends.
    pub fn node_config(mut self, toml: &str) -> Machine {
        self.runs_node = true;
        self.file("/etc/carina.toml", 0o644, toml)
    }

    /// Adds arguments for QEMU.
    pub fn extra_args<I: IntoIterator<Item: Into<String>>>(mut self, args: I) -> Machine {
        self.extra_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Makes QEMU listen on a new socket for a guest that another QEMU sends
    /// ([`Running::migrate`]). Both machines must have the same memory and devices.
    ///
    /// [`Running::migrate`]: crate::Running::migrate
    pub fn incoming(self, socket: &Path) -> Machine {
        self.extra_args(["-incoming".to_owned(), format!("unix:{}", socket.display())])
    }

    /// Starts QEMU through another program, such as a sandbox, which then executes QEMU (exec(2)).
    /// `words` is that program with its arguments; QEMU's command line follows them.
    pub fn launcher<I: IntoIterator<Item: Into<OsString>>>(mut self, words: I) -> Machine {
        self.launcher = words.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the network namespace with the taps of the machine's cards. `file` is the file that
    /// names the namespace. QEMU starts in it. A QEMU of a [`Pool`](crate::Pool) already runs
    /// elsewhere: Carina opens the taps in the namespace and hands them to it.
    pub fn network_namespace(mut self, file: impl Into<PathBuf>) -> Machine {
        self.network = Some(file.into());
        self
    }

    /// Makes the kernel kill QEMU when the *thread* that starts it ends, for whatever reason.
    pub fn dies_with_parent(mut self) -> Machine {
        self.dies_with_parent = true;
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// The cards that are plugged in.
    pub(crate) fn plugged(&self) -> impl Iterator<Item = (NicId, &Nic)> {
        let all = (0..).map(NicId).zip(&self.nics);
        all.filter(|(_, nic)| nic.backend != Backend::Unplugged)
    }

    /// The identifiers of all cards, plugged in or not.
    pub(crate) fn card_ids(&self) -> impl Iterator<Item = NicId> + use<> {
        (0..).map(NicId).take(self.nics.len())
    }

    /// File of the network namespace with the machine's taps.
    pub(crate) fn taps_in(&self) -> Option<&Path> {
        self.network.as_deref()
    }

    /// The memory in MiB.
    pub(crate) fn memory(&self) -> u32 {
        self.memory_mib
    }

    /// The number of processors.
    pub(crate) fn processors(&self) -> u32 {
        self.cpus
    }

    /// The number of cards.
    pub(crate) fn cards(&self) -> usize {
        self.nics.len()
    }

    /// What the machine boots; `None` if this is not set yet.
    pub(crate) fn boot_source(&self) -> Option<&Boot> {
        self.boot.as_ref()
    }

    fn path(&self, kind: &str) -> PathBuf {
        self.run_dir.join(format!("{}.{kind}", self.name))
    }
}

/// The kernel module by which a guest uses its vsock device.
const VSOCK_MODULE: &str = "vmw_vsock_virtio_transport";

/// `sun_path` has 108 bytes, one of which is the NUL (unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    fn direct() -> Boot {
        Boot::Direct {
            kernel: "/k".into(),
            initramfs: "/i".into(),
        }
    }

    fn line(machine: &Machine, accel: Accel) -> String {
        let args = machine.qemu_args(accel).unwrap();
        args.iter()
            .map(|arg| arg.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn command_line_holds_what_was_asked_for() {
        let nic = Nic {
            model: Model::E1000,
            backend: Backend::User(vec![]),
            mac: None,
        };
        let machine = Machine::new("a", "/run/x")
            .unwrap()
            .boot(direct())
            .memory_mib(300)
            .cpus(2)
            .ivshmem("/run/x/a.sock")
            .nic(nic)
            .command("echo 100% sure")
            .extra_args(["-device", "edu"]);
        let line = line(&machine, Accel::Tcg);
        for want in [
            "-name a",
            "-m size=307208K -smp 2",
            "-accel tcg,thread=multi,tb-size=256 -cpu max,-erms",
            "socket,path=/run/x/a.sock,id=carina-a-0,server=on,wait=on",
            "ivshmem-doorbell,vectors=32,chardev=carina-a-0",
            "e1000,id=nic0,netdev=net0,romfile=",
            "carina.modules=e1000",
            "carina.cmd=echo%20100%25%20sure",
            "-kernel /k -initrd /i",
            "-device edu",
        ] {
            assert!(line.contains(want), "{want} is not in {line}");
        }
    }

    #[test]
    fn own_files_make_an_own_initramfs() {
        let machine = Machine::new("a", "/run/x")
            .unwrap()
            .boot(direct())
            .node_config("");
        let line = line(&machine, Accel::Kvm);
        assert!(line.contains("-initrd /run/x/a.initrd"), "{line}");
        assert!(line.contains("carina.node=1"), "{line}");
        assert!(line.contains("-m size=256M -smp 1"), "{line}");
    }

    #[test]
    fn memory_that_cannot_hold_the_image_twice_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let initramfs = directory.path().join("i");
        let file = std::fs::File::create(&initramfs).unwrap();
        file.set_len(50 << 20).unwrap();
        let kernel = "/k".into();
        let boot = Boot::Direct { kernel, initramfs };
        boot.check_memory(132).unwrap();
        let message = boot.check_memory(131).unwrap_err().to_string();
        assert!(
            message.starts_with("memory of 131 MiB: is too little to boot")
                && message.contains("132"),
            "{message}"
        );
        Boot::Disk("/d".into()).check_memory(1).unwrap();
    }

    #[test]
    fn unusable_names_and_machines_are_refused_with_the_reason() {
        let refusal = |name: &str, dir: &str| Machine::new(name, dir).unwrap_err().to_string();
        assert!(refusal("a/b", "/run").contains("a/b"));
        assert!(refusal("", "/run").contains("name"));
        assert!(refusal("a", &"/long".repeat(30)).contains("107"));
        let error = Machine::new("a", "/run")
            .unwrap()
            .qemu_args(Accel::Tcg)
            .unwrap_err();
        assert!(error.to_string().contains("nothing to boot"), "{error}");
    }
}
