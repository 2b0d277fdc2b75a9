//! Devices on the PCI bus of a guest, through sysfs.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where a device is on the bus, e.g. `0000:00:04.0`.
pub type PciAddress = String;

const DEVICES: &str = "/sys/bus/pci/devices";

/// Where sysfs has a device.
pub(super) fn device_directory(address: &str) -> PathBuf {
    Path::new(DEVICES).join(address)
}

/// The devices of a vendor and a kind, sorted by address. A system without PCI has none.
pub(super) fn devices_with_id(wanted: (&str, &str)) -> io::Result<Vec<PciAddress>> {
    let root = match fs::read_dir(DEVICES) {
        Ok(root) => root,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(file_error(Path::new(DEVICES), &e)),
    };
    let mut found = Vec::new();
    for entry in root {
        let path = entry?.path();
        let id = |file| fs::read_to_string(path.join(file)).unwrap_or_default();
        if (id("vendor").trim(), id("device").trim()) == wanted {
            found.extend(path.file_name().and_then(|n| n.to_str()).map(String::from));
        }
    }
    found.sort();
    Ok(found)
}

/// Refuses what cannot be an address, before it becomes part of a path.
pub(super) fn check_address(address: &str) -> io::Result<()> {
    let is_right = !address.is_empty()
        && address
            .bytes()
            .all(|b| b.is_ascii_hexdigit() || b":.".contains(&b));
    if is_right {
        return Ok(());
    }
    let text = format!("PCI address `{address}`: must look like 0000:00:04.0");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Takes a device from the driver that has it, and lets it answer and read and write memory.
pub(super) fn claim(address: &str) -> io::Result<()> {
    let path = device_directory(address);
    if path.join("driver").exists() {
        write(&path.join("driver/unbind"), address)?;
    }
    write(&path.join("enable"), "1")?;
    let config = path.join("config");
    let file = fs::OpenOptions::new().read(true).write(true).open(&config);
    let file = file.map_err(|error| file_error(&config, &error))?;
    let mut command = [0; 2];
    let set = file.read_exact_at(&mut command, COMMAND).and_then(|()| {
        let command = u16::from_le_bytes(command) | MEMORY_AND_MASTER;
        file.write_all_at(&command.to_le_bytes(), COMMAND)
    });
    set.map_err(|error| file_error(&config, &error))
}

/// Offset of the command register in PCI configuration space; memory and bus master enable.
const COMMAND: u64 = 4;
const MEMORY_AND_MASTER: u16 = 1 << 1 | 1 << 2;

pub(super) fn open_file(path: &Path) -> io::Result<OwnedFd> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path);
    file.map(OwnedFd::from).map_err(|e| file_error(path, &e))
}

pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| file_error(path, &e))
}

pub(super) fn file_error(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
