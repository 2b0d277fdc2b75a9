//! The command lines of QEMU and of the guest's kernel.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use carina_api::control::VmpiKind;
use carina_api::qemu::{escape, vmpi_args};

use super::{Boot, Machine, SEED};
use crate::accel::Accel;
use crate::error::{Error, Result};
use crate::hardware::Hardware;
use crate::kernel;
use crate::network::{Backend, Model, Nic, NicId};

/// How the guest gets to run in this QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life<'a> {
    /// The guest boots in this QEMU.
    Cold,
    /// The guest boots with its memory in a file, to become a template for clones.
    Template(&'a Path),
    /// The guest continues from a template, in a private copy of the template's memory file, once
    /// QEMU has received the state and the command to resume.
    Clone {
        /// Path of the template's memory file.
        memory: &'a Path,
        /// Key of the template.
        key: &'a str,
    },
    /// The guest arrives from another QEMU, or from a file.
    Awaiting {
        /// The hardware that the guest had there.
        hardware: &'a Hardware,
        /// The cards that are plugged into something.
        cards: &'a BTreeMap<NicId, Nic>,
    },
}

impl Life<'_> {
    /// Whether the guest has booted earlier, in another QEMU.
    pub(super) fn is_continued(self) -> bool {
        matches!(self, Life::Clone { .. } | Life::Awaiting { .. })
    }

    /// Whether the machine becomes a template, or comes from one.
    fn is_of_template(self) -> bool {
        match self {
            Life::Cold => false,
            Life::Template(_) | Life::Clone { .. } => true,
            Life::Awaiting { hardware, .. } => hardware.template.is_some(),
        }
    }
}

/// Additional memory in KiB that makes the size odd. QEMU accepts sizes in multiples of 8 KiB.
const ODD_KIB: u64 = 8;

impl Machine {
    /// The QEMU arguments for an accelerator.
    ///
    /// # Errors
    ///
    /// [`Machine::boot`] was not called, or the machine has too many ports.
    pub fn qemu_args(&self, accel: Accel) -> Result<Vec<OsString>> {
        self.args_of_life(accel, Life::Cold)
    }

    pub(crate) fn args_of_life(&self, accel: Accel, life: Life<'_>) -> Result<Vec<OsString>> {
        let mut args: Vec<OsString> = Vec::new();
        let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
        add(&[
            "-name",
            &self.name,
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
        ]);
        let mut machine = match life {
            Life::Awaiting { hardware, .. } => hardware.machine.clone(),
            _ => String::from("q35"),
        };
        if self.iommu && accel == Accel::Kvm {
            machine.push_str(",kernel-irqchip=split");
        }
        if let Some(memory) = self.memory_object(life, accel) {
            machine.push_str(",memory-backend=memory");
            add(&["-object", &memory]);
        }
        add(&["-machine", &machine]);
        add(&accel.qemu_args());
        add(&[
            "-m",
            &format!("size={}", self.memory_size(accel)),
            "-smp",
            &self.cpus.to_string(),
        ]);
        for (id, log) in [("console", true), ("agent", false)] {
            let mut chardev = format!(
                "socket,id={id},path={},server=on,wait=off",
                escape(&self.path(id))
            );
            if log {
                chardev.push_str(&format!(
                    ",logfile={},logappend=off",
                    escape(&self.path("log"))
                ));
            }
            add(&["-chardev", &chardev, "-serial", &format!("chardev:{id}")]);
        }
        // QEMU serves one client on each monitor. One monitor is for requests, the other for a
        // client that waits for events.
        for id in ["qmp", "events"] {
            let socket = escape(&self.path(id));
            let chardev = format!("socket,id={id},path={socket},server=on,wait=off");
            let monitor = format!("chardev={id},mode=control");
            add(&["-chardev", &chardev, "-mon", &monitor]);
        }
        if self.iommu {
            add(&["-device", "intel-iommu,intremap=on,caching-mode=on"]);
        }
        for (index, (kind, socket)) in self.vmpi.iter().enumerate() {
            let name = format!("{}-{index}", self.name);
            let device = vmpi_args(&name, *kind, socket);
            args.extend(device.into_iter().map(OsString::from));
        }
        match life {
            Life::Awaiting { hardware, cards } => awaiting_args(hardware, cards, accel, &mut args),
            _ => self.card_args(accel, &mut args)?,
        }
        if life.is_of_template() {
            // The device tells the guest's kernel that it is a copy, so that it draws a new random
            // seed.
            args.extend(["-device", "vmgenid,guid=auto"].map(OsString::from));
        }
        if life.is_continued() {
            args.extend(["-incoming", "defer", "-S"].map(OsString::from));
        }
        args.extend(self.confined.qemu_args());
        self.boot_args(accel, life, &mut args)?;
        args.extend(self.extra_args.iter().map(OsString::from));
        Ok(args)
    }

