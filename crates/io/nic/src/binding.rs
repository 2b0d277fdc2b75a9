//! Who has a device: the kernel's driver, or a process of Carina; and how it goes back.
//!
//! Before a device is taken, `/run/carina/nic/ADDRESS` says which driver had it; the process keeps
//! that file locked. It gives the device back when it ends. When it is killed, its guardian does
//! ([`guard_with`]), a process that waits for that; else [`restore`] does, or the next process that
//! takes the device: the file is there, and no process has it locked.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::dma;
use crate::guardian::Guardian;
use crate::pci::{self, PciAddress, PciDevice, device_directory, file_error};
use crate::vfio;

pub use crate::guardian::guard_with;

/// How a device is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through VFIO where an IOMMU stands before the device, else through sysfs.
    Auto,
    /// By the files of sysfs; the device gets physical addresses.
    Sysfs,
    /// Through VFIO; the device reaches what it was shown.
    Vfio,
}

/// Why a device cannot be taken, or given back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// There is no such device.
    #[error("{address}: there is no such device; `carina nic list` shows those that there are")]
    NoDevice {
        /// The address.
        address: String,
    },
    /// A process has it.
    #[error("{address}: process {process} has it")]
    Held {
        /// The address.
        address: String,
        /// The number of the process, as far as it is known.
        process: u32,
    },
    /// This system's routes go over it.
    #[error(
        "{address}: routes of this system go over its interface {interface}; take them away, or \
         say that it may be taken all the same (force=true, --force)"
    )]
    Used {
        /// The address.
        address: String,
        /// The interface.
        interface: String,
    },
    /// An IOMMU stands before it, and there is no way through.
    #[error(
        "{address}: an IOMMU stands before it; load the module vfio-pci, or give access=sysfs \
         where the IOMMU lets its addresses pass"
    )]
    NoVfio {
        /// The address.
        address: String,
    },
    /// VFIO was asked for, and there is no IOMMU.
    #[error("{address}: VFIO needs an IOMMU, and none stands before it; give access=sysfs")]
    NoIommu {
        /// The address.
        address: String,
    },
    /// The driver that had it does not take it back.
    #[error("{address}: the driver {driver} does not take it back: {reason}")]
    NotTaken {
        /// The address.
        address: String,
        /// The driver.
        driver: String,
        /// What sysfs says.
        reason: String,
    },
    /// The system refuses.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Way {
    /// The way that there is to a device.
    ///
    /// # Errors
    /// There is no such way to this device.
    pub(crate) fn of(self, device: &PciDevice) -> Result<Way, BindError> {
        let address = device.address.clone();
        let has_vfio = Path::new(VFIO_DRIVER).exists();
        // Virtio devices go past an IOMMU.
        let is_virtio = device.vendor == 0x1af4;
        match self {
            Way::Auto if device.has_iommu && has_vfio => Ok(Way::Vfio),
            Way::Auto if device.has_iommu && !is_virtio => Err(BindError::NoVfio { address }),
            Way::Auto | Way::Sysfs => Ok(Way::Sysfs),
            Way::Vfio if !device.has_iommu => Err(BindError::NoIommu { address }),
            Way::Vfio => Ok(Way::Vfio),
        }
    }
}

const VFIO_DRIVER: &str = "/sys/bus/pci/drivers/vfio-pci";
const DRIVERS: &str = "/sys/bus/pci/drivers";
const RECORDS: &str = "/run/carina/nic";

/// What is written of a device that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The driver that had it.
    pub driver: Option<String>,
    /// The process that took it last.
    pub process: u32,
    /// It stays away from that driver when a process ends.
    pub is_kept: bool,
}

impl Record {
    pub(crate) fn text(&self) -> String {
        format!(
            "driver={}\nprocess={}\nkept={}\n",
            self.driver.as_deref().unwrap_or_default(),
            self.process,
            self.is_kept
        )
    }

