//! The agent executes commands that the host sends over the second serial port. Each request is one
//! line:
//!
//! ```text
//!   PING id          answered by PONG id
//!   TEXT id ESCAPED  appends to the text of command id
//!   RUN id           runs the command, and answers when it has ended:
//!                      BEGIN id status / BASE64... / ERROR id / BASE64... / END id
//!                    where =TEXT replaces BASE64 if an output is one line of plain text
//!   ABLE id          answered by ABLE id stream
//!   STREAM id BYTES  runs it, and sends its output as it comes, so many bytes at first:
//!                      OUT id BASE64 / ERR id BASE64 / ... / DONE id status
//!                    LOST id when the text has not come
//!   MORE id BYTES    may send so many bytes more
//!   KILL id          kills it; DONE follows
//! ```
//!
//! A command that streams (module [`stream`]) waits while the host takes no more.
//!
//! The text of a command is a script. The agent itself executes the orders at its beginning
//! ([`Order`]). If one of them fails, the command ends with status 1. A shell runs the rest.
//! Several commands may run at the same time. Each answer is one write(2), which the terminal does
//! not split.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cards::{Cards, Failure};
use crate::echo;
use crate::order::{Order, orders_of};
use crate::port::{Line, Lines, answer, piece};
use crate::shell::{DIRECTORY, shell_of, status_of};
use crate::stream::{self, Streams};
use crate::system;

/// The serial port on which the host sends commands.
pub(crate) const PORT: &str = "/dev/ttyS1";

/// State that the threads of all commands share.
struct Agent {
    port: Mutex<File>,
    cards: Mutex<Cards>,
    streams: Streams,
}

/// The result of a command.
struct Ended {
    status: i32,
    output: Vec<u8>,
    error: Vec<u8>,
}

/// Executes commands from the port while the guest runs.
///
/// # Errors
/// The port cannot be opened or configured.
pub(crate) fn obey() -> std::io::Result<()> {
    fs::create_dir_all(DIRECTORY)?;
    std::env::set_current_dir("/root")?;
    let mut port = system::open_terminal(PORT)?;
    system::make_raw(&port)?;
    let agent = Arc::new(Agent {
        port: Mutex::new(port.try_clone()?),
        cards: Mutex::new(Cards::new()?),
        streams: Streams::default(),
    });
    let mut lines = Lines::default();
    let mut texts: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
    let mut buffer = [0; 4096];
    loop {
        let Ok(length @ 1..) = port.read(&mut buffer) else {
            std::thread::sleep(AGAIN);
            continue;
        };
        for line in lines.feed(&buffer[..length]) {
            match line {
                Line::Ping(id) => {
                    agent.streams.hear(&id);
                    agent.say(&format!("\nPONG {id}\n"));
                }
                Line::Able(id) => agent.say(&format!("\nABLE {id} stream\n")),
                Line::More(id, bytes) => agent.streams.allow(&id, bytes),
                Line::Kill(id) => agent.streams.end(&id),
                Line::Stream(id, bytes) => match texts.remove(&id).flatten() {
                    Some(text) => agent.stream(id, text, bytes),
                    None => agent.say(&format!("\nLOST {id}\n")),
                },
                Line::Text(id, part) => {
                    let text = texts.entry(id).or_insert_with(|| Some(Vec::new()));
                    if let Some(bytes) = text {
                        bytes.extend(part);
                    }
                    // A text that is too long is dropped as a whole, because a part of a script
                    // must not run.
                    text.take_if(|bytes| bytes.len() > TEXT_BYTES_MAX);
                }
                Line::Run(id) => {
                    let text = texts.remove(&id);
                    agent.take(id, text.flatten());
                }
            }
        }
    }
}

impl Agent {
    /// Runs a command, in its own thread if it may take a while.
    fn take(self: &Arc<Agent>, id: String, text: Option<Vec<u8>>) {
        let Some(text) = text else {
            let error = format!("the text of command {id} was lost\n");
            let ended = Ended::failed(LOST, error);
            return self.report(&id, &ended);
        };
        let script = String::from_utf8_lossy(&text).into_owned();
        match orders_of(&script) {
            Ok((orders, rest)) if rest_is_over(rest) && orders.iter().all(is_quick) => {
                let ended = self.run(&id, &script);
                self.report(&id, &ended);
            }
            _ => {
                let agent = Arc::clone(self);
                let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
                let name = id.clone();
                let started = thread.spawn(move || {
                    let ended = agent.run(&id, &script);
                    agent.report(&id, &ended);
                });
                if let Err(error) = started {
                    let error = format!("no thread for a command: {error}\n");
                    self.report(&name, &Ended::failed(1, error));
                }
            }
        }
    }

    /// Runs a command in a thread of its own, which sends its output as it comes.
    fn stream(self: &Arc<Agent>, id: String, text: Vec<u8>, credit: u64) {
        let Some(stream) = self.streams.begin(&id, credit) else {
            return;
        };
        let agent = Arc::clone(self);
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let name = id.clone();
        let started = thread.spawn(move || {
            let shell = shell_of(&id, &String::from_utf8_lossy(&text));
            let status = stream::run(&id, shell, &stream, |line| agent.say(line));
            agent.streams.forget(&id);
            agent.say(&format!("\nDONE {id} {status}\n"));
        });
        if let Err(error) = started {
            self.streams.forget(&name);
            let error = format!("no thread for a command: {error}\n");
            let message = piece("ERR", &name, error.as_bytes());
            self.say(&format!("\n{message}DONE {name} 1\n"));
        }
    }

