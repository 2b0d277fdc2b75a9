//! Takes a PCI device from the kernel's driver, and gives it back.
//!
//! Before a process takes a device, it writes to `/run/carina/nic/ADDRESS` which driver had the
//! device, and keeps that file locked. When the process ends, it gives the device back. If the
//! process is killed, its guardian does so, a process that waits for this ([`guard_with`]). If
//! there is no guardian, [`restore`] gives the device back, or the next process that takes the
//! device finds the file unlocked.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::dma;
use crate::guardian::Guardian;
use crate::pci::{self, PciAddress, PciDevice, device_directory, file_error};
use crate::routes::has_route;
use crate::vfio;

pub use crate::guardian::guard_with;

/// How a process accesses a PCI device: through sysfs or through VFIO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMethod {
    /// Access the device through VFIO if it is behind an IOMMU, otherwise through sysfs.
    Auto,
    /// Access the device through its files in sysfs. The device uses physical addresses.
    Sysfs,
    /// Access the device through VFIO. It can access only the memory that is mapped for it.
    Vfio,
}

/// Why a device could not be taken from the kernel's driver, or given back to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The system has no device at this address.
    #[error(
        "{address}: there is no such device; `carina nic list` shows the devices of this \
        system"
    )]
    NoDevice {
        /// PCI address at which there is no device.
        address: String,
    },
    /// Another process uses the device.
    #[error("{address}: process {process} uses the card")]
    Held {
        /// PCI address of the device that another process uses.
        address: String,
        /// Process id of the process that uses the device; 0 if it is not known.
        process: u32,
    },
    /// Routes of this system use the device's interface, and the caller did not force the taking.
    #[error(
        "{address}: its interface {interface} carries routes of this system; remove the routes, \
         or override this check (force=true, --force)"
    )]
    Used {
        /// PCI address of the device whose interface has routes.
        address: String,
        /// The interface that has the routes.
        interface: String,
    },
    /// The device is behind an IOMMU, and vfio-pci is not loaded.
    #[error(
        "{address}: the card is behind an IOMMU; load the module vfio-pci, or set access=sysfs \
         if the IOMMU passes the card's addresses through unchanged"
    )]
    NoVfio {
        /// PCI address of the device that was to be used through VFIO.
        address: String,
    },
    /// VFIO was requested, but the device is not behind an IOMMU.
    #[error("{address}: VFIO needs an IOMMU, and this card has none; set access=sysfs")]
    NoIommu {
        /// PCI address of the device that was to be used through VFIO.
        address: String,
    },
    /// The driver that had the device does not take it back.
    #[error("{address}: the card could not be returned to the driver {driver}: {reason}")]
    NotTaken {
        /// PCI address of the device that is left without a driver.
        address: String,
        /// Name of the driver that does not take the device back.
        driver: String,
        /// The error of sysfs.
        reason: String,
    },
    /// The kernel refused an operation on the device.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl AccessMethod {
    /// Resolves [`AccessMethod::Auto`] for a device, and checks that the device can be accessed by
    /// this method.
    ///
    /// # Errors
    /// The device cannot be accessed by this method.
    pub(crate) fn of(self, device: &PciDevice) -> Result<AccessMethod, BindError> {
        let address = device.address.clone();
        let has_vfio = Path::new(VFIO_DRIVER).exists();
        // Virtio devices bypass an IOMMU, so sysfs works for them.
        let is_virtio = device.vendor == 0x1af4;
        match self {
            AccessMethod::Auto if device.has_iommu && has_vfio => Ok(AccessMethod::Vfio),
            AccessMethod::Auto if device.has_iommu && !is_virtio => {
                Err(BindError::NoVfio { address })
            }
            AccessMethod::Auto | AccessMethod::Sysfs => Ok(AccessMethod::Sysfs),
            AccessMethod::Vfio if !device.has_iommu => Err(BindError::NoIommu { address }),
            AccessMethod::Vfio => Ok(AccessMethod::Vfio),
        }
    }
}

const VFIO_DRIVER: &str = "/sys/bus/pci/drivers/vfio-pci";
const DRIVERS: &str = "/sys/bus/pci/drivers";
const RECORDS: &str = "/run/carina/nic";

/// What is remembered of a device that was taken from the kernel's driver, to give it back later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Name of the kernel driver that had the device; `None` if no driver had it.
    pub driver: Option<String>,
    /// The process id of the process that took the device last.
    pub process: u32,
    /// Whether the device stays unbound until [`restore`], even when a process that used it ends.
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

    /// Parses the output of [`Record::text`]. Lines that are missing, for instance after a crash of
    /// the system, leave the default. A driver's name that is not well formed is ignored.
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

/// The file of a record, locked by this process.
#[derive(Debug)]
struct Locked {
    file: File,
    path: PathBuf,
}

