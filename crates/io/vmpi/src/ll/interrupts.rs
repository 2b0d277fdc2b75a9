//! How a guest learns that its host has rung.

use std::io;
use std::path::Path;

use super::VmpiImpl;

/// How a guest is to learn of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupts {
    /// By an interrupt through VFIO when the guest has an IOMMU and the kernel's vfio-pci, else by
    /// polling.
    Auto,
    /// By polling, which needs nothing.
    Poll,
}

/// A device of a guest that was opened.
pub struct Opened {
    /// The device.
    pub device: Box<dyn VmpiImpl + Send>,
    /// Why it polls although interrupts were wanted; none when it has them or they were not.
    pub polls_because: Option<String>,
}

type Device = Box<dyn VmpiImpl + Send>;

impl Interrupts {
    /// Opens the device that sysfs has at `path` in one of two ways.
    pub(super) fn open(
        self,
        path: &Path,
        by_vfio: impl FnOnce() -> io::Result<Device>,
        by_sysfs: impl FnOnce() -> io::Result<Device>,
    ) -> io::Result<Opened> {
        let polls_because = match self {
            Interrupts::Poll => None,
            Interrupts::Auto if !path.join("iommu_group").exists() => {
                Some("this system has no IOMMU for the device".to_owned())
            }
            // Without vfio-pci in the guest's kernel polling does as well, only less promptly.
            Interrupts::Auto => match by_vfio() {
                Ok(device) => {
                    return Ok(Opened {
                        device,
                        polls_because: None,
                    });
                }
                Err(error) => Some(format!("VFIO: {error}")),
            },
        };
        Ok(Opened {
            device: by_sysfs()?,
            polls_because,
        })
    }
}
