//! `carina vnet exec|console|test|show --vno`: an operator inside of the nodes of its networks.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use carina_vnet::host_part::LinkState;
use carina_vnet_host::report::{
    Exec, ExecReply, LinkReport, Passed, TestReport, VnetReport, VnetState,
};
use carina_vnet_roles::calling::connection::CallError;
use carina_vnet_roles::inside::{Answer, Ask, EndReport, Look};
use carina_vnet_roles::operator::Client;

use super::operator::only;
use crate::commands::terminal::{LEAVE, RawTerminal};
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::interrupt::{Interrupt, TAKING_SIGNALS};
use crate::report::{print_bytes, progress};

/// Runs a command in a node.
///
/// # Errors
/// There is no such node, or it does not answer.
pub fn exec(client: &Client, vnet: Option<&str>, exec: &Exec) -> Result<ExecReply, Failure> {
    let name = only(client, vnet)?;
    let what = format!("running a command in {} of network {name}", exec.node);
    client.exec(&name, exec).attempt(what)
}

/// Probes all links, and tries the tests of the document.
///
/// # Errors
/// There is no such network, or it is not made.
pub fn test(client: &Client, vnet: Option<&str>) -> Result<Vec<TestReport>, Failure> {
    let name = only(client, vnet)?;
    client
        .test(&name)
        .attempt(format!("testing network {name}"))
}

/// A network with its nodes and links as its operator sees them.
///
/// # Errors
/// There is no such network, or it is not made.
pub fn report(client: &Client, vnet: Option<&str>) -> Result<VnetReport, Failure> {
    let name = only(client, vnet)?;
    let what = || format!("asking for {name}");
    let seen = client.seen(&name).attempt(what())?;
    let look = client.look(&name).attempt(what())?;
    let (state, obstacles) = match (seen.standing.is_ready(), seen.standing.reason) {
        (true, _) => (VnetState::Ready, Vec::new()),
        (false, reason) => {
            let words = reason.map(|reason| reason.message);
            (VnetState::Changing, words.into_iter().collect())
        }
    };
    Ok(VnetReport {
        name,
        vnet: seen.vnet,
        generation: seen.generation,
        state,
        obstacles,
        links: links_of(&look),
        nodes: look.nodes,
        phases: Vec::new(),
        ready_after_ms: None,
    })
}

fn links_of(look: &Look) -> Vec<LinkReport> {
    let of = |(number, ends): (u32, Vec<&EndReport>)| {
        let first = ends.first()?;
        let side = |side: usize| ends.get(side);
        let is_up = ends.len() == 2 && ends.iter().all(|end| end.state == LinkState::Up);
        let down = || {
            ends.iter()
                .map(|it| &it.state)
                .find(|it| **it != LinkState::Up)
        };
        Some(LinkReport {
            number,
            ends: [0, 1].map(|at| side(at).map_or("-".to_owned(), |end| end.end.clone())),
            carrier: first.carrier,
            rate: first.rate,
            state: match is_up {
                true => LinkState::Up,
                false => down().cloned().unwrap_or(LinkState::Absent),
            },
            rtt_ns: first.rtt_ns,
            passed: [0, 1].map(|at| side(at).map_or(Passed::default(), |end| end.sent)),
            impairment: Default::default(),
        })
    };
    let links: BTreeMap<u32, Vec<&EndReport>> = look.links();
    links.into_iter().filter_map(of).collect()
}

/// Connects this terminal to the console of a node, until Ctrl-] or the end of its input.
///
/// # Errors
/// There is no such node, its provider lets no one in, or the VNO no longer answers.
pub fn console(client: &Client, vnet: Option<&str>, node: &str) -> Outcome {
    let name = only(client, vnet)?;
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let session = session()?;
    let watch = |since: u64, wait: Duration| {
        let ask = Ask::Watch {
            node: node.to_owned(),
            session,
            since,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        };
        client.ask(&name, &ask)
    };
    let what = || format!("watching the console of {node}");
    let first = watch(0, Duration::ZERO).attempt(what())?;
    progress("connected; Ctrl-] leaves");
    let raw = RawTerminal::enter();
    let outcome = relay(client, (&name, node, session), first, &interrupt, &watch);
    drop(raw);
    let leave = Ask::Leave {
        node: node.to_owned(),
        session,
    };
    // It ends by itself when no one asks for it.
    let _ = client.ask(&name, &leave);
    outcome
}