impl Locked {
    /// Opens and locks the file of a device; creates it if `is_made`. `None` if there is no such
    /// file. `patience` is how long to wait while another process has the file locked: a process
    /// that only reads it locks it for a moment.
    fn open(
        records: &Path,
        address: &str,
        is_made: bool,
        patience: Duration,
    ) -> Result<Option<Locked>, BindError> {
        let path = records.join(address);
        let begin = Instant::now();
        // A file that was removed between opening and locking is opened again.
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
        Err(io::Error::other(format!(
            "{}: cannot lock the file, because other processes remove \
            it again and again",
            path.display()
        ))
        .into())
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
    // A file that cannot be read, or is not text, counts as empty.
    let _ = file.rewind();
    let _ = file.take(RECORD_BYTES_MAX).read_to_string(&mut text);
    text
}

const RECORD_BYTES_MAX: u64 = 1024;

/// A device that this process has taken. Dropping it gives the device back.
#[derive(Debug)]
pub(crate) struct Holding {
    address: PciAddress,
    access_method: AccessMethod,
    file: String,
    locked: Locked,
    _guardian: Option<Guardian>,
}

impl Holding {
    /// Records which driver has a device and that this process takes it. The driver is not unbound
    /// yet.
    pub(crate) fn take(
        device: &PciDevice,
        access_method: AccessMethod,
        is_forced: bool,
    ) -> Result<Self, BindError> {
        let address = device.address.clone();
        let mut locked = take_record(Path::new(RECORDS), device, is_forced)?;
        let mut record = locked.record();
        record.process = std::process::id();
        locked.write(&record)?;
        Ok(Holding {
            _guardian: Guardian::start(&address)?,
            file: memory_file(&address),
            address,
            access_method,
            locked,
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn access_method(&self) -> AccessMethod {
        self.access_method
    }

    /// The name of the huge-page file of the device.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        // If the device cannot be given back, its record stays, so that `restore` can try again.
        let _ = give_back(&self.address, &self.locked, false);
    }
}

/// Locks the record of a device, and writes to it which driver the device had.
fn take_record(records: &Path, device: &PciDevice, is_forced: bool) -> Result<Locked, BindError> {
    fs::create_dir_all(records).map_err(|error| file_error(records, &error))?;
    let locked = Locked::open(records, &device.address, true, GLANCE)?;
    let mut locked = locked.ok_or_else(|| {
        io::Error::other(
            "the record of the card disappeared \
        right after it was created",
        )
    })?;
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

fn memory_file(address: &str) -> String {
    format!("carina-nic-{address}")
}

/// Gives a device back to the driver that had it. A device that is kept stays unbound, unless
/// `is_final`. In any case, the device stops accessing memory.
fn give_back(address: &str, locked: &Locked, is_final: bool) -> Result<Record, BindError> {
    let record = locked.record();
    let path = device_directory(address);
    if !path.exists() {
        // The device was removed from the system.
        let _ = fs::remove_file(&locked.path);
        return Ok(record);
    }
    vfio::release(&path)?;
    if pci::find_device(address).is_some_and(|device| device.driver.is_none()) {
        pci::stop_dma(address)?;
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
        let device = pci::find_device(address);
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

/// Unbinds a device from the kernel's driver and keeps it unbound until [`restore`], also when a
/// process that used it ends. Returns the record, which names the driver.
///
/// # Errors
/// There is no such device, a process uses it, or the system refuses.
pub fn keep(address: &str, is_forced: bool) -> Result<Record, BindError> {
    let device = pci::find_device(address).ok_or_else(|| BindError::NoDevice {
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

/// Gives a device back to the kernel driver that had it. `None` if there is no record that it was
/// taken.
///
/// # Errors
/// A process uses the device, or the driver does not take it back.
pub fn restore(address: &str) -> Result<Option<Record>, BindError> {
    pci::check_address(address)?;
    match Locked::open(Path::new(RECORDS), address, false, GLANCE)? {
        None => Ok(None),
        Some(locked) => give_back(address, &locked, true).map(Some),
    }
}

/// Runs a guardian: waits until standard input ends, then gives the device back.
///
/// # Errors
/// The driver does not take it back, or the guarded process still runs after 20 s.
pub fn guard(address: &str) -> Result<(), BindError> {
    pci::check_address(address)?;
    let mut nothing = Vec::new();
    // An error also means that the guarded process is ending.
    let _ = io::stdin().read_to_end(&mut nothing);
    let begin = Instant::now();
    loop {
        match restore_after(address) {
            // The kernel closes the descriptors of a killed process one after the other, so the
            // lock may remain for a moment.
            Err(BindError::Held { .. }) if begin.elapsed() < PATIENCE => {
                std::thread::sleep(LOOK);
            }
            done => return done,
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
/// How long to wait for a process that only reads the record.
const GLANCE: Duration = Duration::from_millis(200);

/// Like [`restore`], but after the process was killed: a device that the user kept unbound stays
/// unbound.
fn restore_after(address: &str) -> Result<(), BindError> {
    match Locked::open(Path::new(RECORDS), address, false, GLANCE)? {
        None => Ok(()),
        Some(locked) => give_back(address, &locked, false).map(drop),
    }
}

/// Returns the record of a device, and whether a process uses the device now. `None` if the device
/// was not taken.
#[must_use]
pub fn record_of(address: &str) -> Option<(Record, bool)> {
    let file = File::open(Path::new(RECORDS).join(address)).ok()?;
    // The lock is shared, so that several processes may read at the same time.
    let is_held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    Some((Record::read(&text_of(&file)), is_held))
}

/// Returns the PCI addresses of all devices that have a record, `/run/carina/nic/ADDRESS`: a
/// process of Carina has taken them from the kernel's driver, and they were not given back.
///
/// # Errors
/// The directory of the records exists, but cannot be read.
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
mod tests;
