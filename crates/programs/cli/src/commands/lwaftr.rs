//! `carina lwaftr`: runs, checks and controls an AFTR (RFC 7596).

use std::fs;
use std::path::{Path, PathBuf};

use carina_lwaftr::channel::Verb;
use carina_lwaftr::check::{
    CheckError, Frames, Inputs, counter_differences, differences, first_queue, read_counters,
    read_frames, read_inputs, write_counters, write_frames,
};
use carina_lwaftr::config::Rules;
use carina_lwaftr::file::{Loaded, compile, is_compiled, read, read_compiled};
use carina_lwaftr::monitor::Monitor;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, refused};
use crate::report::{print_json, print_line, progress};

mod alarms;
#[cfg(feature = "tools")]
pub(crate) mod bench;
mod config;
#[cfg(feature = "tools")]
pub(crate) mod demo;
mod generate;
mod running;

/// Run and control a lightweight AFTR (RFC 7596): IPv4 service for customers behind IPv6
#[derive(Debug, Subcommand)]
pub(crate) enum LwaftrCommand {
    /// Run an AFTR, and apply changes of its configuration file
    ///
    /// When the file changes, or on SIGHUP, the new binding table takes effect between two packets,
    /// and no packet is lost. A file with errors is reported and changes nothing.
    #[command(after_help = "Examples:\n  \
        carina lwaftr run --conf lwaftr.conf --v4 eth1 --v6 eth2\n  \
        carina lwaftr run --conf lwaftr.conf --on-a-stick eth1 --cpu 1 --for 10s --json\n  \
        carina lwaftr run --conf lwaftr.conf --v4 eth1 --v6 eth2 --workers 3 --cpu 0,1,2,3\n\n\
        Needs CAP_NET_RAW for an interface, CAP_NET_ADMIN for a tap. Exit code 3: the file is wrong.")]
    Run(Box<running::RunArgs>),
    /// Check the configuration of an AFTR; or run two captures through it, and compare the output
    ///
    /// The frames that leave the AFTR are compared with two other captures.
    #[command(
        after_help = "Examples:\n  carina lwaftr check lwaftr.conf\n  carina lwaftr check \
        lwaftr.conf in4.pcap in6.pcap out4.pcap out6.pcap counters\n  carina lwaftr check \
        --write lwaftr.conf in4.pcap in6.pcap out4.pcap out6.pcap counters\n\nExit code 3: the \
        configuration is wrong, as for lwaftr run. Exit code 1: the output or a counter differs \
        from the expected one. Frames arrive at the times in their captures, relative to the \
        first frame of each capture. Packets that were captured without MAC addresses get those \
        of the configuration; the expected output must be Ethernet frames. The command refuses \
        captures with truncated packets."
    )]
    Check(CheckArgs),
    #[cfg(feature = "tools")]
    /// Forward the frames of two captures repeatedly on one core, and print the rates
    ///
    /// Prints a line each second: the time in seconds, then frames (10^6 per second) and bits (10^9
    /// per second) of decapsulated packets, then both rates of encapsulated packets.
    #[command(after_help = "Examples:\n  \
        carina lwaftr bench lwaftr.conf in4.pcap in6.pcap --for 10s\n  \
        carina lwaftr bench lwaftr.conf in4.pcap in6.pcap --cpu 1 --bench-file rates.csv\n\n\
        carina lwaftr generate makes such captures; carina bench lwaftr compares with DPDK.")]
    Bench(bench::BenchArgs),
    /// Compile the configuration of an AFTR into a file that loads faster
    #[command(after_help = "Example:\n  carina lwaftr compile lwaftr.conf lwaftr.compiled")]
    Compile {
        #[command(flatten)]
        source: Source,
        /// File to write [default: the configuration's name with .compiled appended]
        out: Option<PathBuf>,
    },
    /// Print the counters of all running AFTRs, except counters that are 0
    #[command(after_help = "Examples:\n  carina lwaftr query\n  carina lwaftr query drop --json")]
    Query {
        /// Print only counters whose name contains this text [default: all]
        part: Option<String>,
    },
    /// Show and change the configuration of a running AFTR, without interrupting traffic
    #[command(
        subcommand,
        after_help = "Example:\n  carina lwaftr config set aftr1 \
            /softwire-config/internal-interface/mtu 1500"
    )]
    Config(config::ConfigCommand),
    /// Choose the packets that a running AFTR copies to its mirror port (lwaftr run --mirror)
    #[command(after_help = "Examples:\n  \
        carina lwaftr run --conf lwaftr.conf --v4 eth1 --v6 eth2 --mirror tap:mirror\n  \
        carina lwaftr monitor 192.0.2.1")]
    Monitor {
        /// Packets to copy: all, none, or an IPv4 address for the packets from or to it, also
        /// inside tunnels
        packets: Monitor,
        /// AFTR to command: the name in its configuration, or its process id [default: the only
        /// running AFTR]
        id: Option<String>,
    },
    #[cfg(feature = "tools")]
    /// Set up a customer, an AFTR and an Internet host; fetch a page through them and measure
    /// goodput
    ///
    /// Each of the three is a network namespace on this machine, with the kernel's network stack.
    /// The command removes them when it ends.
    #[command(
        after_help = "Example:\n  carina lwaftr demo --out .\n\nWrites lwaftr.svg and \
        lwaftr.json. The command needs root, or a system that allows user namespaces."
    )]
    Demo(demo::DemoArgs),
    /// List alarms of an AFTR; acknowledge, compress or purge them
    #[command(
        subcommand,
        after_help = "Example:\n  carina lwaftr alarms get-state --json"
    )]
    Alarms(alarms::AlarmsCommand),
    /// Print a configuration with many softwires for tests, and write capture files for it
    #[command(after_help = "Examples:\n  \
        carina lwaftr generate 10.0.0.0 1024 8:9:a:b:c:d:e:f 2001:db8:: 6 > many.conf\n  \
        carina lwaftr generate 10.0.0.0 4 8:9:a:b:c:d:e:f 2001:db8:: 6 --pcap-v4 in4.pcap \
        --pcap-v6 in6.pcap > some.conf")]
    Generate(Box<generate::GenerateArgs>),
}

