//! The hv kind: IPCPs over the VMPI device of a VM.

use carina_api::control::{HvSide, IpcpCreate, IpcpType, VmpiKind};
use carina_api::{ErrorBody, ErrorCode, LocalName};
use carina_shims::{HvBuilder, HvShim};
use carina_vmpi::hl::{Config as HlConfig, Side};
use carina_vmpi::ll::ivshmem::{self, GuestDevice};
use carina_vmpi::ll::{Interrupts, PciAddress, VmpiImpl, virtqueue, vsock, xen};
use carina_wire::vmpi::DEVICE_MAC;

use super::{Context, Opened, SpecError};
use crate::ipcps::{Ipcp, Ipcps, Process};

/// Checks that no key of hv IPCPs is set.
pub(super) fn check_no_hv_keys(create: &IpcpCreate) -> Result<(), SpecError> {
    let keys = [
        create.side.is_some(),
        create.pci.is_some(),
        create.socket.is_some(),
        create.vsock.is_some(),
    ];
    if keys.contains(&true) {
        Err(SpecError::KeyOfHv)
    } else {
        Ok(())
    }
}

pub(super) fn check(create: &IpcpCreate) -> Result<(), SpecError> {
    match create.side {
        Some(HvSide::Guest) => {
            let places = [
                create.pci.is_some(),
                create.socket.is_some(),
                create.vsock.is_some(),
            ];
            if places.iter().filter(|is_given| **is_given).count() > 1 {
                return Err(SpecError::TwoDevices);
            }
            Ok(())
        }
        _ => Err(SpecError::HostSide),
    }
}

/// Opens the PCI device of a guest, or starts to connect to the node on the host side.
pub(super) fn open(create: &IpcpCreate, context: &Context<'_>) -> Result<Opened, ErrorBody> {
    let name = &create.name;
    if let Some(socket) = &create.socket {
        let failed = |error| {
            let what = format!("IPCP {name}: memory of its queues: {error}");
            ErrorBody::new(ErrorCode::Internal, what)
        };
        let device = virtqueue::front_end(socket).map_err(failed)?;
        return Ok(open_device(name, context.system, device));
    }
    if let Some(port) = create.vsock {
        let failed = |error| {
            let what = format!("IPCP {name}: a socket of AF_VSOCK: {error}");
            ErrorBody::new(ErrorCode::NotFound, what)
        };
        let device = vsock::open_guest(port).map_err(failed)?;
        return Ok(open_device(name, context.system, device));
    }
    if create.pci.is_none() && xen::devices_exist() {
        return open_xen(name, context);
    }
    let (pci, kind) = find_device(create, context.ipcps)?;
    let failed = |error| {
        let what = format!("IPCP {name}: PCI device {pci}: {error}");
        ErrorBody::new(ErrorCode::NotFound, what)
    };
    let opened = match kind {
        VmpiKind::Ivshmem | VmpiKind::IvshmemPlain => GuestDevice::open(&pci, Interrupts::Auto),
        VmpiKind::Virtqueue => virtqueue::open_guest(&pci, Interrupts::Auto),
        // No PCI device carries the VMPI of Xen.
        VmpiKind::Xen => return open_xen(name, context),
        VmpiKind::Vsock => unreachable!("find_device looks for PCI devices of other kinds"),
    };
    let opened = opened.map_err(failed)?;
    let told = |why| format!("no interrupts, the device is polled: {why}");
    Ok(Opened {
        pci: Some(pci),
        notice: opened.polls_because.map(told),
        ..open_device(name, context.system, opened.device)
    })
}

/// Grants memory to the node in Dom0.
fn open_xen(name: &LocalName, context: &Context<'_>) -> Result<Opened, ErrorBody> {
    let is_guest = |ipcp: &Ipcp| ipcp.side == Some(HvSide::Guest) && ipcp.pci.is_none();
    if context.ipcps.values().any(is_guest) {
        let what = format!("IPCP {name}: another IPCP has the link to Dom0 already");
        return Err(ErrorBody::new(ErrorCode::Conflict, what));
    }
    let failed = |error| ErrorBody::new(ErrorCode::NotFound, format!("IPCP {name}: {error}"));
    let device = xen::open_guest(xen::DOM0).map_err(failed)?;
    Ok(open_device(name, context.system, device))
}

/// An hv IPCP over a device that is already open.
pub(crate) fn open_device(
    name: &LocalName,
    system: &str,
    device: Box<dyn VmpiImpl + Send>,
) -> Opened {
    let side = device.side();
    let config = HlConfig::new(side, String::new(), device.record_bytes_max());
    let builder = HvBuilder {
        label: name.to_string(),
        device,
        side,
        name: system.to_owned(),
    };
    let process = |id, commands| Process::Shim(Box::new(HvShim::new(id, commands)));
    Opened {
        builder: Some(Box::new(builder)),
        piece_bytes_max: config.piece_bytes_max as usize,
        side: Some(match side {
            Side::Host => HvSide::Host,
            Side::Guest => HvSide::Guest,
        }),
        ..Opened::new(IpcpType::Hv, process)
    }
}

/// The configured PCI device or, without one, the first that is not in use.
fn find_device(create: &IpcpCreate, ipcps: &Ipcps) -> Result<(PciAddress, VmpiKind), ErrorBody> {
    let name = &create.name;
    let missing = |what| ErrorBody::new(ErrorCode::NotFound, what);
    let unreadable = |error| missing(format!("IPCP {name}: PCI devices: {error}"));
    let kinds = [
        (
            VmpiKind::Ivshmem,
            ivshmem::guest_devices().map_err(unreadable)?,
        ),
        (
            VmpiKind::Virtqueue,
            virtqueue::guest_devices().map_err(unreadable)?,
        ),
    ];
    let found: Vec<(PciAddress, VmpiKind)> = kinds
        .into_iter()
        .flat_map(|(kind, addresses)| addresses.into_iter().map(move |pci| (pci, kind)))
        .collect();
    let in_use = |pci: &PciAddress| ipcps.values().any(|i| i.pci.as_ref() == Some(pci));
    let wanted = |pci: &PciAddress| create.pci.as_ref().is_none_or(|wanted| wanted == pci);
    let mut fitting = found.iter().filter(|(pci, _)| wanted(pci));
    match fitting.clone().find(|(pci, _)| !in_use(pci)) {
        Some(found) => Ok(found.clone()),
        None if fitting.next().is_some() => Err(ErrorBody::new(
            ErrorCode::Conflict,
            format!("IPCP {name}: the VMPI devices of this system are in use"),
        )),
        None => Err(missing(format!(
            "IPCP {name}: no VMPI device (PCI 1af4:1110, or 1af4:1041 with the MAC address {}){}; \
             this system has: {}",
            DEVICE_MAC.map(|byte| format!("{byte:02x}")).join(":"),
            create
                .pci
                .as_ref()
                .map_or(String::new(), |pci| format!(" at {pci}")),
            if found.is_empty() {
                "none".to_owned()
            } else {
                let found: Vec<&str> = found.iter().map(|(pci, _)| pci.as_str()).collect();
                found.join(", ")
            },
        ))),
    }
}
