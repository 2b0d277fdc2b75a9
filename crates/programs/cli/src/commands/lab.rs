//! `carina lab`: makes networks of systems on this machine from a file.

mod text;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carina_api::LocalName;
use carina_lab::{
    CarinaNode, DryRun, LabDir, Labs, Options, Record, command_in, reach_guest, remove_strays,
    status, svg, take_down, up,
};
use carina_text::table::Table;
use carina_topology::{Topology, TopologyError};
use carina_vm::Finish;
use clap::Subcommand;

use super::command_output::{OwnOutputs, exec_in_guest};
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, usage};
use crate::interrupt::{TAKING_SIGNALS, flag_of_signal};
use crate::report::{print_json, print_line, progress};
use text::{dry_run_text, status_text, topology_text};

/// Make networks of test systems from a file: namespaces, VMs, links, DIFs
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Make the lab that a file describes, and leave it running
    #[command(
        after_help = "Examples:\n  carina lab up examples/labs/two-systems.lab\n  carina lab up \
        examples/labs/vm-to-vm.lab --name vms --keep\n\nThe lab stays until `carina lab down`. \
        An ordinary user's lab is made in a user namespace.\nSIGINT and SIGTERM during `up` \
        remove the unfinished lab, unless --keep."
    )]
    Up(UpArgs),
    /// Make a lab, run one command in it, and remove it again
    #[command(
        after_help = "Example:\n  carina lab run examples/labs/paper-routing.lab A carina ping \
        rina.apps.echotime\n\nThe exit code is the exit code of the command.\nSIGINT and \
        SIGTERM end the command and remove the lab (exit code 130)."
    )]
    Run(RunArgs),
    /// Remove a lab and everything in it, even if it was not made completely
    #[command(
        after_help = "Examples:\n  carina lab down\n  carina lab down two-systems\n  \
        carina lab down --all"
    )]
    Down {
        /// Name of the lab, or its file [default: the only lab that is up]
        name: Option<String>,
        /// Remove all labs
        #[arg(long, conflicts_with = "name")]
        all: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Run a command in a system of a lab; `carina` in it uses the node of that system
    #[command(
        after_help = "Examples:\n  carina lab exec a carina ping rina.apps.echotime\n  \
        carina lab exec --lab two-systems b sh\n\nIn a VM the command has no standard input; its \
        output is printed as it is produced."
    )]
    Exec(ExecArgs),
    /// Show systems, members, neighbours and applications of a running lab
    #[command(after_help = "Examples:\n  carina lab status\n  carina lab status vms --json")]
    Status {
        /// Name of the lab [default: the only lab that is up]
        name: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// List the labs that are up
    #[command(after_help = "Example:\n  carina lab list")]
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Show the content of a lab file, as tables or as a picture
    #[command(
        after_help = "Examples:\n  carina lab show examples/labs/paper-routing.lab\n  \
        carina lab show examples/labs/paper-routing.lab --svg routing.svg"
    )]
    Show {
        /// File that describes the lab to show, such as examples/labs/two-systems.lab
        file: PathBuf,
        /// Draw the lab as SVG to this file, or to standard output without a file name [default:
        /// print tables]
        #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
        svg: Option<PathBuf>,
    },
    /// Check a lab file, and print the steps of `carina lab up` without running them
    #[command(after_help = "Example:\n  carina lab check examples/labs/recursive.lab --json")]
    Check {
        /// File that describes the lab to check, such as examples/labs/two-systems.lab
        file: PathBuf,
    },
}

/// Option that chooses the directory in which labs keep their records.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// Directory of all labs; it must be on tmpfs if there are VMs [default: labs in the default
    /// run directory, such as /run/carina/labs]
    #[arg(long, value_name = "DIR")]
    labs: Option<PathBuf>,
}

/// Options of `carina lab up`: the file of the lab to make, and its name.
#[derive(Debug, clap::Args)]
pub(crate) struct UpArgs {
    /// File that describes the lab, such as examples/labs/two-systems.lab
    file: PathBuf,
    /// Name of the lab [default: name of the file without its extension]
    #[arg(long)]
    name: Option<LocalName>,
    /// If the lab cannot be made completely, keep its parts so that you can look at them [default:
    /// remove them]
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    place: Place,
}

/// Options of `carina lab run`: the file of the lab to make, and the command to run in it.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    place: Place,
    /// File that describes the lab, such as examples/labs/two-systems.lab
    file: PathBuf,
    /// Name of the system in which to run the command
    system: String,
    /// Command to run, with its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Options of `carina lab exec`: the command, and the system of a lab in which to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct ExecArgs {
    /// Name of the lab [default: the only lab that is up]
    #[arg(long)]
    lab: Option<String>,
    #[command(flatten)]
    place: Place,
    /// Name of the system in which to run the command
    system: String,
    /// Command to run, with its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

