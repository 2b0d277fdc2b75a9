//! Devices on the PCI bus, through sysfs.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Address of a device on the PCI bus, e.g. `0000:00:04.0`.
pub type PciAddress = String;

const DEVICES: &str = "/sys/bus/pci/devices";

/// Returns the sysfs directory of the device with this PCI address.
#[must_use]
pub fn device_directory(address: &str) -> PathBuf {
    Path::new(DEVICES).join(address)
}

/// Properties of a PCI device, as sysfs shows them when they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciDevice {
    /// PCI address of the device.
    pub address: PciAddress,
    /// PCI vendor id of the device.
    pub vendor: u16,
    /// PCI device id, which the vendor assigns.
    pub device: u16,
    /// The kernel driver that the device is bound to; `None` if it is unbound.
    pub driver: Option<String>,
    /// Name of the network interface that the device's kernel driver has created; `None` if it has
    /// created none.
    pub interface: Option<String>,
    /// Whether an IOMMU translates the device's memory accesses.
    pub has_iommu: bool,
}

/// Finds the network cards of this system, sorted by PCI address. A system without PCI has none.
///
/// # Errors
/// sysfs cannot be read.
pub fn network_devices() -> io::Result<Vec<PciDevice>> {
    let is_network = |path: &Path| id_of(path, "class").is_some_and(|class| class >> 16 == 2);
    let found = addresses_where(is_network)?;
    Ok(found
        .into_iter()
        .filter_map(|at| find_device(&at))
        .collect())
}

