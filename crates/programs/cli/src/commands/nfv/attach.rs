//! `carina nfv args`: prints what connects a virtual machine to a port.

use std::path::{Path, PathBuf};

use carina_nfv::traffic::attach::Card;
use carina_nfv::traffic::{Traffic, TrafficPort};
use serde_json::json;

use super::{Source, record};
use crate::Shared;
use crate::failure::{Failure, Outcome, refused, usage};
use crate::report::{print_json, print_line, progress};

/// Options of `carina nfv args`: the port, and the format of the arguments to print.
#[derive(Debug, clap::Args)]
pub(crate) struct AttachArgs {
    /// Port for which to print the arguments, by its name in the file of `carina nfv run`
    port: String,
    /// File that describes the port [default: search the ports of all running nfv processes]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// With --file: the path that --socket of `carina nfv run` gave to ports without a key `socket`
    /// in the file; %s stands for the port's name [default: nfv/%s.sock in the run directory]
    #[arg(long, value_name = "PATH", requires = "file")]
    socket: Option<String>,
    /// Print arguments for QEMU (default)
    #[arg(long, conflicts_with = "libvirt")]
    qemu: bool,
    /// Print elements for a libvirt domain
    #[arg(long)]
    libvirt: bool,
    /// Size of the guest's memory, such as 1G, as for QEMU's -m; adds the arguments by which QEMU
    /// shares this memory with Carina [default: print no such arguments]
    #[arg(long, value_name = "SIZE", conflicts_with = "libvirt", value_parser = size)]
    memory: Option<String>,
    /// Add vectors=0, for a QEMU without KVM: otherwise QEMU 7.2 crashes when the guest enables
    /// MSI-X
    #[arg(long, conflicts_with = "libvirt")]
    emulated: bool,
    /// MTU in bytes to announce to the guest's driver, such as 1450 behind a tunnel [default: none]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(68..))]
    mtu: Option<u16>,
}

/// The text is not a size of memory.
#[derive(Debug, thiserror::Error)]
#[error("must be a number above 0, followed by K, M, G or T, such as 512M")]
struct SizeError;

fn size(text: &str) -> Result<String, SizeError> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let is_right =
        digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.bytes().any(|byte| byte != b'0');
    if is_right && text.len() - digits.len() <= 1 {
        Ok(text.to_owned())
    } else {
        Err(SizeError)
    }
}

pub(super) fn run(shared: &Shared, args: &AttachArgs) -> Outcome {
    let port = find(shared, args)?;
    let card = Card::of(&port).map_err(refused)?.with_mtu(args.mtu);
    if args.libvirt {
        let xml = card.libvirt();
        return if shared.json {
            print_json(&json!({ "libvirt": xml }))
        } else {
            print_line(xml.trim_end())
        };
    }
    let arguments = card.qemu(args.memory.as_deref(), args.emulated);
    if shared.json {
        return print_json(&json!({ "qemu": arguments }));
    }
    if args.memory.is_none() {
        progress("QEMU must share the guest's memory: --memory SIZE adds the arguments for that");
    }
    if !args.emulated && !Path::new("/dev/kvm").exists() {
        progress(
            "this system has no KVM: --emulated adds the arguments that QEMU 7.2 needs \
            without KVM",
        );
    }
    let pairs = arguments.chunks(2).map(|pair| pair.join(" "));
    print_line(pairs.collect::<Vec<_>>().join("\n"))
}

fn find(shared: &Shared, args: &AttachArgs) -> Result<TrafficPort, Failure> {
    let mut known = Vec::new();
    let mut search = |traffic: Traffic| {
        known.extend(traffic.ports.iter().map(|port| port.name.clone()));
        let mut ports = traffic.ports.into_iter();
        ports.find(|port| port.name == args.port)
    };
    let found = match &args.file {
        Some(file) => {
            let source = Source {
                file: file.clone(),
                uplink: None,
                socket: args.socket.clone(),
            };
            search(source.read(shared)?)
        }
        None => {
            let records = record::all(shared);
            if records.is_empty() {
                return Err(usage(
                    "`carina nfv run` does not run on this system; --file FILE names a file of \
                     ports",
                ));
            }
            let mut found = None;
            for record in records {
                let traffic = record.traffic()?;
                found = found.or_else(|| search(traffic));
            }
            found
        }
    };
    found.ok_or_else(|| {
        let known = if known.is_empty() {
            "there are no ports".to_owned()
        } else {
            format!("there are {}", known.join(", "))
        };
        refused(format!("no port {:?}: {known}", args.port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_qemu() {
        assert_eq!(size("512M").unwrap(), "512M");
        assert_eq!(size("1073741824").unwrap(), "1073741824");
        for wrong in ["", "M", "0", "0M", "1GB", "1 G", "1GG", "1,share=off"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
