//! What to add to a virtual machine that Carina does not start.
//!
//! Two ways round. With QEMU listening (`server=on`) the node connects, and connects again after
//! its own restart, so the VM stays attached: these are the
//! arguments of `carina_api::qemu`. libvirt's own `<shmem>`
//! element has QEMU connect to the node instead, and QEMU never connects a second time: after the
//! node restarts such a VM polls without doorbells, or is restarted. [`libvirt_xml`] therefore
//! uses libvirt's pass-through of QEMU arguments.

/// QEMU arguments as children of a libvirt `<domain>`, whose root element needs
/// `xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'`.
///
/// libvirt does not see the device, and gives slots of the PCI bus to its own from 1 upwards; hence
/// one far up.
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
