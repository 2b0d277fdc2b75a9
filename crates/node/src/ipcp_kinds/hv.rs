//! The hv kind: IPCPs over the VMPI device of a VM.

use carina_api::control::{HvSide, IpcpCreate, IpcpType};
use carina_api::{ErrorBody, ErrorCode, LocalName};
use carina_shims::{HvBuilder, HvShim};
use carina_vmpi::hl::{Config as HlConfig, Side};
use carina_vmpi::ll::VmpiImpl;
use carina_vmpi::ll::ivshmem::{GuestDevice, Interrupts, PciAddress, guest_devices};

use super::{Context, Opened, SpecError};
use crate::ipcps::{Ipcps, Process};

/// Checks that keys of hv IPCPs are not set.
pub(super) fn check_no_hv_keys(create: &IpcpCreate) -> Result<(), SpecError> {
    match create.side.is_some() || create.pci.is_some() {
        true => Err(SpecError::KeyOfHv),
        false => Ok(()),
    }
}

pub(super) fn check(create: &IpcpCreate) -> Result<(), SpecError> {
    match create.side {
        Some(HvSide::Guest) => Ok(()),
        _ => Err(SpecError::HostSide),
    }
}

/// Opens the PCI device of a guest.
pub(super) fn open(create: &IpcpCreate, context: &Context<'_>) -> Result<Opened, ErrorBody> {
    let name = &create.name;
    let pci = find_device(create, context.ipcps)?;
    let device = GuestDevice::open(&pci, Interrupts::Auto).map_err(|error| {
        let what = format!("IPCP {name}: PCI device {pci}: {error}");
        ErrorBody::new(ErrorCode::NotFound, what)
    })?;
    let why = device.polls_because;
    Ok(Opened {
        pci: Some(pci),
        notice: why.map(|why| format!("no interrupts, the device is polled: {why}")),
        ..open_device(name, context.system, device.device)
    })
}

/// An hv IPCP over a device that is open already.
pub fn open_device(name: &LocalName, system: &str, device: Box<dyn VmpiImpl + Send>) -> Opened {
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

/// The PCI device asked for, or the first that is not in use.
fn find_device(create: &IpcpCreate, ipcps: &Ipcps) -> Result<PciAddress, ErrorBody> {
    let name = &create.name;
    let missing = |what| ErrorBody::new(ErrorCode::NotFound, what);
    let found =
        guest_devices().map_err(|error| missing(format!("IPCP {name}: PCI devices: {error}")))?;
    let in_use = |pci: &PciAddress| ipcps.values().any(|i| i.pci.as_ref() == Some(pci));
    let wanted = |pci: &PciAddress| create.pci.as_ref().is_none_or(|wanted| wanted == pci);
    let mut fitting = found.iter().filter(|pci| wanted(pci));
    match fitting.clone().find(|pci| !in_use(pci)) {
        Some(pci) => Ok(pci.clone()),
        None if fitting.next().is_some() => Err(ErrorBody::new(
            ErrorCode::Conflict,
            format!("IPCP {name}: the VMPI devices of this system are in use"),
        )),
        None => Err(missing(format!(
            "IPCP {name}: no VMPI device (PCI 1af4:1110){}; this system has: {}",
            create
                .pci
                .as_ref()
                .map_or(String::new(), |pci| format!(" at {pci}")),
            if found.is_empty() {
                "none".to_owned()
            } else {
                found.join(", ")
            },
        ))),
    }
}