    fn memory_object(&self, life: Life<'_>, accel: Accel) -> Option<String> {
        let queues =
            |(kind, _): &(VmpiKind, _)| matches!(kind, VmpiKind::Virtqueue | VmpiKind::Vsock);
        let is_shared = self.vmpi.iter().any(queues) || self.nics.iter().any(Nic::shares_memory);
        let file = |path: &Path, share: &str| {
            let path = escape(path);
            format!("memory-backend-file,mem-path={path},share={share}")
        };
        let kind = match life {
            Life::Template(path) => file(path, "on"),
            Life::Clone { memory, .. } => file(memory, "off"),
            // The memory of a clone has this name in QEMU's state, wherever it is.
            Life::Awaiting { .. } if life.is_of_template() => "memory-backend-ram".to_owned(),
            _ if is_shared => "memory-backend-memfd,share=on".to_owned(),
            Life::Cold | Life::Awaiting { .. } => return None,
        };
        Some(format!("{kind},id=memory,size={}", self.memory_size(accel)))
    }

    /// The size of the memory, for QEMU.
    ///
    /// While QEMU 7.2 migrates an emulated guest, it finds the pages that the guest has written in
    /// one of two ways. The faster one is for memory that is a multiple of 256 KiB. It fails to
    /// tell the emulated processors that a new round begins: writes through addresses that they had
    /// translated before are missed, and the guest is corrupted. Emulated guests therefore have
    /// slightly more memory, so that QEMU uses the other way.
    fn memory_size(&self, accel: Accel) -> String {
        match accel {
            Accel::Kvm => format!("{}M", self.memory_mib),
            Accel::Tcg => format!("{}K", u64::from(self.memory_mib) * 1024 + ODD_KIB),
        }
    }

    /// Ports for cards that are plugged in while the machine runs, and the cards it starts with.
    fn card_args(&self, accel: Accel, args: &mut Vec<OsString>) -> Result<()> {
        let mut port_of_card = vec![None; self.nics.len()];
        if let Some(free) = self.ports {
            let mut ports = 0;
            for (port, nic) in port_of_card.iter_mut().zip(&self.nics) {
                if nic.model == Model::VirtioNet {
                    *port = Some(format!("port{ports}"));
                    ports += 1;
                }
            }
            let ports = ports + usize::from(free);
            if ports > PORTS_MAX {
                return Err(Error::Invalid {
                    what: format!("machine {}", self.name),
                    reason: format!(
                        "needs {ports} ports for its cards and for cards added later; at most \
                         {PORTS_MAX} are possible"
                    ),
                });
            }
            (0..ports).for_each(|port| args.extend(port_args(port)));
        }
        for (id, (nic, port)) in (0..).map(NicId).zip(self.nics.iter().zip(&port_of_card)) {
            let words = nic.qemu_args(id, port.as_deref(), accel);
            args.extend(words.into_iter().map(OsString::from));
        }
        Ok(())
    }