impl From<carina_lab::Error> for Failure {
    fn from(error: carina_lab::Error) -> Self {
        match error {
            carina_lab::Error::WhichLab(_) => usage(error),
            carina_lab::Error::Interrupted => {
                Failure::Interrupted("interrupted; the unfinished lab is removed".to_owned())
            }
            error => failed(error),
        }
    }
}

impl Place {
    fn labs(self) -> Labs {
        self.labs.map_or_else(Labs::usual, Labs::at)
    }
}

/// Runs a command of `carina lab`.
///
/// # Errors
/// The file is wrong, there is no such lab, or something cannot be made or removed.
pub(crate) fn run(shared: &Shared, command: LabCommand) -> Outcome {
    match command {
        LabCommand::Up(args) => make(shared, args),
        LabCommand::Run(args) => run_once(shared, args),
        LabCommand::Down { name, all, place } => {
            let name = name.map(|name| named(&name));
            down(shared, &place.labs(), name.as_deref(), all)
        }
        LabCommand::Exec(args) => exec(shared, args),
        LabCommand::Status { name, place } => {
            let name = name.map(|name| named(&name));
            let (dir, record) = place.labs().find(name.as_deref())?;
            show_status(shared, &dir, &record)
        }
        LabCommand::List { place } => list(shared, &place.labs()),
        LabCommand::Show { file, svg } => show(shared, &file, svg.as_deref()),
        LabCommand::Check { file } => check(shared, &file),
    }
}

fn load(file: &Path) -> Result<Topology, Failure> {
    Topology::load(file, &CarinaNode).map_err(usage)
}

/// The default name of a lab: its file's name without extension, at most [`STEM_MAX`] characters;
/// `_` replaces characters other than ASCII letters, digits, `_` and `-`.
fn stem(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    stem.chars()
        .map(|c| if plain(c) { c } else { '_' })
        .take(STEM_MAX)
        .collect()
}

/// The name of a lab from an argument that is its name, or the path of its file.
fn named(name: &str) -> String {
    if name.contains('/') || name.ends_with(".lab") {
        stem(Path::new(name))
    } else {
        name.to_owned()
    }
}

/// Loads a topology, and checks the credential files that it names.
fn load_whole(file: &Path) -> Result<Topology, Failure> {
    let topology = load(file)?;
    topology.check_credentials(&CarinaNode).map_err(|error| {
        let file = Some(file.display().to_string());
        usage(TopologyError { file, ..error })
    })?;
    Ok(topology)
}

fn make(shared: &Shared, args: UpArgs) -> Outcome {
    let topology = load_whole(&args.file)?;
    let mut options = options(shared, &args.file, &topology, args.place.labs())?;
    if let Some(name) = args.name {
        options.name = name.to_string();
    }
    options.keep_on_failure = args.keep;
    let name = options.name.clone();
    let lab = up(&topology, options).map_err(|error| match error {
        carina_lab::Error::Interrupted if args.keep => Failure::Interrupted(format!(
            "interrupted; the unfinished lab stays (--keep) until `carina lab down {name}`"
        )),
        error => error.into(),
    })?;
    let dir = lab.dir().clone();
    let record = lab.detach();
    show_status(shared, &dir, &record)
}

/// The options with which to make the lab of a file. Prints the notes of its topology.
fn options(
    shared: &Shared,
    file: &Path,
    topology: &Topology,
    labs: Labs,
) -> Result<Options, Failure> {
    for note in &topology.notes {
        progress(note);
    }
    let text = std::fs::read_to_string(file).attempt(format!("reading {}", file.display()))?;
    let mut options = Options::new(&stem(file), &file.display().to_string(), text)?;
    options.labs = labs;
    options.progress = |text| progress(text);
    options.is_interrupted = flag_of_signal().attempt(TAKING_SIGNALS)?;
    if let Some(patience) = shared.wait {
        options.patience = Duration::from_nanos(patience);
    }
    Ok(options)
}

fn run_once(shared: &Shared, args: RunArgs) -> Outcome {
    let topology = load_whole(&args.file)?;
    check_system("the file", &topology, &args.system)?;
    let mut options = options(shared, &args.file, &topology, args.place.labs())?;
    options.name = format!("{}-{}", options.name, std::process::id());
    let lab = up(&topology, options)?;
    let words: Vec<&str> = args.command.iter().map(String::as_str).collect();
    let mut outputs = OwnOutputs::new();
    let finish = lab.stream(&args.system, &words, &mut outputs);
    drop(lab);
    let finish = finish?;
    outputs.outcome()?;
    match finish {
        Finish::Exited(0) => Ok(()),
        Finish::Exited(code) => std::process::exit(code),
        Finish::TimedOut => Err(failed("the command has not ended in time; it is killed")),
        Finish::Cancelled => Err(carina_lab::Error::Interrupted.into()),
    }
}

