//! Additions for a virtual machine that Carina does not start.
//!
//! There are two ways to connect. If QEMU listens (`server=on`), the node connects, and reconnects
//! after its own restart, so the VM stays attached. `carina_api::qemu` has these arguments. With
//! libvirt's `<shmem>` element, in contrast, QEMU connects to the node, and never connects a second
//! time: after a restart of the node such a VM polls without doorbells until the VM is restarted.
//! [`libvirt_xml`] therefore passes QEMU arguments through libvirt.

/// Formats QEMU arguments as children of a libvirt `<domain>`, whose root element needs
/// `xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'`.
///
/// libvirt does not know the device, and assigns PCI slots from 1 upwards to its own devices. The
/// device therefore gets a high slot.
pub fn libvirt_xml(arguments: &[String]) -> String {
    let mut xml = String::from("<qemu:commandline>\n");
    let mut arguments = arguments.to_vec();
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

fn xml_attribute(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('\'', "&apos;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use carina_api::control::VmpiKind;

    use super::*;

    #[test]
    fn paths_survive_qemu_and_xml_quoting() {
        let path = Path::new("/run/a,b/it's");
        let args = carina_api::qemu::vmpi_args("vm1", VmpiKind::Ivshmem, path);
        let xml = libvirt_xml(&args);
        assert!(xml.contains("path=/run/a,,b/it&apos;s,id=carina-vm1"));
        assert!(xml.contains("chardev=carina-vm1,addr=0x18'/>"), "{xml}");
    }
}
