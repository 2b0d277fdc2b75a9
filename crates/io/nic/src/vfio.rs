//! Access to a device through VFIO, the kernel's interface that gives a PCI device with interrupts
//! to a process. It needs an IOMMU and the module vfio-pci. The kernel's header `linux/vfio.h`
//! defines the constants and structures.
//!
//! `unsafe` is here because VFIO uses `ioctl`, which takes raw pointers.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_void};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use carina_sys::{EventFd, Mapping};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};

use crate::pci::{file_error, open_file, write};

/// A device that vfio-pci drives for this process. Dropping it releases the device, and the kernel
/// resets it.
#[derive(Debug)]
pub struct VfioDevice {
    device: OwnedFd,
    line: Line,
    interrupt: EventFd,
    container: OwnedFd,
    // Kept open, because the device works only while its group is in a container.
    _group: OwnedFd,
}

/// Kind of interrupt that a device uses. The values are VFIO's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// The interrupt pin. It stays asserted until the driver reads the reason from the device. The
    /// kernel masks it with each interrupt, until [`VfioDevice::unmask`].
    Intx = 0,
    /// Message-signalled interrupts, which need no unmasking.
    Msix = 2,
}

/// Where a BAR or the configuration space is in the file of a VFIO device.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    /// Offset of the region in the device's file, in bytes.
    pub offset: u64,
    /// Size of the region in bytes.
    pub bytes: u64,
}

const TYPE1_IOMMU: usize = 1;
const CONFIG_REGION: u32 = 7;
/// Number of bytes of configuration space that hold all conventional capabilities.
const CONFIG_BYTES: usize = 256;
const SET_EVENTFD_TRIGGER: u32 = 1 << 2 | 1 << 5;
const SET_NONE_TRIGGER: u32 = 1 << 0 | 1 << 5;
const SET_NONE_UNMASK: u32 = 1 << 0 | 1 << 4;

const IOMMU_MAP_DMA: u8 = 113;
const DMA_READ_WRITE: u32 = 1 << 0 | 1 << 1;

const SET_IOMMU: u8 = 102;
const GROUP_SET_CONTAINER: u8 = 104;
const GROUP_GET_DEVICE_FD: u8 = 106;
const DEVICE_GET_REGION_INFO: u8 = 108;
const DEVICE_SET_IRQS: u8 = 110;

/// Offset of the command register in PCI configuration space, and its bits "memory" and "bus
/// master". A device that is not bus master may not write the message of an MSI-X interrupt.
const PCI_COMMAND: u64 = 4;
const PCI_COMMAND_ENABLE: u16 = 1 << 1 | 1 << 2;

impl VfioDevice {
    /// Binds the device to vfio-pci and opens it. Its first interrupt signals an eventfd.
    ///
    /// # Errors
    /// The kernel refuses, or vfio-pci does not take the device.
    pub fn open(path: &Path, address: &str, line: Line) -> io::Result<VfioDevice> {
        bind(path, address)?;
        let group_link =
            fs::read_link(path.join("iommu_group")).map_err(|e| file_error(path, &e))?;
        let number = group_link.file_name().unwrap_or_default();
        let container = open_file(Path::new("/dev/vfio/vfio"))?;
        let group = open_file(&Path::new("/dev/vfio").join(number))?;
        call(&group, GROUP_SET_CONTAINER, &mut container.as_raw_fd())?;
        set_iommu(&container)?;
        let device = device_fd(&group, address)?;
        let vfio = VfioDevice {
            device,
            line,
            interrupt: EventFd::new()?,
            container,
            _group: group,
        };
        vfio.enable()?;
        vfio.trigger(0)?;
        Ok(vfio)
    }

    /// Returns the eventfd that becomes readable when the device interrupts.
    #[must_use]
    pub fn interrupt(&self) -> &EventFd {
        &self.interrupt
    }