/// Options that say which configuration to read, and whether the AFTR follows the RFCs or Snabb.
#[derive(Clone, Debug, Args)]
pub(crate) struct Source {
    /// File of the configuration: text of snabb-softwire or ietf-softwire-br, or the output of
    /// lwaftr compile
    #[arg(value_name = "CONF")]
    conf: PathBuf,
    /// Rules for the cases in which the RFCs and Snabb's lwAFTR differ
    #[arg(long = "as", value_enum, default_value_t = Behaviour::Rfc)]
    behaviour: Behaviour,
}

/// Which behaviour to follow where the RFCs and Snabb's lwAFTR differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Behaviour {
    /// Do what the RFCs require
    Rfc,
    /// Behave as Snabb 2024.08 does
    Snabb,
}

impl Behaviour {
    fn rules(self) -> Rules {
        match self {
            Behaviour::Rfc => Rules::RFC,
            Behaviour::Snabb => Rules::SNABB,
        }
    }
}

/// Options of `carina lwaftr check`: the configuration, and optionally captures to run through it.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    source: Source,
    /// Capture (pcap or pcapng) of frames that arrive from the Internet [default: only check the
    /// configuration]
    #[arg(requires = "out6")]
    in4: Option<PathBuf>,
    /// Capture (pcap or pcapng) of frames that arrive from the access network
    in6: Option<PathBuf>,
    /// Capture (pcap or pcapng) of frames that are expected to leave towards the Internet
    out4: Option<PathBuf>,
    /// Capture (pcap or pcapng) of frames that are expected to leave towards the access network
    out6: Option<PathBuf>,
    /// File of counters with their expected values: lines of `name value`, or Snabb's Lua table
    /// [default: compare no counters]
    counters: Option<PathBuf>,
    /// Let the AFTR use one port for both sides, on one segment [default: one port for each side]
    #[arg(long)]
    on_a_stick: bool,
    /// Write the output frames and counters to the files out4, out6 and counters, instead of
    /// comparing
    #[arg(short = 'r', long)]
    write: bool,
}

