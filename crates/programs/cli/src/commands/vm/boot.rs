//! `carina vm run`: makes a port for a VM, starts QEMU and waits for the guest.

use std::time::Duration;

use carina_api::LocalName;
use carina_api::control::{Client, LinkState};
use carina_vm::{Boot, Cache, Image, Machine, Nic, Record, SshKeys};

use super::boot_attempt::BootAttempt;
use super::cards::card;
use super::own_guest::{self, wait_for_services, with_programs};
use super::{BOOT, Doors, RunArgs, START, console, ip_link, vsock};
use crate::Shared;
use crate::commands::{guest_ip, ssh};
use crate::failure::{Attempt, Failure, Outcome, failed, usage};
use crate::report::{print_json, print_line, progress};

pub(super) fn boot(shared: &Shared, args: RunArgs) -> Outcome {
    if args.disk.is_some() && (args.command.is_some() || args.iommu) {
        return Err(usage(
            "--command and --iommu are for Carina's own guest, not for --disk",
        ));
    }
    let mut qemu_args = Vec::new();
    for text in &args.qemu_args {
        qemu_args.extend(words(text)?);
    }
    let nics = args.nic.iter().enumerate();
    let nics = nics.map(|(number, nic)| card(shared, &args.name, number, nic));
    let nics: Vec<Nic> = nics.collect::<Result<_, _>>()?;
    let cache = Cache::default_location().attempt("opening the cache")?;
    let boot = match &args.disk {
        Some(disk) => {
            // A disk that cannot be opened is reported before anything is created for the VM.
            std::fs::File::open(disk).attempt(format!("opening the disk {}", disk.display()))?;
            Boot::Disk(disk.clone())
        }
        None => {
            progress("building the guest's image");
            let program = std::env::current_exe().attempt("finding this program")?;
            let image = Image::new().node(&program).attempt("packing carina")?;
            let image = with_programs(image, &args)?;
            Boot::prepare(&cache, &image).attempt("preparing the guest")?
        }
    };
    boot.check_memory(args.memory).map_err(usage)?;
    if !args.ip.is_empty() {
        ip_link::check(&args)?;
    }
    let keys = args
        .ssh
        .then(|| SshKeys::generate(&shared.run_dir().vm_dir()));
    let keys = keys.transpose().attempt("making keys for ssh")?;
    let attempt = BootAttempt::begin(shared, &args.name, args.port.clone(), Doors::of(&args))?;
    let parts = Parts {
        boot,
        nics,
        qemu_args,
        keys,
    };
    let booted = start_guest(shared, &args, parts, &attempt);
    if booted.is_err() {
        attempt.take_back();
    }
    let record = booted?;
    if shared.json {
        print_json(&record)?
    } else {
        print_line(format!(
            "VM {} runs ({}, QEMU {}), DIF {}",
            record.name, record.accel, record.pid, attempt.info.dif
        ))?
    }
    if args.console {
        console(shared, &args.name)
    } else {
        Ok(())
    }
}

/// What `carina vm run` needs to start a VM, besides the VM's port.
struct Parts {
    boot: Boot,
    nics: Vec<Nic>,
    qemu_args: Vec<String>,
    /// The keys for ssh; `None` without `--ssh`.
    keys: Option<SshKeys>,
}

/// Starts QEMU. Then waits until Carina's own guest has booted, or until the sshd of a guest from a
/// disk is reachable. Does not wait with `--no-wait` or `--console`, or for a disk without `--ssh`.
fn start_guest(
    shared: &Shared,
    args: &RunArgs,
    parts: Parts,
    attempt: &BootAttempt,
) -> Result<Record, Failure> {
    let info = &attempt.info;
    let is_own_guest = args.disk.is_none();
    let mut qemu_args = parts.qemu_args;
    if let Some(link) = info.ip.as_ref().filter(|_| !is_own_guest) {
        qemu_args.extend(guest_ip::qemu_args(&link.addresses));
    }
    let cache = Cache::default_location().attempt("opening the cache")?;
    let mut machine = Machine::new(args.name.as_str(), &attempt.vm_dir)
        .attempt("naming the VM")?
        .boot(parts.boot)
        .memory_mib(args.memory)
        .cpus(args.cpus)
        .vmpi(info.vmpi, &info.qemu_socket)
        .extra_args(qemu_args);
    if is_own_guest {
        machine = own_guest::furnish(machine, info, args)?;
    }
    machine = match &parts.keys {
        Some(keys) if is_own_guest => machine.ssh(keys),
        Some(keys) => own_guest::seed(machine, info, keys)?,
        None => machine,
    };
    if args.iommu {
        machine = machine.iommu();
    }
    machine = parts.nics.into_iter().fold(machine, Machine::nic);
    if let Some(command) = &args.command {
        machine = machine.command(command);
    }
    vsock::start_server(shared, info)?;
    let running = attempt.start(machine, &cache)?;
    running.wait_started(START).attempt("starting QEMU")?;
    if is_own_guest && !args.no_wait && !args.console {
        progress("booting");
        running.wait_ready(BOOT).attempt("waiting for the guest")?;
        wait_for_link(&shared.control(), &args.name)?;
        ip_link::wait_until_up(shared, info)?;
        wait_for_services(shared, &running, info, args.ssh)?;
    }
    if !is_own_guest && args.ssh && !args.no_wait && !args.console {
        progress("booting");
        let name = args.name.as_str();
        ssh::wait_for_name(shared, name, &ssh::server_of(name), DISK_BOOT)?;
    }
    Ok(attempt.finish(running))
}

/// How long a guest from a disk may take until its node has registered its sshd. Without KVM, a
/// whole distribution boots slowly.
const DISK_BOOT: Duration = Duration::from_secs(600);

/// Splits a text at white space as a shell does; single and double quotes keep words together.
fn words(text: &str) -> Result<Vec<String>, Failure> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    match quote {
        None => Ok(words),
        Some(open) => Err(usage(format!(
            "--qemu-args: {open} is not closed in {text}"
        ))),
    }
}

fn wait_for_link(node: &Client, name: &LocalName) -> Outcome {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while std::time::Instant::now() < deadline {
        let info = node
            .vm(name.as_str())
            .attempt(format!("asking the node for VM {name}"))?;
        if info.state == LinkState::Up {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(failed(format!(
        "VM {name} is up but its node has not attached; see /var/log/carina.log in the guest"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_does() {
        let split = |text| words(text).ok();
        let want = |list: &[&str]| Some(list.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(split("  -vga std "), want(&["-vga", "std"]));
        assert_eq!(
            split(r#"-append "console=ttyS0 quiet" -x 'a"b'c """#),
            want(&["-append", "console=ttyS0 quiet", "-x", "a\"bc", ""])
        );
        assert_eq!(split("-append 'open"), None);
    }
}