    /// Reads what [`Record::text`] wrote. A file that was cut short, as by a crash of the system,
    /// says less; a driver's name that is not well formed is left out.
    pub(crate) fn read(text: &str) -> Record {
        let value = |key: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
        };
        let is_name = |name: &&str| {
            let is_right = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            !name.is_empty() && name.chars().all(is_right)
        };
        Record {
            driver: value("driver").filter(is_name).map(str::to_owned),
            process: value("process").and_then(|n| n.parse().ok()).unwrap_or(0),
            is_kept: value("kept") == Some("true"),
        }
    }
}

/// The file of a record, locked.
#[derive(Debug)]
struct Locked {
    file: File,
    path: PathBuf,
}

impl Locked {
    /// Opens the file of a device, which is made if `is_made`. `None`: there is no such file. A
    /// process that only looks has it locked for a moment: `patience` is for that.
    fn open(
        records: &Path,
        address: &str,
        is_made: bool,
        patience: Duration,
    ) -> Result<Option<Locked>, BindError> {
        let path = records.join(address);
        let begin = Instant::now();
        // One that was removed between being opened and being locked is opened again.
        for _ in 0..100 {
            let mut options = File::options();
            let options = options.read(true).write(true).create(is_made);
            let file = match options.open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(file_error(&path, &error).into()),
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if begin.elapsed() < patience => {
                    std::thread::sleep(LOOK);
                    continue;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(BindError::Held {
                        address: address.to_owned(),
                        process: Record::read(&text_of(&file)).process,
                    });
                }
                Err(TryLockError::Error(error)) => return Err(file_error(&path, &error).into()),
            }
            let same = fs::metadata(&path)
                .is_ok_and(|now| file.metadata().is_ok_and(|mine| mine.ino() == now.ino()));
            if same {
                return Ok(Some(Locked { file, path }));
            }
        }
        Err(io::Error::other(format!("{}: it is removed all the time", path.display())).into())
    }

    fn record(&self) -> Record {
        Record::read(&text_of(&self.file))
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        let written = (|| {
            self.file.set_len(0)?;
            self.file.rewind()?;
            self.file.write_all(record.text().as_bytes())?;
            self.file.sync_all()
        })();
        written.map_err(|error| file_error(&self.path, &error))
    }
}

fn text_of(mut file: &File) -> String {
    let mut text = String::new();
    // One that cannot be read, or is no text, says nothing.
    let _ = file.rewind();
    let _ = file.take(RECORD_BYTES_MAX).read_to_string(&mut text);
    text
}

const RECORD_BYTES_MAX: u64 = 1024;

/// A device that this process has. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Holding {
    address: PciAddress,
    way: Way,
    file: String,
    locked: Locked,
    _guardian: Option<Guardian>,
}