/// The commands of `carina lwaftr` that only the program `carina-tools` implements.
#[cfg(feature = "tools")]
pub(crate) struct LwaftrTools {
    /// Runs `carina lwaftr bench`.
    pub bench: fn(&Shared, bench::BenchArgs) -> Outcome,
    /// Runs `carina lwaftr demo`.
    pub demo: fn(&Shared, demo::DemoArgs) -> Outcome,
}

/// Runs a command of `carina lwaftr`.
///
/// # Errors
/// A file is invalid, the output differs from the expected one, or the system refuses a resource.
pub(crate) fn run(
    shared: &Shared,
    command: LwaftrCommand,
    #[cfg(feature = "tools")] tools: &LwaftrTools,
) -> Outcome {
    match command {
        LwaftrCommand::Run(args) => running::run(shared, &args),
        LwaftrCommand::Check(args) => check(shared, &args),
        #[cfg(feature = "tools")]
        LwaftrCommand::Bench(args) => (tools.bench)(shared, args),
        LwaftrCommand::Compile { source, out } => compile_file(shared, &source, out),
        LwaftrCommand::Config(command) => config::run(shared, command),
        LwaftrCommand::Monitor { packets, id } => {
            config::ask(
                shared,
                id.as_deref(),
                Verb::Monitor,
                None,
                Some(packets.to_string()),
            )?;
            Ok(())
        }
        #[cfg(feature = "tools")]
        LwaftrCommand::Demo(args) => (tools.demo)(shared, args),
        LwaftrCommand::Alarms(command) => alarms::run(shared, command),
        LwaftrCommand::Query { part } => running::query(shared, part.as_deref().unwrap_or("")),
        LwaftrCommand::Generate(args) => generate::run(&args),
    }
}

impl Source {
    fn load(&self) -> Result<Loaded, Failure> {
        load(&self.conf, self.behaviour)
    }
}

/// Reads a configuration, as text or in compiled form.
fn load(conf: &Path, behaviour: Behaviour) -> Result<Loaded, Failure> {
    let name = conf.display();
    let as_snabb = behaviour.rules().reserves_two_to_the_bits;
    let file = fs::read(conf).attempt(format!("reading {name}"))?;
    if is_compiled(&file) {
        return read_compiled(&file, as_snabb).map_err(|error| refused(format!("{name}: {error}")));
    }
    let text = String::from_utf8(file).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        refused(format!("{name}: byte {at} is not valid UTF-8"))
    })?;
    // `FILE:LINE: fault`, as compilers print it, so that editors can find the place.
    let loaded = read(&text, as_snabb)
        .map_err(|error| refused(format!("{name}:{}: {}", error.line, error.fault)))?;
    for warning in &loaded.warnings {
        progress(format!("{name}: {warning}"));
    }
    Ok(loaded)
}

fn compile_file(shared: &Shared, source: &Source, out: Option<PathBuf>) -> Outcome {
    let loaded = source.load()?;
    let out = out.unwrap_or_else(|| {
        let mut name = source.conf.clone().into_os_string();
        name.push(".compiled");
        name.into()
    });
    let compiled = compile(&loaded);
    // Writes a temporary file and renames it, so that a process that watches the file never reads
    // half of it.
    let mut beside = out.clone().into_os_string();
    beside.push(format!(".{}", std::process::id()));
    fs::write(&beside, &compiled).attempt(format!("writing {}", Path::new(&beside).display()))?;
    fs::rename(&beside, &out).attempt(format!("writing {}", out.display()))?;
    let (softwires, bytes) = (loaded.table.len(), compiled.len());
    if shared.json {
        return print_json(&json!({ "file": out, "softwires": softwires, "bytes": bytes }));
    }
    print_line(format!(
        "{}: {softwires} softwires, {bytes} bytes",
        out.display()
    ))
}