    fn run(&self, id: &str, script: &str) -> Ended {
        let orders = orders_of(script);
        let done = orders.and_then(|(orders, rest)| {
            let mut output = String::new();
            for order in orders {
                output.push_str(&self.obey(order)?);
            }
            Ok((output.into_bytes(), rest))
        });
        match done {
            Ok((output, rest)) if rest_is_over(rest) => Ended {
                status: 0,
                output,
                error: Vec::new(),
            },
            Ok((mut output, rest)) => {
                let mut ended = shell(id, rest)
                    .unwrap_or_else(|error| Ended::failed(1, format!("starting sh: {error}\n")));
                output.append(&mut ended.output);
                ended.output = output;
                ended
            }
            Err(error) => Ended::failed(1, format!("{error}\n")),
        }
    }

    /// Executes an order and returns its output.
    fn obey(&self, order: Order) -> Result<String, Failure> {
        let cards = || lock(&self.cards);
        match order {
            Order::Be {
                name,
                seconds,
                seed,
            } => be(&name, seconds, &seed)?,
            Order::Card { from, to } => cards().readdress(from, to)?,
            Order::Link {
                mac,
                name,
                address,
                mtu,
            } => cards().link(mac, &name, address, mtu)?,
            Order::Via {
                neighbour,
                prefixes,
            } => cards().via(neighbour, &prefixes)?,
            Order::File { path, mode, data } => put(Path::new(&path), mode, &data)?,
            Order::Rehearse {
                mac,
                other,
                address,
                neighbour,
            } => cards().rehearse(mac, other, address, neighbour)?,
            Order::Echo {
                own,
                peer,
                seconds,
                asks,
            } => {
                let limit = Duration::from_secs(seconds.min(ECHO_SECONDS_MAX));
                let round_trip = echo::round_trip(own, peer, limit, asks)
                    .ok_or_else(|| format!("{peer} has not answered {own}"))?;
                let milliseconds = round_trip.as_secs_f64() * 1000.0;
                return Ok(format!("time={milliseconds:.3} ms\n"));
            }
        }
        Ok(String::new())
    }

    fn report(&self, id: &str, ended: &Ended) {
        self.say(&answer(id, ended.status, &ended.output, &ended.error));
    }

    fn say(&self, text: &str) {
        // If the port fails, there is no other way to report the error.
        let _ = lock(&self.port).write_all(text.as_bytes());
    }
}

impl Ended {
    fn failed(status: i32, error: String) -> Ended {
        Ended {
            status,
            output: Vec::new(),
            error: error.into_bytes(),
        }
    }
}

/// Whether nothing is left for a shell.
fn rest_is_over(rest: &str) -> bool {
    rest.is_empty() || rest.trim_end() == "exit 0"
}

/// Whether an order is short enough to run while the port waits.
fn is_quick(order: &Order) -> bool {
    !matches!(order, Order::Echo { .. } | Order::Rehearse { .. })
}

/// Gives a clone its own identity: host name, random seed and time.
fn be(name: &str, seconds: i64, seed: &str) -> Result<(), Failure> {
    system::set_host_name(name)
        .and_then(|()| fs::write("/dev/urandom", seed))
        .and_then(|()| system::set_clock(seconds))
        .map_err(|error| format!("taking the identity of {name}: {error}"))
}

fn put(path: &Path, mode: u32, data: &[u8]) -> Result<(), Failure> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(path, data))
        .and_then(|()| fs::set_permissions(path, PermissionsExt::from_mode(mode)))
        .map_err(|error| format!("writing {}: {error}", path.display()))
}

/// Runs a script in a shell. The outputs are files, because processes that the script leaves
/// running may keep them open.
fn shell(id: &str, script: &str) -> std::io::Result<Ended> {
    let (mut output, mut error) = (unnamed(id, "out")?, unnamed(id, "err")?);
    let mut shell = shell_of(id, script)?;
    let command = shell.command.stdin(Stdio::null());
    let status = command
        .stdout(output.try_clone()?)
        .stderr(error.try_clone()?)
        .status()?;
    Ok(Ended {
        status: status_of(status),
        output: all_of(&mut output)?,
        error: all_of(&mut error)?,
    })
}

/// Creates a file without a name, which vanishes when it is closed.
fn unnamed(id: &str, kind: &str) -> std::io::Result<File> {
    let path = format!("{DIRECTORY}/{id}.{kind}");
    let mut options = File::options();
    let file = options
        .read(true)
        .append(true)
        .create_new(true)
        .open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

fn all_of(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock is ignored: a thread that panics leaves nothing half done, and a panic ends
    // the agent anyway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Status of a command whose text was lost.
const LOST: i32 = 2;
const AGAIN: Duration = Duration::from_millis(100);
/// Longest text of a command, in bytes. A longer one counts as lost.
const TEXT_BYTES_MAX: usize = 32 << 20;
/// Largest number of bytes of output that the agent sends, as the host accepts no more.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;
const ECHO_SECONDS_MAX: u64 = 3600;
const STACK_BYTES: usize = 256 << 10;