impl Holding {
    /// Notes who has a device, and that this process takes it. The driver that has it still does.
    pub(crate) fn take(device: &PciDevice, way: Way, is_forced: bool) -> Result<Self, BindError> {
        let address = device.address.clone();
        let mut locked = take_record(Path::new(RECORDS), device, is_forced)?;
        let mut record = locked.record();
        record.process = std::process::id();
        locked.write(&record)?;
        Ok(Holding {
            _guardian: Guardian::start(&address)?,
            file: memory_file(&address),
            address,
            way,
            locked,
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// The name of the device's file of huge pages.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        // What cannot be given back is left to `restore`, for which the record stays.
        let _ = give_back(&self.address, &self.locked, false);
    }
}

/// Locks the record of a device, in which the driver is that had it.
fn take_record(records: &Path, device: &PciDevice, is_forced: bool) -> Result<Locked, BindError> {
    fs::create_dir_all(records).map_err(|error| file_error(records, &error))?;
    let locked = Locked::open(records, &device.address, true, GLANCE)?;
    let mut locked = locked.ok_or_else(|| io::Error::other("a file that was made is not there"))?;
    let before = locked.record();
    if let Some(interface) = device.interface.as_ref().filter(|_| !is_forced)
        && has_route(interface)
    {
        if before == Record::default() {
            let _ = fs::remove_file(&locked.path);
        }
        return Err(BindError::Used {
            address: device.address.clone(),
            interface: interface.clone(),
        });
    }
    let has = device.driver.clone().filter(|driver| driver != "vfio-pci");
    locked.write(&Record {
        driver: has.or(before.driver),
        ..before
    })?;
    Ok(locked)
}

fn has_route(interface: &str) -> bool {
    let table = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let mut lines = table.lines().skip(1);
    lines.any(|line| line.split_whitespace().next() == Some(interface))
}

fn memory_file(address: &str) -> String {
    format!("carina-nic-{address}")
}

/// Gives a device back to the driver that had it; one that is kept away from it only if
/// `is_final`. The device stops to use memory in any case.
fn give_back(address: &str, locked: &Locked, is_final: bool) -> Result<Record, BindError> {
    let record = locked.record();
    let path = device_directory(address);
    if !path.exists() {
        // It was taken out of the system.
        let _ = fs::remove_file(&locked.path);
        return Ok(record);
    }
    vfio::release(&path)?;
    if pci::look(address).is_some_and(|device| device.driver.is_none()) {
        pci::silence(address)?;
        pci::disable(address);
    }
    dma::forget(&memory_file(address));
    if record.is_kept && !is_final {
        return Ok(record);
    }
    if let Some(driver) = &record.driver {
        bind(address, driver)?;
    }
    let _ = fs::remove_file(&locked.path);
    Ok(record)
}

fn bind(address: &str, driver: &str) -> Result<(), BindError> {
    let has = |wanted: &str| {
        let device = pci::look(address);
        device.is_some_and(|device| device.driver.as_deref() == Some(wanted))
    };
    if has(driver) {
        return Ok(());
    }
    let bound = pci::write(&Path::new(DRIVERS).join(driver).join("bind"), address);
    match bound {
        _ if has(driver) => Ok(()),
        bound => Err(BindError::NotTaken {
            address: address.to_owned(),
            driver: driver.to_owned(),
            reason: bound
                .err()
                .map_or("no reason".to_owned(), |e| e.to_string()),
        }),
    }
}

/// Takes a device from the kernel's driver and keeps it away from there, also when a process that
/// used it has ended, until [`restore`]. Says which driver had it.
///
/// # Errors
/// There is no such device, a process has it, or the system refuses.
pub fn keep(address: &str, is_forced: bool) -> Result<Record, BindError> {
    let device = pci::look(address).ok_or_else(|| BindError::NoDevice {
        address: address.to_owned(),
    })?;
    let mut locked = take_record(Path::new(RECORDS), &device, is_forced)?;
    let record = Record {
        is_kept: true,
        process: 0,
        ..locked.record()
    };
    locked.write(&record)?;
    let unbind = device_directory(address).join("driver/unbind");
    if unbind.exists() {
        pci::write(&unbind, address)?;
    }
    Ok(record)
}

/// Gives a device that was taken back to the driver of the kernel that had it. `None`: no record
/// says that it was taken.
///
/// # Errors
/// A process has it, or the driver does not take it.
pub fn restore(address: &str) -> Result<Option<Record>, BindError> {
    pci::check_address(address)?;
    match Locked::open(Path::new(RECORDS), address, false, GLANCE)? {
        None => Ok(None),
        Some(locked) => give_back(address, &locked, true).map(Some),
    }
}

/// The work of a guardian: waits until standard input ends, then gives the device back.
///
/// # Errors
/// The driver does not take it back; its process goes on for more than 20 s.
pub fn guard(address: &str) -> Result<(), BindError> {
    pci::check_address(address)?;
    let mut nothing = Vec::new();
    // Whatever ends it, its process is about to end.
    let _ = io::stdin().read_to_end(&mut nothing);
    let begin = Instant::now();
    loop {
        match restore_after(address) {
            // Of a process that is killed descriptors are closed one after the other.
            Err(BindError::Held { .. }) if begin.elapsed() < PATIENCE => {
                std::thread::sleep(LOOK);
            }
            done => return done,
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
/// How long one that only looks may have a record.
const GLANCE: Duration = Duration::from_millis(200);

/// As [`restore`], of one whose process was killed: a device that is kept stays away.
fn restore_after(address: &str) -> Result<(), BindError> {
    match Locked::open(Path::new(RECORDS), address, false, GLANCE)? {
        None => Ok(()),
        Some(locked) => give_back(address, &locked, false).map(drop),
    }
}

/// What is recorded of a device, and whether a process has it; `None`: it was not taken.
#[must_use]
pub fn record_of(address: &str) -> Option<(Record, bool)> {
    let file = File::open(Path::new(RECORDS).join(address)).ok()?;
    // Shared, so that others may look at the same time.
    let is_held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    Some((Record::read(&text_of(&file)), is_held))
}

/// The addresses of all devices of which there are records.
///
/// # Errors
/// The directory cannot be read.
pub fn recorded() -> io::Result<Vec<PciAddress>> {
    let entries = match fs::read_dir(RECORDS) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(file_error(Path::new(RECORDS), &error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(pci::parse_address));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(driver: Option<&str>) -> PciDevice {
        PciDevice {
            address: "ffff:00:1f.7".to_owned(),
            vendor: 0x8086,
            device: 0x10d3,
            driver: driver.map(str::to_owned),
            interface: None,
            has_iommu: false,
        }
    }

    #[test]
    fn records_are_read_as_written_and_junk_says_nothing() {
        let record = Record {
            driver: Some("virtio-pci".to_owned()),
            process: 17,
            is_kept: true,
        };
        assert_eq!(Record::read(&record.text()), record);
        for junk in [
            "",
            "driver=",
            "driver=../../x\nprocess=-1\nkept=yes",
            "\0\u{fffd}",
        ] {
            assert_eq!(Record::read(junk), Record::default(), "{junk:?}");
        }
        let cut = &record.text()[.."driver=virtio-pci\npro".len()];
        assert_eq!(Record::read(cut).driver, record.driver);
    }

    #[test]
    fn driver_of_a_killed_process_is_remembered() {
        let records = tempfile::tempdir().unwrap();
        let take = |device: &PciDevice| take_record(records.path(), device, false);
        drop(take(&device(Some("e1000e"))).unwrap());
        // No process has it locked any more, and the device has no driver, or that of VFIO.
        for has in [None, Some("vfio-pci")] {
            let locked = take(&device(has)).unwrap();
            assert_eq!(locked.record().driver.as_deref(), Some("e1000e"));
        }
    }

    #[test]
    fn device_that_a_process_has_is_refused_with_its_number() {
        let records = tempfile::tempdir().unwrap();
        let mut locked = take_record(records.path(), &device(Some("igb")), false).unwrap();
        let record = Record {
            process: 4711,
            ..locked.record()
        };
        locked.write(&record).unwrap();
        let error = take_record(records.path(), &device(None), false).unwrap_err();
        assert_eq!(error.to_string(), "ffff:00:1f.7: process 4711 has it");
    }

    #[test]
    fn ways_that_there_are_not_are_refused() {
        let bare = device(None);
        assert_eq!(Way::Auto.of(&bare).unwrap(), Way::Sysfs);
        let error = Way::Vfio.of(&bare).unwrap_err().to_string();
        assert!(error.contains("needs an IOMMU"), "{error}");
        let behind = PciDevice {
            has_iommu: true,
            ..bare
        };
        assert_eq!(Way::Vfio.of(&behind).unwrap(), Way::Vfio);
        assert_eq!(Way::Sysfs.of(&behind).unwrap(), Way::Sysfs);
    }
}
