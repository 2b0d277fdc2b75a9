//! What to add to a virtual machine that Carina does not start.
//!
//! Two ways round. With QEMU listening (`server=on`) the node connects, and connects again after
//! its own restart, so the VM stays attached: this is [`qemu_args`]. libvirt's own `<shmem>`
//! element has QEMU connect to the node instead, and QEMU never connects a second time: after the
//! node restarts such a VM polls without doorbells, or is restarted. [`libvirt_xml`] therefore
//! uses libvirt's pass-through of QEMU arguments.

use std::path::Path;

/// The QEMU arguments that attach a VM to the node's socket `ivshmem`.
pub fn qemu_args(name: &str, ivshmem: &Path) -> Vec<String> {
    let id = format!("carina-{name}");
    vec![
        "-chardev".into(),
        format!("socket,path={},id={id},server=on,wait=on", escape(ivshmem)),
        "-device".into(),
        format!("ivshmem-doorbell,vectors=32,chardev={id}"),
    ]
}

/// The same as children of a libvirt `<domain>`, whose root element needs
/// `xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'`.
///
/// libvirt does not see the device, and gives slots of the PCI bus to its own from 1 upwards; hence
/// one far up.
pub fn libvirt_xml(name: &str, ivshmem: &Path) -> String {
    let mut xml = String::from("<qemu:commandline>\n");
    let mut arguments = qemu_args(name, ivshmem);
    if let Some(device) = arguments.last_mut() {
        device.push_str(",addr=0x18");
    }
    for argument in arguments {
        xml.push_str(&format!(
            "  <qemu:arg value='{}'/>\n",
            xml_attribute(&argument)
        ));
    }
    xml.push_str("</qemu:commandline>\n");
    xml
}

/// A path inside a QEMU option, where a comma ends a value unless it is doubled.
pub(crate) fn escape(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

fn xml_attribute(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('\'', "&apos;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_qemu_and_xml_quoting() {
        let path = Path::new("/run/a,b/it's");
        let args = qemu_args("vm1", path);
        assert_eq!(
            args[1],
            "socket,path=/run/a,,b/it's,id=carina-vm1,server=on,wait=on"
        );
        assert_eq!(args[3], "ivshmem-doorbell,vectors=32,chardev=carina-vm1");
        let xml = libvirt_xml("vm1", path);
        assert!(xml.contains("path=/run/a,,b/it&apos;s,id=carina-vm1"));
        assert!(xml.contains("chardev=carina-vm1,addr=0x18'/>"), "{xml}");
    }
}
