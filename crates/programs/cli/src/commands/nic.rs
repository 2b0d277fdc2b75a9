//! `carina nic`: lists network cards on the PCI bus, takes them from the kernel, and gives them
//! back.

use carina_nic::binding::{self, BindError, Record};
use carina_nic::driver_for;
use carina_nic::pci::{self, PciDevice, parse_address};
use carina_text::table::Table;
use clap::Subcommand;
use serde_json::{Value, json};

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, refused};
use crate::report::{print_json, print_line};

/// List network cards on the PCI bus, take them from the kernel, and give them back
#[derive(Debug, Subcommand)]
pub(crate) enum NicCommand {
    /// List network cards, their kernel driver and interface, and Carina's driver for them
    #[command(
        after_help = "Example:\n  carina nic list\n\nA card for which Carina has a driver can \
        be used as a port: carina forward 0000:00:04.0 eth1."
    )]
    List,
    /// Take a card from its kernel driver, and keep it until `nic restore`
    #[command(
        after_help = "Example:\n  carina nic bind 0000:00:04.0\n\nA command that uses a card \
        takes the card itself, and gives it back when the command ends. A card\nthat is bound \
        stays taken, so that the next command can use it at once."
    )]
    Bind {
        /// PCI address of the card, such as 0000:00:04.0
        #[arg(value_name = "ADDRESS", value_parser = address)]
        address: String,
        /// Take the card even if routes of this host lead through it
        #[arg(long)]
        force: bool,
    },
    /// Give a card back to the kernel driver that had it
    #[command(
        after_help = "Examples:\n  carina nic restore 0000:00:04.0\n  carina nic restore\n\nUse \
        it for cards that `nic bind` took, and for cards whose process was killed together with \
        its guardian."
    )]
    Restore {
        /// PCI address of the card [default: all cards that Carina took and no process uses]
        #[arg(value_name = "ADDRESS", value_parser = address)]
        address: Option<String>,
    },
    /// Helper that Carina starts: gives a card back to its kernel driver when standard input ends
    #[command(hide = true)]
    Guard {
        /// PCI address of the card
        #[arg(value_parser = address)]
        address: String,
    },
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not the address of a card, which looks like 0000:00:04.0")]
struct NoAddress(String);

fn address(text: &str) -> Result<String, NoAddress> {
    parse_address(text).ok_or_else(|| NoAddress(text.to_owned()))
}

/// Runs a command of `carina nic`.
///
/// # Errors
/// There is no such card, a process uses it, or the system refuses.
pub(crate) fn run(shared: &Shared, command: &NicCommand) -> Outcome {
    match command {
        NicCommand::List => list(shared),
        NicCommand::Bind { address, force } => {
            let record = binding::keep(address, *force).map_err(as_failure)?;
            show(shared, "taken from", &[(address.clone(), record)])
        }
        NicCommand::Restore { address } => restore(shared, address.as_deref()),
        NicCommand::Guard { address } => binding::guard(address).map_err(as_failure),
    }
}

fn as_failure(error: BindError) -> Failure {
    match error {
        BindError::NoDevice { .. } | BindError::Used { .. } => refused(error),
        error => failed(error),
    }
}

fn list(shared: &Shared) -> Outcome {
    let cards = pci::network_devices().attempt("reading the PCI bus")?;
    if shared.json {
        let cards: Vec<Value> = cards.iter().map(as_json).collect();
        return print_json(&json!({ "nics": cards }));
    }
    let mut table = Table::new([
        "address",
        "device",
        "kernel",
        "interface",
        "carina",
        "iommu",
    ]);
    for card in &cards {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let used = match binding::record_of(&card.address) {
            Some((record, true)) => format!(", process {}", record.process),
            Some((_, false)) => ", taken".to_owned(),
            None => String::new(),
        };
        table.row([
            card.address.clone(),
            format!("{:04x}:{:04x}", card.vendor, card.device),
            or_none(&card.driver),
            or_none(&card.interface),
            driver_for(card).map_or("no driver".to_owned(), |driver| format!("{driver}{used}")),
            if card.has_iommu { "yes" } else { "no" }.to_owned(),
        ]);
    }
    if cards.is_empty() {
        print_line("no network card on a PCI bus")
    } else {
        print_line(table)
    }
}

fn as_json(card: &PciDevice) -> Value {
    let record = binding::record_of(&card.address);
    let process = record.as_ref().filter(|(_, is_held)| *is_held);
    json!({
        "address": card.address,
        "vendor": format!("{:04x}", card.vendor),
        "device": format!("{:04x}", card.device),
        "kernel_driver": card.driver,
        "interface": card.interface,
        "driver": driver_for(card),
        "has_iommu": card.has_iommu,
        "is_taken": record.is_some(),
        "process": process.map(|(record, _)| record.process),
        "restore_driver": record.as_ref().and_then(|(record, _)| record.driver.clone()),
    })
}

fn restore(shared: &Shared, wanted: Option<&str>) -> Outcome {
    let addresses = match wanted {
        Some(address) => vec![address.to_owned()],
        None => binding::recorded().attempt("reading which cards are taken")?,
    };
    let (mut done, mut failure) = (Vec::new(), None);
    for address in addresses {
        match binding::restore(&address) {
            Ok(Some(record)) => done.push((address, record)),
            Ok(None) if wanted.is_some() && pci::find_device(&address).is_none() => {
                return Err(as_failure(BindError::NoDevice { address }));
            }
            Ok(None) => {}
            // Without an address, cards that a process uses are skipped.
            Err(BindError::Held { .. }) if wanted.is_none() => {}
            Err(error) => failure = Some(as_failure(error)),
        }
    }
    show(shared, "given back to", &done)?;
    failure.map_or(Ok(()), Err)
}

fn show(shared: &Shared, what: &str, cards: &[(String, Record)]) -> Outcome {
    if shared.json {
        let cards = cards.iter().map(
            |(address, record)| json!({ "address": address, "restore_driver": record.driver }),
        );
        return print_json(&json!({ "nics": cards.collect::<Vec<_>>() }));
    }
    for (address, record) in cards {
        let driver = record.driver.as_deref().unwrap_or("no driver");
        print_line(format!("{address}: {what} {driver}"))?;
    }
    if cards.is_empty() {
        print_line("no card was taken")
    } else {
        Ok(())
    }
}