fn check_system(what: &str, topology: &Topology, system: &str) -> Outcome {
    if topology.system(system).is_some() {
        return Ok(());
    }
    let names: Vec<&str> = topology.systems.iter().map(|s| s.name.as_str()).collect();
    Err(usage(format!(
        "{what} has no system {system}; it has: {}",
        names.join(", ")
    )))
}

fn down(shared: &Shared, labs: &Labs, name: Option<&str>, all: bool) -> Outcome {
    let mut gone = Vec::new();
    let records = match (all, name) {
        (true, _) => labs.list()?,
        (false, Some(name)) => {
            let mut records = labs.list()?;
            records.retain(|record| record.name == name);
            records
        }
        (false, None) => vec![labs.find(None)?.1],
    };
    for record in &records {
        take_down(&labs.lab(&record.name), record)?;
        gone.push(record.name.clone());
    }
    if let Some(name) = name {
        let strays = remove_strays(labs, name)?;
        // A process that was killed at its very start leaves a directory without a record.
        let dir = labs.lab(name);
        let was_there = dir.path().exists();
        dir.remove()?;
        if gone.is_empty() && strays.is_empty() && !was_there {
            return if shared.json {
                print_json(&serde_json::json!({ "removed": [] }))
            } else {
                print_line(format!("there is no lab {name}, and nothing of it is left"))
            };
        }
        if gone.is_empty() {
            gone.push(name.to_owned());
        }
    }
    match shared.json {
        true => print_json(&serde_json::json!({ "removed": gone })),
        false if gone.is_empty() => print_line("no lab is up"),
        false => print_line(format!("{}: removed", gone.join(", "))),
    }
}

fn exec(shared: &Shared, args: ExecArgs) -> Outcome {
    let (dir, record) = args.place.labs().find(args.lab.as_deref())?;
    let topology = dir.topology()?;
    check_system(&format!("lab {}", record.name), &topology, &args.system)?;
    let system = &args.system;
    let vm = topology
        .system(system)
        .and_then(|system| system.vm.as_ref());
    if let Some(vm) = vm {
        let reach = || -> Result<_, Failure> { Ok(reach_guest(&dir, system, vm)?) };
        return exec_in_guest(shared, reach, &args.command);
    }
    let program = match args.command[0].as_str() {
        "carina" => record.program.clone(),
        other => PathBuf::from(other),
    };
    let error = command_in(&record, &dir, system, &program)
        .args(&args.command[1..])
        .exec();
    Err(failed(format!("entering {system}: {error}")))
}

fn show_status(shared: &Shared, dir: &LabDir, record: &Record) -> Outcome {
    let status = status(dir, record)?;
    if shared.json {
        print_json(&status)
    } else {
        print_line(format!(
            "lab {}: {}\n\n{}",
            status.name,
            status.state,
            status_text(&status)
        ))
    }
}

fn list(shared: &Shared, labs: &Labs) -> Outcome {
    let records = labs.list()?;
    if shared.json {
        let all = records.iter().map(|record| {
            serde_json::json!({
                "name": record.name, "state": record.state(), "file": record.file,
                "nodes": record.nodes.len(), "directory": labs.lab(&record.name).path(),
            })
        });
        return print_json(&all.collect::<Vec<_>>());
    }
    let mut table = Table::new(["LAB", "STATE", "NODES", "FILE"]);
    for record in &records {
        let nodes = record.nodes.len().to_string();
        table.row([&record.name, record.state(), &nodes, &record.file]);
    }
    print_line(table.to_string().trim_end())
}

fn show(shared: &Shared, file: &Path, picture: Option<&Path>) -> Outcome {
    let topology = load(file)?;
    let Some(picture) = picture else {
        return if shared.json {
            print_json(&topology)
        } else {
            print_line(topology_text(&topology))
        };
    };
    let drawn = svg(&stem(file), &topology);
    if picture == Path::new("-") {
        return print_line(drawn.trim_end());
    }
    std::fs::write(picture, drawn).attempt(format!("writing {}", picture.display()))
}

fn check(shared: &Shared, file: &Path) -> Outcome {
    let topology = load_whole(file)?;
    let dry_run = DryRun::new(&stem(file), &topology);
    if shared.json {
        print_json(&dry_run)
    } else {
        print_line(dry_run_text(&dry_run))
    }
}

/// Longest name that a lab gets from its file's name, in characters.
const STEM_MAX: usize = 40;
