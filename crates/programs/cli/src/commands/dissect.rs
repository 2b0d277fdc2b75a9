//! `carina dissect`: prints the content of a capture file as text or JSON.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use carina_api::control::Dialect;
use carina_dissect::{Dissector, Settings};
use carina_wire::capture::Reader;
use carina_wire::pcapng::{Direction, Item, Packet};
use serde_json::{Value, json};

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, usage};
use crate::report::{print_json, print_line};

/// Show the packets of a capture file: PDUs, CDAP messages, VMPI records, RINA ARP
///
/// Reads pcapng files, which `carina capture` writes, and files in the older format pcap. A file
/// may contain Ethernet frames, IP packets (link types RAW, LINUX_SLL, LINUX_SLL2, NULL, LOOP), or
/// PDUs and VMPI records that `carina capture` wrote. PDUs may be of any dialect. If neither the
/// file nor an option names the dialect, the command guesses the dialect from ARP and the first
/// PDU. Each packet is one line; with --verbose a paragraph, with --json an object.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  carina dissect blue.pcapng
  carina dissect --verbose blue.pcapng
  carina capture blue -w - | carina dissect -
  carina dissect --dif address=4,seq=8 of-another-tool.pcapng
  carina dissect --dialect irati --dif address=4 between-two-hosts.pcap")]
pub(crate) struct DissectArgs {
    /// Capture file to read; `-` reads standard input
    file: PathBuf,
    /// Print all fields of each packet [default: one line for each packet]
    #[arg(long, short)]
    verbose: bool,
    /// Widths in bytes of the DIF's PCI fields, if the file does not contain them; the defaults are
    /// address=2,cep=2,qos=1,seq=4,ctrl_seq=4,length=2,rate=4,frame=4, and delimiting=standard or
    /// none
    #[arg(long, value_name = "KEY=VALUE,..", default_value = "")]
    dif: String,
    /// Dialect of the DIF: native, rlite or irati. A dialect in the file overrides this option
    /// [default: native if --dif gives widths, else guessed from the packets]
    #[arg(long, value_name = "NAME")]
    dialect: Option<Dialect>,
}

impl DissectArgs {
    /// Settings for interfaces of the capture that have no description.
    fn settings(&self) -> Result<Settings, Failure> {
        let text = match self.dialect {
            Some(dialect) => format!("dialect={},{}", dialect.name(), self.dif),
            None => self.dif.clone(),
        };
        text.parse()
            .map_err(|what| usage(format!("--dif {}: {what}", self.dif)))
    }
}

/// Prints the packets of a capture file, decoded, one after the other.
///
/// # Errors
/// The file cannot be read, is not a capture file, or ends within a packet.
pub(crate) fn run(shared: &Shared, args: &DissectArgs) -> Outcome {
    let name = args.file.display().to_string();
    let mut input: Box<dyn Read> = if name == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(&args.file).attempt(format!("opening {name}"))?)
    };
    let mut show = Show::new(args.settings()?, shared.json, args.verbose);
    let mut portion = vec![0; 1 << 16];
    let mut reader = Reader::new();
    loop {
        let count = match input.read(&mut portion) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).attempt(format!("reading {name}")),
        };
        reader.feed(&portion[..count]);
        while let Some(item) = reader
            .poll()
            .map_err(|what| failed(format!("{name}: {what}")))?
        {
            show.item(&item)?;
        }
    }
    reader
        .end()
        .map_err(|what| failed(format!("{name}: {what}")))
}

/// Prints the items of a capture one by one.
pub(crate) struct Show {
    dissector: Dissector,
    /// Names of the interfaces, by number. A new section of the capture file (pcapng) begins a new
    /// list.
    names: Vec<String>,
    /// Time stamp of the first packet of the capture, in ns; printed times count from it. `None`
    /// until the first packet has been read.
    start_ns: Option<u64>,
    is_json: bool,
    is_verbose: bool,
}

impl Show {
    /// A printer; `fallback` has the settings for interfaces without a description.
    pub(crate) fn new(fallback: Settings, is_json: bool, is_verbose: bool) -> Show {
        Show {
            dissector: Dissector::new(fallback),
            names: Vec::new(),
            start_ns: None,
            is_json,
            is_verbose,
        }
    }

    /// Prints a packet; records the description of an interface or a new section.
    ///
    /// # Errors
    /// Standard output is closed, the write fails, or an interface has an invalid description.
    pub(crate) fn item(&mut self, item: &Item<'_>) -> Outcome {
        match item {
            Item::Section => {
                self.names.clear();
                self.dissector.begin_section();
                Ok(())
            }
            Item::Interface(interface) => {
                self.names.push(interface.name.clone());
                let added = self.dissector.add_interface(interface);
                added.map_err(|reason| failed(format!("interface {}: {reason}", interface.name)))
            }
            Item::Packet(packet) => self.packet(packet),
        }
    }

    fn packet(&mut self, packet: &Packet<'_>) -> Outcome {
        let layers = self.dissector.dissect(packet);
        let name = self.names.get(packet.interface as usize);
        let name = name.map_or("?", String::as_str);
        if self.is_json {
            let layers: Vec<Value> = layers.iter().map(|layer| layer.to_json()).collect();
            return print_json(&json!({
                "time_ns": packet.time_ns,
                "interface": name,
                "direction": word(packet.direction),
                "bytes": packet.original_bytes,
                "captured_bytes": packet.bytes.len(),
                "layers": layers,
            }));
        }
        let start = *self.start_ns.get_or_insert(packet.time_ns);
        let since = packet.time_ns.saturating_sub(start);
        let head = format!(
            "{:>5}.{:06} {:3} {name}",
            since / 1_000_000_000,
            since % 1_000_000_000 / 1000,
            word(packet.direction),
        );
        if self.is_verbose {
            let mut lines = vec![format!("{head} {} bytes", packet.original_bytes)];
            lines.extend(layers.iter().flat_map(|layer| layer.to_lines()));
            lines.push(String::new());
            return print_line(lines.join("\n"));
        }
        let gist: Vec<&str> = layers.iter().map(|layer| layer.summary.as_str()).collect();
        print_line(format!("{head} {}", gist.join(" | ")))
    }
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Unknown => "-",
        Direction::In => "in",
        Direction::Out => "out",
    }
}
