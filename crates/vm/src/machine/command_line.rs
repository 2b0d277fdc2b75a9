//! The command line of QEMU for a machine, and that of the kernel in it.

use std::ffi::OsString;

use carina_api::control::VmpiKind;
use carina_api::qemu::{escape, vmpi_args};

use super::{Boot, Machine};
use crate::accel::Accel;
use crate::error::{Error, Result};
use crate::kernel;
use crate::network::Nic;

impl Machine {
    /// The QEMU arguments, for an accelerator.
    ///
    /// # Errors
    ///
    /// When [`Machine::boot`] was not called.
    pub fn qemu_args(&self, accel: Accel) -> Result<Vec<OsString>> {
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
        let mut machine = String::from("q35");
        if self.iommu && accel == Accel::Kvm {
            machine.push_str(",kernel-irqchip=split");
        }
        let has_queues = self
            .vmpi
            .iter()
            .any(|(kind, _)| *kind == VmpiKind::Virtqueue);
        if has_queues || self.nics.iter().any(Nic::shares_memory) {
            machine.push_str(",memory-backend=shared");
            let memory = format!(
                "memory-backend-memfd,id=shared,size={}M,share=on",
                self.memory_mib
            );
            add(&["-object", &memory]);
        }
        add(&["-machine", &machine]);
        add(&accel.qemu_args());
        add(&[
            "-m",
            &self.memory_mib.to_string(),
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
        let qmp = format!(
            "socket,id=qmp,path={},server=on,wait=off",
            escape(&self.path("qmp"))
        );
        add(&["-chardev", &qmp, "-mon", "chardev=qmp,mode=control"]);
        if self.iommu {
            add(&["-device", "intel-iommu,intremap=on,caching-mode=on"]);
        }
        for (index, (kind, socket)) in self.vmpi.iter().enumerate() {
            let name = format!("{}-{index}", self.name);
            let device = vmpi_args(&name, *kind, socket);
            args.extend(device.into_iter().map(OsString::from));
        }
        for (index, nic) in self.nics.iter().enumerate() {
            args.extend(nic.qemu_args(index, accel).into_iter().map(OsString::from));
        }
        self.boot_args(&mut args)?;
        args.extend(self.extra_args.iter().map(OsString::from));
        Ok(args)
    }

    fn boot_args(&self, args: &mut Vec<OsString>) -> Result<()> {
        match &self.boot {
            None => Err(Error::Invalid {
                what: format!("machine {}", self.name),
                reason: "has nothing to boot; give it an image or a disk".into(),
            }),
            Some(Boot::Disk(disk)) => {
                let drive = format!("file={},if=virtio", escape(disk));
                args.extend(["-drive", &drive].map(OsString::from));
                Ok(())
            }
            Some(Boot::Direct { kernel, initramfs }) => {
                let own = self.path("initrd");
                let initramfs = if self.files.is_empty() {
                    initramfs
                } else {
                    &own
                };
                args.extend([OsString::from("-kernel"), kernel.into()]);
                args.extend([OsString::from("-initrd"), initramfs.into()]);
                args.extend([OsString::from("-append"), self.kernel_command_line().into()]);
                Ok(())
            }
        }
    }

    fn kernel_command_line(&self) -> String {
        let mut line = format!("{} carina.name={}", kernel::PARAMETERS, self.name);
        if !self.modules.is_empty() {
            line.push_str(&format!(" carina.modules={}", self.modules.join(",")));
        }
        for word in &self.parameters {
            line.push(' ');
            line.push_str(word);
        }
        line
    }
}