fn relay(
    client: &Client,
    (name, node, session): (&str, &str, u64),
    first: Answer,
    interrupt: &Interrupt,
    watch: &(dyn Fn(u64, Duration) -> Result<Answer, CallError> + Sync),
) -> Outcome {
    let typed = typed();
    let (mut answer, mut is_over) = (first, false);
    // What is typed is said while the other thread waits for what the console says.
    let left = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let says = scope.spawn(move || -> Outcome {
            loop {
                match next(&typed) {
                    Typed::Nothing if left.load(Ordering::Relaxed) => return Ok(()),
                    Typed::Nothing => std::thread::sleep(TYPED),
                    Typed::Bytes(bytes) => {
                        let node = node.to_owned();
                        let ask = Ask::Type {
                            node,
                            session,
                            bytes,
                        };
                        client.ask(name, &ask).attempt("typing at the console")?;
                    }
                    Typed::End => {
                        left.store(true, Ordering::Relaxed);
                        return Ok(());
                    }
                }
            }
        });
        let outcome = loop {
            let Answer::Said {
                next,
                bytes,
                has_ended,
            } = answer
            else {
                break Err(failed("the console answers with something else"));
            };
            if let Err(error) = print_bytes(&bytes) {
                break Err(error);
            }
            // What the node says to the last that was typed comes a moment later.
            let stops = interrupt.is_there().attempt(TAKING_SIGNALS);
            if has_ended || is_over || !matches!(stops, Ok(false)) {
                break stops.map(drop);
            }
            is_over = left.load(Ordering::Relaxed);
            let wait = if is_over { LAST } else { WAIT };
            answer = match watch(next, wait) {
                Ok(answer) => answer,
                Err(error) => break Err(error).attempt("watching the console"),
            };
        };
        left.store(true, Ordering::Relaxed);
        let said = says
            .join()
            .unwrap_or_else(|_| Err(failed("typing has failed")));
        outcome.and(said)
    })
}

/// What was typed since the last look.
enum Typed {
    Nothing,
    Bytes(Vec<u8>),
    End,
}

fn next(typed: &Receiver<Vec<u8>>) -> Typed {
    let mut bytes = match typed.try_recv() {
        Ok(bytes) => bytes,
        Err(TryRecvError::Empty) => return Typed::Nothing,
        Err(TryRecvError::Disconnected) => return Typed::End,
    };
    bytes.extend(typed.try_iter().flatten());
    Typed::Bytes(bytes)
}

/// What is typed at this terminal, until Ctrl-] or its end.
fn typed() -> Receiver<Vec<u8>> {
    let (to, typed) = channel();
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin();
        let mut buffer = [0; 256];
        while let Ok(length @ 1..) = stdin.read(&mut buffer) {
            let read = &buffer[..length];
            let end = read.iter().position(|byte| *byte == LEAVE);
            let bytes = read[..end.unwrap_or(length)].to_vec();
            if to.send(bytes).is_err() || end.is_some() {
                return;
            }
        }
    });
    typed
}

/// A number that no other who watches has.
fn session() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    let random = Path::new("/dev/urandom");
    let file = std::fs::File::open(random);
    let drawn = file.and_then(|mut file| file.read_exact(&mut bytes));
    drawn.attempt(format!("reading {}", random.display()))?;
    Ok(u64::from_le_bytes(bytes))
}

/// How long a look at the console lasts; Ctrl-C is looked for in between.
const WAIT: Duration = Duration::from_millis(1000);
/// How long the last words of a node are waited for.
const LAST: Duration = Duration::from_millis(500);
/// Between two looks at what was typed.
const TYPED: Duration = Duration::from_millis(10);
