//! How a guest notices that its host has signalled the device: by interrupt or by polling.

use std::io;
use std::path::Path;

use super::VmpiImpl;

/// How a guest learns of signals of its host: by interrupt or by polling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupts {
    /// The guest learns of signals by an interrupt through VFIO if it has an IOMMU and its kernel
    /// has vfio-pci; otherwise it polls.
    Auto,
    /// The guest polls for signals, which has no requirements.
    Poll,
}

/// A VMPI device that was opened in a guest, and how it learns of the host's signals.
pub struct Opened {
    /// The device, for the data plane.
    pub device: Box<dyn VmpiImpl + Send>,
    /// Why the device polls although interrupts were requested. `None` if it has interrupts, or
    /// polling was requested.
    pub polls_because: Option<String>,
}

type Device = Box<dyn VmpiImpl + Send>;

impl Interrupts {
    /// Opens the device at the sysfs directory `path`, through VFIO or through sysfs.
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
            // Without vfio-pci in the guest's kernel, polling works too, with more delay.
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