/// Reads a capture by means of a function of `carina_lwaftr::check`.
fn captured(
    file: &Path,
    read: impl FnOnce(fs::File) -> Result<Frames, CheckError>,
) -> Result<Frames, Failure> {
    let name = file.display();
    let opened = fs::File::open(file).attempt(format!("reading {name}"))?;
    read(opened).map_err(|error| refused(format!("{name}: {error}")))
}

/// Reads the frames from the Internet and from the access network.
fn inputs(conf: &Path, loaded: &Loaded, [in4, in6]: [&Path; 2]) -> Result<[Frames; 2], Failure> {
    let queue = first_queue(&loaded.config)
        .map_err(|error| refused(format!("{}: {error}", conf.display())))?;
    Ok([
        captured(in4, |file| read_inputs(file, &queue.external))?,
        captured(in6, |file| read_inputs(file, &queue.internal))?,
    ])
}

fn check(shared: &Shared, args: &CheckArgs) -> Outcome {
    let loaded = args.source.load()?;
    let conf = args.source.conf.display();
    carina_lwaftr::check::check(&loaded, args.source.behaviour.rules())
        .map_err(|error| refused(format!("{conf}: {error}")))?;
    let captures = (&args.in4, &args.in6, &args.out4, &args.out6);
    let (Some(in4), Some(in6), Some(out4), Some(out6)) = captures else {
        let softwires = loaded.table.len();
        return if shared.json {
            print_json(&json!({ "softwires": softwires }))
        } else {
            print_line(format!("{softwires} softwires"))
        };
    };
    let [external, internal] = inputs(&args.source.conf, &loaded, [in4, in6])?;
    let inputs = Inputs {
        external,
        internal,
        is_stick: args.on_a_stick,
    };
    let ran = carina_lwaftr::check::run(&loaded, args.source.behaviour.rules(), &inputs);
    let ran = ran.map_err(failed)?;
    let sides = [(out4, &ran.external), (out6, &ran.internal)];
    if args.write {
        for (file, frames) in sides {
            let written = fs::write(file, write_frames(frames));
            written.attempt(format!("writing {}", file.display()))?;
        }
        if let Some(file) = &args.counters {
            let written = fs::write(file, write_counters(&ran.counters));
            written.attempt(format!("writing {}", file.display()))?;
        }
    }
    let mut differ = Vec::new();
    if !args.write {
        for (file, frames) in sides {
            let expected: Vec<_> = captured(file, read_frames)?
                .into_iter()
                .map(|(_, frame)| frame)
                .collect();
            let found = differences(frames, &expected).into_iter();
            differ.extend(found.map(|difference| format!("{}: {difference}", file.display())));
        }
        if let Some(file) = &args.counters {
            let name = file.display();
            let text = fs::read_to_string(file).attempt(format!("reading {name}"))?;
            let expected =
                read_counters(&text).map_err(|error| refused(format!("{name}: {error}")))?;
            let found = counter_differences(&ran.counters, &expected).into_iter();
            differ.extend(found.map(|difference| format!("{name}: {difference}")));
        }
    }
    let (external, internal) = (ran.external.len(), ran.internal.len());
    if shared.json {
        print_json(&json!({ "out4": external, "out6": internal, "differences": differ }))?;
    } else {
        for difference in &differ {
            print_line(difference)?;
        }
    }
    match differ.len() {
        0 if shared.json => Ok(()),
        0 => print_line(format!(
            "{external} frames towards IPv4, {internal} towards IPv6"
        )),
        count => Err(failed(format!("{count} differences"))),
    }
}