    fn boot_args(&self, accel: Accel, life: Life<'_>, args: &mut Vec<OsString>) -> Result<()> {
        match &self.boot {
            None => Err(Error::Invalid {
                what: format!("machine {}", self.name),
                reason: "has nothing to boot; give it an image or a disk".into(),
            }),
            Some(Boot::Disk(disk)) => {
                // Without the last word, QEMU opens the disk for writing when the guest resumes, as
                // a user who may not.
                let drive = format!("file={},if=virtio,auto-read-only=off", escape(disk));
                args.extend(["-drive", &drive].map(OsString::from));
                if self.private_files.iter().any(|(kind, _)| *kind == SEED) {
                    let file = escape(&self.path(SEED));
                    let drive = format!("file={file},if=virtio,format=raw,readonly=on");
                    args.extend(["-drive", &drive].map(OsString::from));
                }
                Ok(())
            }
            Some(Boot::Xen {
                hypervisor,
                options,
                kernel,
                initramfs,
            }) => {
                let own = self.path("initrd");
                let initramfs = if self.files.is_empty() {
                    initramfs
                } else {
                    &own
                };
                args.extend([OsString::from("-kernel"), hypervisor.into()]);
                // The modules of the multiboot protocol: path, arguments; a comma separates two.
                let line = self.kernel_command_line(accel).replace(',', ",,");
                let modules = format!(
                    "{} {line} console=hvc0,{}",
                    escape(kernel),
                    escape(initramfs)
                );
                args.extend([OsString::from("-initrd"), modules.into()]);
                let options = format!("console=com1 com1=115200 {options}");
                args.extend([OsString::from("-append"), options.into()]);
                Ok(())
            }
            Some(Boot::Direct { kernel, initramfs }) => {
                let own = self.path("initrd");
                // A clone gets its files through the command port.
                let initramfs = if self.files.is_empty() || life.is_continued() {
                    initramfs
                } else {
                    &own
                };
                args.extend([OsString::from("-kernel"), kernel.into()]);
                args.extend([OsString::from("-initrd"), initramfs.into()]);
                args.extend([
                    OsString::from("-append"),
                    self.kernel_command_line(accel).into(),
                ]);
                Ok(())
            }
        }
    }

    fn kernel_command_line(&self, accel: Accel) -> String {
        let emulated = match accel {
            Accel::Kvm => "",
            Accel::Tcg => kernel::EMULATED,
        };
        let parameters = kernel::PARAMETERS;
        let mut line = format!("{parameters}{emulated} carina.name={}", self.name);
        if !self.modules.is_empty() {
            line.push_str(&format!(" carina.modules={}", self.modules.join(",")));
        }
        if self.runs_node {
            line.push_str(" carina.node=1");
        }
        if !self.commands.is_empty() {
            line.push_str(" carina.cmd=");
            line.push_str(&percent_encoded(&self.commands.join("\n")));
        }
        for word in &self.parameters {
            line.push(' ');
            line.push_str(word);
        }
        line
    }
}

/// The ports and cards of a machine that awaits a guest.
fn awaiting_args(
    hardware: &Hardware,
    cards: &BTreeMap<NicId, Nic>,
    accel: Accel,
    args: &mut Vec<OsString>,
) {
    (0..hardware.ports as usize).for_each(|port| args.extend(port_args(port)));
    for card in &hardware.cards {
        let id = card.nic();
        let unplugged = Nic {
            model: Model::VirtioNet,
            backend: Backend::Unplugged,
            mac: None,
        };
        let mut nic = cards.get(&id).cloned().unwrap_or(unplugged);
        nic.mac = Some(card.mac);
        let words = nic.qemu_args(id, Some(&format!("port{}", card.port)), accel);
        args.extend(words.into_iter().map(OsString::from));
    }
}

/// A PCI port for one card.
fn port_args(port: usize) -> [OsString; 2] {
    let slot = port + 1;
    // The reservation is what a shared-memory device of 16 MiB needs behind a port.
    let device = format!(
        "pcie-root-port,id=port{port},bus=pcie.0,chassis={slot},slot={slot},pref64-reserve=32M"
    );
    ["-device".into(), device.into()]
}

pub(crate) fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'/' | b'.' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02x}")),
        }
    }
    encoded
}

/// Largest number of ports, with room for a shared-memory device each, behind q35.
const PORTS_MAX: usize = 16;
