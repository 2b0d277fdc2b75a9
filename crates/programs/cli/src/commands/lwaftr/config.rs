//! `carina lwaftr config`: reads and changes a running AFTR through its control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

use carina_lwaftr::channel::{Client, ClientError, Request, Verb};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::graph_directory::{CHANNEL, entries};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line};

/// Parts of a configuration are named by paths, such as
/// `/softwire-config/binding-table/softwire[ipv4=192.0.2.1][psid=5]/b4-ipv6`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a part of the configuration of a running AFTR
    #[command(
        after_help = "Examples:\n  carina lwaftr config get aftr1\n  carina lwaftr config \
        get aftr1 /softwire-config/internal-interface/mtu"
    )]
    Get(Part),
    /// Print the counters of a running AFTR: all, or the counters below a path
    #[command(after_help = "Example:\n  \
        carina lwaftr config get-state aftr1 /softwire-state/in-ipv4-packets")]
    GetState(Part),
    /// Set a part of the configuration: a leaf to a value, or a container to a block in braces
    #[command(after_help = "Example:\n  carina lwaftr config set aftr1 \
        /softwire-config/internal-interface/mtu 1500")]
    Set(Change),
    /// Add an entry to a list of the configuration, such as a softwire
    #[command(after_help = "Example:\n  carina lwaftr config add aftr1 \
        /softwire-config/binding-table/softwire '{ ipv4 192.0.2.1; psid 5; b4-ipv6 2001:db8::5; \
        br-address 2001:db8:ffff::1; port-set { psid-length 6; } }'")]
    Add(Change),
    /// Remove an entry from a list of the configuration, or reset a leaf to its default
    #[command(after_help = "Example:\n  carina lwaftr config remove aftr1 \
        '/softwire-config/binding-table/softwire[ipv4=192.0.2.1][psid=5]'")]
    Remove {
        /// Running AFTR, given by the name in its configuration or by its process id
        id: String,
        /// Path of the entry or leaf, such as /softwire-config/internal-interface/mtu
        path: String,
    },
    /// Replace the whole configuration by the contents of a file
    #[command(after_help = "Example:\n  carina lwaftr config load aftr1 other.conf")]
    Load {
        /// Running AFTR, given by the name in its configuration or by its process id
        id: String,
        /// File of the configuration: text, or the output of lwaftr compile
        file: PathBuf,
    },
    /// Send requests from standard input, one line of JSON each, and print the answers
    #[command(
        after_help = "Example:\n  echo '{\"id\": 1, \"verb\": \"get\", \"path\": \
        \"/softwire-config/name\"}' | carina lwaftr config listen aftr1\n\nVerbs: get, \
        get-state, set, add, remove, load, monitor, shutdown; for alarms: alarms, set-alarms, \
        compress-alarms, purge-alarms. The AFTR answers the requests in order."
    )]
    Listen {
        /// Running AFTR, given by the name in its configuration or by its process id
        id: String,
    },
    /// Stop a running AFTR
    #[command(after_help = "Example:\n  carina lwaftr config shutdown aftr1")]
    Shutdown {
        /// Running AFTR, given by the name in its configuration or by its process id
        id: String,
    },
}

/// A part of a running AFTR's configuration.
#[derive(Debug, clap::Args)]
pub(crate) struct Part {
    /// Running AFTR, given by the name in its configuration or by its process id
    id: String,
    /// Path of the part of the configuration or counters, such as
    /// /softwire-config/internal-interface/mtu; / is the whole
    #[arg(default_value = "/")]
    path: String,
}

/// A part of a running AFTR's configuration, with its new contents.
#[derive(Debug, clap::Args)]
pub(crate) struct Change {
    /// Running AFTR, given by the name in its configuration or by its process id
    id: String,
    /// Path of the part of the configuration, such as /softwire-config/internal-interface/mtu
    path: String,
    /// New contents: a value, or a block in braces [default: read from standard input]
    value: Option<String>,
}

