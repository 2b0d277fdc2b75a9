//! `carina lwaftr generate`: configurations and captures for trials.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use carina_lwaftr::check::write_frames;
use carina_lwaftr::generate::Plan;

use crate::failure::{Attempt, Outcome, refused};
use crate::report::print_line;

/// Options of `carina lwaftr generate`.
#[derive(Debug, clap::Args)]
pub struct GenerateArgs {
    /// The first IPv4 address
    ipv4: Ipv4Addr,
    /// How many addresses
    addresses: u32,
    /// The AFTR's end of all tunnels
    br: Ipv6Addr,
    /// The first customer's end
    b4: Ipv6Addr,
    /// Bits of the PSID: an address has 2^BITS customers
    psid_bits: u8,
    /// Write frames from the Internet to a file, of one softwire after the other
    #[arg(long, value_name = "FILE")]
    pcap_v4: Option<PathBuf>,
    /// Write frames from the access network, likewise
    #[arg(long, value_name = "FILE")]
    pcap_v6: Option<PathBuf>,
    /// Frames in a file [default: as many as softwires, at most 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    packets: Option<u32>,
    /// Bytes of a frame from the Internet, without FCS; those from B4s are 40 longer
    #[arg(long, value_name = "BYTES", default_value_t = 60)]
    packet_size: usize,
}

/// Prints the configuration, and writes the captures.
pub fn run(args: &GenerateArgs) -> Outcome {
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

/// Frames in a file where nothing is said.
const FRAMES: u64 = 20_000;