    /// Unmasks the interrupt pin, after the driver read the reason from the device. If the pin is
    /// still asserted, it interrupts at once.
    ///
    /// # Errors
    /// The kernel's refusal, because the device was removed.
    pub fn unmask(&self) -> io::Result<()> {
        self.set_irqs(SET_NONE_UNMASK, 0, 1)
    }

    /// Reads the device's configuration space.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn config(&self) -> io::Result<Vec<u8>> {
        let offset = self.region(CONFIG_REGION)?.offset;
        let mut config = vec![0; CONFIG_BYTES];
        let read = rustix::io::pread(&self.device, &mut config[..], offset)?;
        config.truncate(read);
        Ok(config)
    }

    /// Returns where the region is in the device's file. The index of a BAR's region is the number
    /// of the BAR.
    ///
    /// # Errors
    /// The device has no such region.
    pub fn region(&self, index: u32) -> io::Result<Region> {
        let mut info = RegionInfo {
            argsz: size_of::<RegionInfo>() as u32,
            index,
            ..RegionInfo::default()
        };
        call(&self.device, DEVICE_GET_REGION_INFO, &mut info)?;
        Ok(Region {
            offset: info.offset,
            bytes: info.size,
        })
    }

    /// Writes a 32-bit word at byte `offset` of a region, also if the region cannot be mapped.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn write_u32(&self, region: Region, offset: u64, value: u32) -> io::Result<()> {
        rustix::io::pwrite(&self.device, &value.to_le_bytes(), region.offset + offset)?;
        Ok(())
    }

    fn enable(&self) -> io::Result<()> {
        let config = self.region(CONFIG_REGION)?.offset;
        let mut command = [0; 2];
        rustix::io::pread(&self.device, &mut command[..], config + PCI_COMMAND)?;
        let command = u16::from_le_bytes(command) | PCI_COMMAND_ENABLE;
        rustix::io::pwrite(&self.device, &command.to_le_bytes(), config + PCI_COMMAND)?;
        Ok(())
    }

    /// Allows the device to access a mapping, at the device address `address`. The device can
    /// access no other memory of this process. The permission ends when this value is dropped. The
    /// kernel pins the memory.
    ///
    /// # Errors
    /// The kernel's refusal, such as a limit of locked memory.
    pub fn map_dma(&self, mapping: &Mapping, address: u64) -> io::Result<()> {
        let mut map = DmaMap {
            argsz: size_of::<DmaMap>() as u32,
            flags: DMA_READ_WRITE,
            vaddr: mapping.as_ptr().addr() as u64,
            iova: address,
            size: mapping.len() as u64,
        };
        call(&self.container, IOMMU_MAP_DMA, &mut map)
    }

    /// Receives the interrupt of another of the device's vectors from now on.
    ///
    /// # Errors
    /// The device has no such vector.
    pub fn route_interrupt(&self, vector: u32) -> io::Result<()> {
        // VFIO allocates only as many vectors as were requested first, so all are released before.
        self.set_irqs(SET_NONE_TRIGGER, 0, 0)?;
        self.interrupt.drain();
        self.trigger(vector)
    }

    fn trigger(&self, vector: u32) -> io::Result<()> {
        self.set_irqs(SET_EVENTFD_TRIGGER, vector, 1)
    }

    fn set_irqs(&self, flags: u32, start: u32, count: u32) -> io::Result<()> {
        let mut irqs = IrqSet {
            argsz: size_of::<IrqSet>() as u32,
            flags,
            index: self.line as u32,
            start,
            count,
            // The kernel reads it only if the flags say that there is one.
            eventfd: self.interrupt.as_raw_fd(),
        };
        call(&self.device, DEVICE_SET_IRQS, &mut irqs)
    }
}

