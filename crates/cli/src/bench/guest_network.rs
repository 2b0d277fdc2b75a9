//! Addresses of the guest's network cards, set from inside for the systems that need them.

use std::path::Path;
use std::process::Command;

use crate::failure::{Attempt, Failure, failed};

/// Gives the interface with the given driver an address such as `10.77.1.2/24` and starts it.
///
/// # Errors
/// No such interface, or `ip` refuses.
pub fn set_address(driver: &str, address: &str) -> Result<(), Failure> {
    let interface = interface_of(Path::new("/sys/class/net"), driver)?;
    // Two cards share one bridge: each must answer only for its own address.
    for (key, value) in [("arp_ignore", "1"), ("arp_announce", "2")] {
        let path = format!("/proc/sys/net/ipv4/conf/all/{key}");
        std::fs::write(&path, value).attempt(format!("writing {path}"))?;
    }
    ip(&["addr", "flush", "dev", &interface])?;
    ip(&["addr", "add", address, "dev", &interface])?;
    ip(&["link", "set", "dev", &interface, "up"])
}

fn interface_of(class: &Path, driver: &str) -> Result<String, Failure> {
    let entries = std::fs::read_dir(class).attempt(format!("reading {}", class.display()))?;
    for entry in entries.flatten() {
        let link = std::fs::read_link(entry.path().join("device/driver"));
        if link.is_ok_and(|target| target.file_name().is_some_and(|name| name == driver)) {
            return Ok(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Err(failed(format!(
        "no network interface here has the driver {driver}"
    )))
}

/// Runs `ip` with the given arguments.
///
/// # Errors
/// `ip` is missing (package iproute2, or busybox) or refuses; its words are kept.
pub fn ip(arguments: &[&str]) -> Result<(), Failure> {
    let command = format!("ip {}", arguments.join(" "));
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .attempt(&command)?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("{command}: {}", words.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_is_found_by_its_driver() {
        let class = std::env::temp_dir().join(format!("carina-net-{}", std::process::id()));
        let device = class.join("eth7/device");
        std::fs::create_dir_all(&device).unwrap();
        std::os::unix::fs::symlink("../../bus/pci/drivers/e1000", device.join("driver")).unwrap();
        assert_eq!(interface_of(&class, "e1000").unwrap(), "eth7");
        let missing = interface_of(&class, "virtio_net").unwrap_err().to_string();
        std::fs::remove_dir_all(&class).unwrap();
        assert!(missing.contains("virtio_net"), "{missing}");
    }
}