/// Reads the properties of a device from sysfs; `None` if there is no device at this address.
#[must_use]
pub fn find_device(address: &str) -> Option<PciDevice> {
    let path = device_directory(address);
    let name_behind = |link: &str| {
        let target = fs::read_link(path.join(link)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    };
    Some(PciDevice {
        address: address.to_owned(),
        vendor: id_of(&path, "vendor")? as u16,
        device: id_of(&path, "device")? as u16,
        driver: name_behind("driver"),
        interface: interface_of(&path),
        has_iommu: path.join("iommu_group").exists(),
    })
}

/// The interface that a kernel driver has created for the device at this directory. For a virtio
/// device it is one directory level deeper.
fn interface_of(path: &Path) -> Option<String> {
    let first = |directory: &Path| {
        let entry = fs::read_dir(directory).ok()?.next()?.ok()?;
        entry.file_name().into_string().ok()
    };
    if let Some(name) = first(&path.join("net")) {
        return Some(name);
    }
    let entries = fs::read_dir(path).ok()?.flatten();
    let mut virtio = entries.filter(|e| e.file_name().as_encoded_bytes().starts_with(b"virtio"));
    virtio.find_map(|entry| first(&entry.path().join("net")))
}

fn id_of(path: &Path, file: &str) -> Option<u32> {
    let text = fs::read_to_string(path.join(file)).ok()?;
    u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// Finds the devices with this vendor id and device id (`wanted`, as sysfs writes them), sorted by
/// PCI address. A system without PCI has none.
///
/// # Errors
/// sysfs cannot be read.
pub fn devices_with_id(wanted: (&str, &str)) -> io::Result<Vec<PciAddress>> {
    addresses_where(|path| {
        let id = |file| fs::read_to_string(path.join(file)).unwrap_or_default();
        (id("vendor").trim(), id("device").trim()) == wanted
    })
}

fn addresses_where(is_wanted: impl Fn(&Path) -> bool) -> io::Result<Vec<PciAddress>> {
    let root = match fs::read_dir(DEVICES) {
        Ok(root) => root,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(file_error(Path::new(DEVICES), &e)),
    };
    let mut found = Vec::new();
    for entry in root {
        let path = entry?.path();
        if is_wanted(&path) {
            found.extend(path.file_name().and_then(|n| n.to_str()).map(String::from));
        }
    }
    found.sort();
    Ok(found)
}

/// Parses an address in the form `0000:00:04.0` or `00:04.0`. Returns it with its domain; `None` if
/// the text is not an address.
#[must_use]
pub fn parse_address(text: &str) -> Option<PciAddress> {
    let is_hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let (front, function) = text.split_once('.')?;
    let parts: Vec<&str> = front.split(':').collect();
    let (domain, bus, device) = match parts[..] {
        [bus, device] => ("0000", bus, device),
        [domain, bus, device] => (domain, bus, device),
        _ => return None,
    };
    let is_right = is_hex(domain, 4)
        && is_hex(bus, 2)
        && is_hex(device, 2)
        && matches!(function.as_bytes(), [b'0'..=b'7']);
    is_right.then(|| format!("{domain}:{bus}:{device}.{function}").to_ascii_lowercase())
}

/// Checks that a text is a complete PCI address, before it becomes part of a path.
///
/// # Errors
/// The text is not well formed.
pub fn check_address(address: &str) -> io::Result<()> {
    if parse_address(address).as_deref() == Some(address) {
        return Ok(());
    }
    let text = format!("PCI address `{address}`: must look like 0000:00:04.0");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Unbinds a device from its driver, enables it, and allows it to access memory.
///
/// # Errors
/// The error of sysfs, with the file.
pub fn claim(address: &str) -> io::Result<()> {
    let path = device_directory(address);
    if path.join("driver").exists() {
        write(&path.join("driver/unbind"), address)?;
    }
    write(&path.join("enable"), "1")?;
    change_command(address, MEMORY_AND_MASTER, 0)
}

/// Forbids a device to access memory. It stops a device that a killed process left running.
///
/// # Errors
/// The error of sysfs, with the file.
pub fn stop_dma(address: &str) -> io::Result<()> {
    change_command(address, 0, MASTER)
}

/// Reverts the enabling by [`claim`] in the kernel's bookkeeping, so that a driver finds the device
/// in its earlier state.
pub fn disable(address: &str) {
    // If only its driver enabled the device, there is nothing to revert.
    let _ = write(&device_directory(address).join("enable"), "0");
}

fn change_command(address: &str, set: u16, clear: u16) -> io::Result<()> {
    let config = device_directory(address).join("config");
    let file = fs::OpenOptions::new().read(true).write(true).open(&config);
    let file = file.map_err(|error| file_error(&config, &error))?;
    let mut command = [0; 2];
    let changed = file.read_exact_at(&mut command, COMMAND).and_then(|()| {
        let command = u16::from_le_bytes(command) & !clear | set;
        file.write_all_at(&command.to_le_bytes(), COMMAND)
    });
    changed.map_err(|error| file_error(&config, &error))
}

/// Offset of the command register in PCI configuration space, and its bits "memory" and "bus
/// master".
const COMMAND: u64 = 4;
const MASTER: u16 = 1 << 2;
const MEMORY_AND_MASTER: u16 = 1 << 1 | MASTER;

/// Opens a file of sysfs, or a device node, for reading and writing.
///
/// # Errors
/// The kernel's refusal, with the path.
pub fn open_file(path: &Path) -> io::Result<OwnedFd> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path);
    file.map(OwnedFd::from).map_err(|e| file_error(path, &e))
}

/// Writes a word to a file of sysfs.
///
/// # Errors
/// The kernel's refusal, with the path.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| file_error(path, &e))
}

/// Makes an error with the same kind as `error` and a text that names the file.
#[must_use]
pub fn file_error(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_a_domain() {
        assert_eq!(parse_address("00:04.0").as_deref(), Some("0000:00:04.0"));
        assert_eq!(
            parse_address("00AF:1f:1B.7").as_deref(),
            Some("00af:1f:1b.7")
        );
        for wrong in [
            "",
            "eth0",
            "00:04",
            "0:4.0",
            "0000:00:04.8",
            "00:04.0/..",
            "../../x:04.0",
        ] {
            assert_eq!(parse_address(wrong), None, "{wrong}");
        }
        assert!(check_address("0000:00:04.0").is_ok());
        let error = check_address("00:04.0").unwrap_err().to_string();
        assert!(error.contains("must look like 0000:00:04.0"), "{error}");
    }
}