/// Runs a command of `carina lwaftr config`.
///
/// # Errors
/// No AFTR of this name or process id runs, or several do; the AFTR refuses the request; the given
/// file or standard input cannot be read; or the answer cannot be printed.
pub(super) fn run(shared: &Shared, command: ConfigCommand) -> Outcome {
    let (verb, id, path, value) = match command {
        ConfigCommand::Get(Part { id, path }) => (Verb::Get, id, Some(path), None),
        ConfigCommand::GetState(Part { id, path }) => (Verb::GetState, id, Some(path), None),
        ConfigCommand::Remove { id, path } => (Verb::Remove, id, Some(path), None),
        ConfigCommand::Set(change) => (
            Verb::Set,
            change.id,
            Some(change.path),
            given(change.value)?,
        ),
        ConfigCommand::Add(change) => (
            Verb::Add,
            change.id,
            Some(change.path),
            given(change.value)?,
        ),
        ConfigCommand::Load { id, file } => {
            // The AFTR may have another working directory.
            let whole = file
                .canonicalize()
                .attempt(format!("looking for {}", file.display()))?;
            (
                Verb::Load,
                id,
                None,
                Some(whole.to_string_lossy().into_owned()),
            )
        }
        ConfigCommand::Shutdown { id } => (Verb::Shutdown, id, None, None),
        ConfigCommand::Listen { id } => return listen(shared, &id),
    };
    let value = ask(shared, Some(&id), verb, path, value)?;
    match (shared.json, value.is_empty()) {
        (true, _) => print_json(&json!({ "value": value })),
        (false, true) => Ok(()),
        (false, false) => print_line(value.trim_end()),
    }
}

fn given(value: Option<String>) -> Result<Option<String>, Failure> {
    match value {
        Some(value) => Ok(Some(value)),
        None => {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.attempt("reading standard input")?;
            Ok(Some(text))
        }
    }
}

/// Sends a request to an AFTR, and returns its answer. `id` is the AFTR's name or process id;
/// without it, exactly one AFTR must be running.
///
/// # Errors
/// No such AFTR runs, several match, or the AFTR refuses the request.
pub(super) fn ask(
    shared: &Shared,
    id: Option<&str>,
    verb: Verb,
    path: Option<String>,
    value: Option<String>,
) -> Result<String, Failure> {
    let mut client = Client::connect(&socket(shared, id)?).map_err(failed)?;
    let id = Value::Null;
    let request = Request {
        id,
        verb,
        path,
        value,
    };
    client.ask(&request).map_err(failed)
}

/// The control socket of an AFTR, given by its process id or by the name in its configuration.
fn socket(shared: &Shared, id: Option<&str>) -> Result<PathBuf, Failure> {
    let mut running = Vec::new();
    for entry in entries(shared.run_dir().path()) {
        let Some(pid) = entry.name.strip_prefix("lwaftr-") else {
            continue;
        };
        running.push((pid.to_owned(), socket_of(&entry.counters)));
    }
    let is_its = |(pid, socket): &&(String, PathBuf)| match id {
        None => true,
        Some(id) => pid == id || name_at(socket).is_some_and(|name| name == id),
    };
    let found: Vec<_> = running.iter().filter(is_its).collect();
    match (&found[..], id) {
        ([(_, socket)], _) => Ok(socket.clone()),
        ([], Some(id)) => Err(failed(format!(
            "no AFTR with name or process {id} runs; there are {}",
            listed(&running)
        ))),
        ([], None) => Err(failed(format!(
            "no running AFTR has its files in {}",
            shared.run_dir().path().display()
        ))),
        (several, _) => Err(failed(format!(
            "{} AFTRs match: name one of the processes {}",
            several.len(),
            listed(&running)
        ))),
    }
}

fn listed(running: &[(String, PathBuf)]) -> String {
    let pids: Vec<&str> = running.iter().map(|(pid, _)| pid.as_str()).collect();
    if pids.is_empty() {
        "none".to_owned()
    } else {
        pids.join(", ")
    }
}

fn name_at(socket: &Path) -> Option<String> {
    let request = Request {
        id: Value::Null,
        verb: Verb::Get,
        path: Some("/softwire-config/name".to_owned()),
        value: None,
    };
    let asked = Client::connect(socket).and_then(|mut client| client.ask(&request));
    asked.ok()
}

/// The control socket of the process that has this counter file.
pub(super) fn socket_of(counters: &Path) -> PathBuf {
    counters.with_extension(CHANNEL)
}

fn listen(shared: &Shared, id: &str) -> Outcome {
    let path = socket(shared, Some(id))?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let stream = UnixStream::connect(path).map_err(|error| failed(ClientError::from(error)))?;
    let sending = stream.try_clone().attempt("the socket")?;
    thread::spawn(move || {
        // The AFTR may end first; then there is nothing left to send.
        let _ = send(&sending);
        let _ = sending.shutdown(Shutdown::Write);
    });
    for line in BufReader::new(stream).lines() {
        print_line(line.attempt("the AFTR's answers")?)?;
    }
    Ok(())
}

fn send(mut stream: &UnixStream) -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        writeln!(stream, "{}", line?)?;
    }
    Ok(())
}