impl AsFd for VfioDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Unbinds the device from vfio-pci, so that its BARs can be mapped through sysfs and other drivers
/// can bind it. Also clears the override that would bind it there again. Otherwise does nothing.
///
/// # Errors
/// The error of sysfs, with the file.
pub fn release(path: &Path) -> io::Result<()> {
    let is_meant = fs::read_to_string(path.join("driver_override")).unwrap_or_default();
    if !is_bound(path) {
        // A process was killed while it bound the device.
        return if is_meant.trim() == "vfio-pci" {
            write(&path.join("driver_override"), "\n")
        } else {
            Ok(())
        };
    }
    let address = path
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default();
    write(&path.join("driver/unbind"), address)?;
    write(&path.join("driver_override"), "\n")
}

fn bind(path: &Path, address: &str) -> io::Result<()> {
    if is_bound(path) {
        return Ok(());
    }
    write(&path.join("driver_override"), "vfio-pci")?;
    if path.join("driver").exists() {
        write(&path.join("driver/unbind"), address)?;
    }
    write(Path::new("/sys/bus/pci/drivers_probe"), address)?;
    if is_bound(path) {
        return Ok(());
    }
    write(&path.join("driver_override"), "\n")?;
    let text = format!(
        "{}: the driver vfio-pci did not bind to the device; check that the module vfio-pci is \
         loaded",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::NotFound, text))
}

/// Whether the device is bound to vfio-pci.
#[must_use]
pub fn is_bound(path: &Path) -> bool {
    let driver = fs::read_link(path.join("driver")).unwrap_or_default();
    driver.file_name().is_some_and(|name| name == "vfio-pci")
}

fn set_iommu(container: &OwnedFd) -> io::Result<()> {
    let request = Request {
        number: SET_IOMMU,
        argument: TYPE1_IOMMU as *mut c_void,
    };
    // SAFETY: this request takes an integer in place of a pointer.
    unsafe { rustix::ioctl::ioctl(container, request)? };
    Ok(())
}

fn device_fd(group: &OwnedFd, address: &str) -> io::Result<OwnedFd> {
    let name = CString::new(address)?;
    let argument = name.as_ptr().cast_mut().cast();
    // SAFETY: the kernel reads the C string, which outlives the call, and returns a new descriptor.
    let fd = unsafe {
        rustix::ioctl::ioctl(
            group,
            Request {
                number: GROUP_GET_DEVICE_FD,
                argument,
            },
        )?
    };
    // SAFETY: the descriptor is new and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `struct vfio_region_info`
#[repr(C)]
#[derive(Default)]
struct RegionInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    cap_offset: u32,
    size: u64,
    offset: u64,
}

/// `struct vfio_iommu_type1_dma_map`
#[repr(C)]
struct DmaMap {
    argsz: u32,
    flags: u32,
    vaddr: u64,
    iova: u64,
    size: u64,
}

/// `struct vfio_irq_set` with one eventfd as its data.
#[repr(C)]
struct IrqSet {
    argsz: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    eventfd: c_int,
}

/// Marker for structures that VFIO reads and writes.
trait Argument {}
impl Argument for c_int {}
impl Argument for RegionInfo {}
impl Argument for IrqSet {}
impl Argument for DmaMap {}

fn call<T: Argument>(fd: &OwnedFd, number: u8, argument: &mut T) -> io::Result<()> {
    let argument = (&raw mut *argument).cast();
    // SAFETY: the argument is a structure of the layout that this request has in `linux/vfio.h`,
    // with its size in `argsz` where there is one, and it is borrowed for the call.
    unsafe { rustix::ioctl::ioctl(fd, Request { number, argument })? };
    Ok(())
}

struct Request {
    number: u8,
    argument: *mut c_void,
}

// SAFETY: the opcode is VFIO's `_IO(';', number)`, whose answer is an integer; that the argument
// fits the number is promised where a request is made.
unsafe impl Ioctl for Request {
    type Output = c_int;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::none(b';', self.number)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(
        output: IoctlOutput,
        _argument: *mut c_void,
    ) -> rustix::io::Result<c_int> {
        Ok(output)
    }
}
