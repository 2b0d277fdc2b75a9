//! The IP addresses of a guest: how its node is configured with them, and how a guest from a disk
//! reads them from its host.
//!
//! The host passes them as a file of QEMU's firmware configuration (fw_cfg). The guest's kernel
//! shows the file where its module qemu_fw_cfg is loaded, as systemd does.

use std::fs::File;
use std::io::{ErrorKind, Read};

use carina_api::DifName;
use carina_ip::{Address, VmLink};

use crate::failure::{Attempt, Failure, failed};

/// Arguments for QEMU that pass the addresses to the guest.
pub(crate) fn qemu_args(addresses: &[String]) -> [String; 2] {
    // No address has a comma, which would end the text.
    let text = addresses.join(" ");
    ["-fw_cfg".to_owned(), format!("name={NAME},string={text}")]
}

/// The table of the configuration of the guest's node that makes the guest's interface.
pub(crate) fn table(link: &VmLink) -> String {
    let settings = link.of_vm();
    let list = |all: Vec<String>| format!("[{}]", all.join(", "));
    let address = settings
        .address
        .iter()
        .map(|address| format!("\"{address}\""));
    let route = settings.route.iter().map(|route| format!("\"{route}\""));
    format!(
        "[[ip]]\ndif = \"{}\"\naddress = {}\nroute = {}\n",
        settings.dif,
        list(address.collect()),
        list(route.collect())
    )
}

/// In a guest: the table for the addresses that the host has passed, with the DIF to the host, or
/// nothing if the host has passed none.
///
/// # Errors
/// The file cannot be read, or has no addresses of a VM.
pub(crate) fn passed_table(dif: &DifName) -> Result<String, Failure> {
    let what = || format!("reading {FILE}");
    let mut text = String::new();
    let file = match File::open(FILE) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(text),
        Err(error) => return Err(error).attempt(what()),
    };
    file.take(BYTES_MAX)
        .read_to_string(&mut text)
        .attempt(what())?;
    table_of(&text, dif).map_err(|error| failed(format!("{}: {error}", what())))
}

fn table_of(text: &str, dif: &DifName) -> Result<String, carina_ip::IpError> {
    let words = text.trim_end_matches('\0').split_whitespace();
    let addresses = words.map(str::parse::<Address>);
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    Ok(table(&VmLink::new(dif.clone(), addresses, false)?))
}

/// Name of the file in the firmware configuration. (QEMU's docs/specs/fw_cfg: `opt/` is the user's)
const NAME: &str = "opt/carina/ip";
const FILE: &str = "/sys/firmware/qemu_fw_cfg/by_name/opt/carina/ip/raw";
/// Longest text that is read, in bytes: enough for many addresses.
const BYTES_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_reach_the_configuration_of_the_guests_node() {
        let dif = DifName::new("hv.d").unwrap();
        let passed = ["10.9.1.2/24".to_owned(), "fd00:9::2/64".to_owned()];
        let [option, value] = qemu_args(&passed);
        assert_eq!(option, "-fw_cfg");
        let text = value.strip_prefix("name=opt/carina/ip,string=").unwrap();
        assert_eq!(
            table_of(text, &dif).unwrap(),
            "[[ip]]\ndif = \"hv.d\"\naddress = [\"10.9.1.2/24\", \"fd00:9::2/64\"]\n\
             route = [\"0.0.0.0/0\", \"::/0\"]\n"
        );
        for wrong in ["", "garbage", "10.9.1.2/32", "10.9.1.2/24 \u{fffd}"] {
            assert!(table_of(wrong, &dif).is_err(), "{wrong}");
        }
    }
}
