//! `carina lwaftr generate`: prints a configuration with generated softwires for tests, and writes
//! captures of frames that match it.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use carina_lwaftr::check::write_frames;
use carina_lwaftr::generate::Plan;

use crate::failure::{Attempt, Outcome, refused};
use crate::report::print_line;

/// Options of `carina lwaftr generate`: the softwires to generate, and the capture files to write.
#[derive(Debug, clap::Args)]
pub(crate) struct GenerateArgs {
    /// First of the IPv4 addresses that customers share; the others follow in sequence
    ipv4: Ipv4Addr,
    /// Number of IPv4 addresses that customers share
    addresses: u32,
    /// IPv6 address of the AFTR's end of all softwires
    br: Ipv6Addr,
    /// IPv6 address of the first customer (B4); the others follow it
    b4: Ipv6Addr,
    /// Length of the PSID (port-set identifier) in bits: 2^PSID_BITS customers share each IPv4
    /// address
    psid_bits: u8,
    /// Write frames from the Internet to this pcap file: one frame for each softwire, then again
    /// from the first one [default: write none]
    #[arg(long, value_name = "FILE")]
    pcap_v4: Option<PathBuf>,
    /// Write the corresponding frames from the access network to this pcap file [default: write
    /// none]
    #[arg(long, value_name = "FILE")]
    pcap_v6: Option<PathBuf>,
    /// Number of frames per file [default: the number of softwires, at most 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    packets: Option<u32>,
    /// Length of a frame from the Internet in bytes, without FCS; frames from B4s are 40 bytes
    /// longer
    #[arg(long, value_name = "BYTES", default_value_t = 60)]
    packet_size: usize,
}

/// Prints the configuration, and writes the captures.
pub(super) fn run(args: &GenerateArgs) -> Outcome {
    let plan = Plan {
        ipv4: args.ipv4,
        addresses: args.addresses,
        br: args.br,
        b4: args.b4,
        psid_bits: args.psid_bits,
    };
    let text = plan.text().map_err(refused)?;
    let files = [&args.pcap_v4, &args.pcap_v6];
    if files.iter().any(|file| file.is_some()) {
        let softwires = u64::from(args.addresses) << args.psid_bits;
        let count = args.packets.map_or(softwires.min(FRAMES), u64::from);
        let frames = plan.frames(count as usize, args.packet_size);
        for (file, frames) in files.into_iter().zip(frames.map_err(refused)?) {
            let Some(file) = file else { continue };
            let written = fs::write(file, write_frames(&frames));
            written.attempt(format!("writing {}", file.display()))?;
        }
    }
    print_line(text.trim_end())
}

/// Default limit of the number of frames per file.
const FRAMES: u64 = 20_000;
