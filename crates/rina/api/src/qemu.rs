//! QEMU arguments that give a VM a VMPI device.

use std::path::Path;

use carina_wire::vmpi::DEVICE_MAC;

use crate::control::VmpiKind;

/// Returns the arguments for a QEMU that listens on `socket` for the node; none for Xen. The ids of
/// the devices inside QEMU derive from `name`. With ivshmem-plain, `socket` is the file of the
/// region, which exists already. With virtqueues and with vsock, QEMU must also share the VM's
/// memory: a `memory-backend-memfd` with `share=on`.
#[must_use]
pub fn vmpi_args(name: &str, kind: VmpiKind, socket: &Path) -> Vec<String> {
    if kind == VmpiKind::Xen {
        return Vec::new();
    }
    let id = format!("carina-{name}");
    if kind == VmpiKind::IvshmemPlain {
        return plain_args(&id, socket);
    }
    let chardev = format!("socket,path={},id={id},server=on,wait=on", escape(socket));
    let mut args = vec!["-chardev".to_owned(), chardev];
    match kind {
        VmpiKind::Xen => {}
        VmpiKind::Ivshmem => {
            let device = format!("ivshmem-doorbell,vectors=32,chardev={id}");
            args.extend(["-device".to_owned(), device]);
        }
        VmpiKind::IvshmemPlain => {}
        VmpiKind::Virtqueue => {
            let mac = DEVICE_MAC.map(|byte| format!("{byte:02x}")).join(":");
            args.push("-netdev".to_owned());
            args.push(format!("vhost-user,id={id}-queues,chardev={id},queues=1"));
            // The node in the VM polls, so the device needs no interrupts. QEMU 7.2 without KVM
            // crashes with MSI-X here.
            args.push("-device".to_owned());
            args.push(format!(
                "virtio-net-pci,netdev={id}-queues,mac={mac},disable-legacy=on,vectors=0,romfile=,\
                 rx_queue_size=1024,tx_queue_size=1024"
            ));
        }
        // Carina serves this device by a process beside QEMU (`carina vm serve-vsock`).
        VmpiKind::Vsock => {
            let device = format!("vhost-user-vsock-pci,chardev={id}");
            args.extend(["-device".to_owned(), device]);
        }
    }
    args
}

/// The arguments for a QEMU that maps the file `region`.
fn plain_args(id: &str, region: &Path) -> Vec<String> {
    let bytes = std::fs::metadata(region).map_or(REGION_BYTES_DEFAULT, |file| file.len());
    let path = escape(region);
    vec![
        "-object".to_owned(),
        format!("memory-backend-file,id={id},mem-path={path},size={bytes},share=on"),
        "-device".to_owned(),
        format!("ivshmem-plain,memdev={id}"),
    ]
}

/// Default size of a VMPI region in bytes, for a region that does not exist yet.
const REGION_BYTES_DEFAULT: u64 = 16 << 20;

/// Escapes a path for a QEMU option, in which a comma ends a value unless it is doubled.
#[must_use]
pub fn escape(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_quoting_and_devices_are_named() {
        let path = Path::new("/run/a,b/it's");
        let args = vmpi_args("vm1", VmpiKind::Ivshmem, path);
        assert_eq!(
            args[1],
            "socket,path=/run/a,,b/it's,id=carina-vm1,server=on,wait=on"
        );
        assert_eq!(args[3], "ivshmem-doorbell,vectors=32,chardev=carina-vm1");
        let args = vmpi_args("vm1", VmpiKind::IvshmemPlain, path);
        assert_eq!(
            args[1],
            "memory-backend-file,id=carina-vm1,mem-path=/run/a,,b/it's,size=16777216,share=on"
        );
        assert_eq!(args[3], "ivshmem-plain,memdev=carina-vm1");
        let args = vmpi_args("vm1", VmpiKind::Virtqueue, path);
        assert!(args[5].contains("mac=06:43:41:52:49:4e,"), "{args:?}");
    }
}
