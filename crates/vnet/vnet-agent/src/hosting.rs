//! Carries out requests to nodes on this host.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::report::{ExecReply, NodeReport, VnetReport};
use carina_vnet_host::directory::part_name;
use carina_vnet_host::{Agent, CommandLimits};
use carina_vnet_roles::inside::{
    Answer, CHANGE_MS, EndReport, Look, NetworkRequest, NodeRequest, WATCH_MS_MAX,
};
use carina_vnet_roles::log::Log;
use serde::Serialize;

use crate::access;
use crate::copies::Copies;
use crate::error::Error;
use crate::executions::Executions;
use crate::safe_errors::safe;
use crate::seeking::Seeking;
use crate::sessions::Sessions;
use crate::streams::{self, Streams};
use crate::watches::Watches;

/// The requests of operators that a host allows although they endanger the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Openness {
    /// Whether commands and consoles in namespace nodes are allowed. What runs there is the host's
    /// root and has the host's files.
    pub opens_namespaces: bool,
}

/// Carries out operators' requests about nodes on a host, and records in the access log which
/// operator used which node.
#[derive(Debug)]
pub struct Inside {
    openness: Openness,
    executions: Executions,
    streams: Streams,
    sessions: Sessions,
    copies: Copies,
    seeking: Seeking,
    watches: Watches,
    /// Path of the access log; locked while a line is written.
    notes: Mutex<PathBuf>,
    log: Log,
}

/// A line of the access log.
#[derive(Debug, Serialize)]
struct Note<'a> {
    /// Time, in seconds since 1970.
    at_s: u64,
    vnet: String,
    node: &'a str,
    who: &'a [String],
    what: &'a str,
    is_done: bool,
}

impl Inside {
    /// Carries out requests within `openness`. `notes` is the path of the access log, which records
    /// who used which node; `log` is the agent's own log.
    #[must_use]
    pub fn new(openness: Openness, notes: PathBuf, log: Log) -> Inside {
        Inside {
            openness,
            executions: Executions::default(),
            streams: Streams::default(),
            sessions: Sessions::default(),
            copies: Copies::default(),
            seeking: Seeking::default(),
            watches: Watches::default(),
            notes: Mutex::new(notes),
            log,
        }
    }

    /// Carries out an operator's request on this host, and waits for the result. Requests that give
    /// access to a node are first recorded in the access log.
    ///
    /// # Errors
    /// There is no such network or node, or the request cannot be carried out. The text names
    /// nothing of the host; details are in the host's log.
    pub fn answer(&self, agent: &Arc<Agent>, wanted: &NetworkRequest) -> Result<Answer, ErrorBody> {
        let name = part_name(wanted.vnet);
        let checked = self.check(agent, &name, &wanted.ask);
        if let (Some(node), Some(what)) = (wanted.ask.node(), wanted.ask.deed()) {
            // The request is logged before it is carried out; one that cannot be logged is refused.
            self.note(wanted, node, &what, checked.is_ok())?;
        }
        checked?;
        let done = self.carry_out(agent, &name, wanted);
        done.map_err(|error| {
            let who = wanted.who.join(", ");
            self.log.say(format_args!("request of {who}: {error}"));
            safe(&error)
        })
    }

    fn check(&self, agent: &Agent, name: &str, ask: &NodeRequest) -> Result<(), ErrorBody> {
        let Some(node) = ask.node() else {
            return Ok(());
        };
        let kind = agent
            .kind(name, node)
            .map_err(|error| safe(&error.into()))?;
        let enters = matches!(
            ask,
            NodeRequest::Exec { .. }
                | NodeRequest::Begin { .. }
                | NodeRequest::Watch { .. }
                | NodeRequest::Type { .. }
                | NodeRequest::Leave { .. }
        );
        if kind.has_namespace() && enters && !self.openness.opens_namespaces {
            let what = format!(
                "node {node} is a namespace, in which operators cannot run commands: a command \
                 there would have the files and the root rights of the provider's host. Make the \
                 node a virtual machine (`kind = \"vm\"`), which has its own files, or ask the \
                 provider to open the namespaces of its hosts (`carina vnet agent \
                 --open-namespaces`)"
            );
            return Err(ErrorBody::new(ErrorCode::AccessDenied, what).for_good());
        }
        Ok(())
    }

    fn carry_out(
        &self,
        agent: &Arc<Agent>,
        name: &str,
        wanted: &NetworkRequest,
    ) -> Result<Answer, Error> {
        let ms = |ms: u64| Duration::from_millis(ms.min(MS_MAX));
        Ok(match &wanted.ask {
            NodeRequest::Look {} => Answer::Looked(look(&agent.report(name)?)),
            NodeRequest::Exec { .. }
            | NodeRequest::Begin { .. }
            | NodeRequest::Output { .. }
            | NodeRequest::EndExec { .. } => self.execute(agent, name, wanted)?,
            NodeRequest::Watch { .. } | NodeRequest::Type { .. } | NodeRequest::Leave { .. } => {
                self.at_console(agent, name, wanted)?
            }
            NodeRequest::Echo { node, to, limit_ms } => {
                let round_trip = agent.echo(name, node, *to, ms(*limit_ms))?;
                Answer::Echo {
                    rtt_ns: u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX),
                }
            }
            NodeRequest::Receive {
                node,
                port,
                limit_ms,
            } => {
                let arrived = agent.receive(name, node, *port, ms(*limit_ms))?;
                Answer::Arrived {
                    bytes: arrived.bytes,
                    time_ns: u64::try_from(arrived.time.as_nanos()).unwrap_or(u64::MAX),
                }
            }
            NodeRequest::Send {
                node,
                to,
                time_ms,
                limit_ms,
            } => {
                agent.send(name, node, *to, [ms(*time_ms), ms(*limit_ms)])?;
                Answer::Done {}
            }
            NodeRequest::Migrate { node } => Answer::Moved(agent.migrate(name, node)?),
            NodeRequest::Access {
                access, user, what, ..
            } => access::carry_out(agent, name, (access, user), what)?,
            NodeRequest::Users {} => Answer::Users(agent.access(name)?),
            NodeRequest::Impair {
                node,
                interface,
                impairment,
            } => {
                agent.impair_end(name, [node, interface], *impairment)?;
                Answer::Done {}
            }
            NodeRequest::SwitchNode { .. } | NodeRequest::SwitchLink { .. } => {
                switch(agent, name, &wanted.ask)?
            }
            NodeRequest::Copy { .. } | NodeRequest::StopCapture { .. } => {
                self.copies.answer(agent, name, wanted)?
            }
            NodeRequest::WatchEchoes { .. }
            | NodeRequest::EndEchoes { .. }
            | NodeRequest::Seek { .. }
            | NodeRequest::Found { .. } => self.begin_or_end(agent, name, wanted)?,
        })
    }

    /// Carries out the requests that run a command, return its output, or end it. Other requests
    /// must not be passed here.
    fn execute(
        &self,
        agent: &Arc<Agent>,
        name: &str,
        wanted: &NetworkRequest,
    ) -> Result<Answer, Error> {
        let key = |node: &String, session: u64| {
            (wanted.who.clone(), name.to_owned(), node.clone(), session)
        };
        match &wanted.ask {
            NodeRequest::Exec {
                node,
                command,
                limit_ms,
                session,
            } => {
                let begin = |session: u64| self.executions.begin(key(node, session));
                let execution = session.map(begin).transpose()?;
                let never = AtomicBool::new(false);
                let until = CommandLimits {
                    limit: Duration::from_millis((*limit_ms).min(MS_MAX)),
                    is_cancelled: execution
                        .as_ref()
                        .map_or(&never, |execution| &execution.is_ended),
                };
                let mut kept = ExecReply::collector();
                let status = agent.stream(name, (node, command), until, &mut kept)?;
                return Ok(Answer::Ran(ExecReply::of(kept, status)));
            }
            NodeRequest::Begin {
                node,
                command,
                limit_ms,
                session,
            } => {
                let key = key(node, *session);
                let wanted = streams::CommandStart {
                    execution: self.executions.begin(key.clone())?,
                    key,
                    command: command.clone(),
                    limit: Duration::from_millis((*limit_ms).min(MS_MAX)),
                };
                let log = self.log.clone();
                self.streams.begin(agent, wanted, move |error| {
                    log.say(format_args!("running a command: {error}"));
                    safe(&error.into())
                })?;
            }
            NodeRequest::Output {
                node,
                session,
                since,
                bytes_max,
                wait_ms,
            } => {
                let wait = Duration::from_millis(*wait_ms);
                let key = key(node, *session);
                return self.streams.output(&key, [*since, *bytes_max], wait);
            }
            NodeRequest::EndExec { node, session } => self.executions.end(key(node, *session)),
            _ => {}
        }
        Ok(Answer::Done {})
    }

    /// Starts and ends echo streams and watches, which last from one request to another; not for
    /// other requests.
    fn begin_or_end(
        &self,
        agent: &Agent,
        name: &str,
        wanted: &NetworkRequest,
    ) -> Result<Answer, Error> {
        Ok(match &wanted.ask {
            NodeRequest::WatchEchoes { node, to, session } => {
                self.watches
                    .begin(*session, || agent.watch(name, node, *to))?;
                Answer::Done {}
            }
            NodeRequest::EndEchoes { session, .. } => {
                let echoes = self.watches.end(*session)?;
                Answer::Echoes {
                    sent: echoes.sent,
                    answered: echoes.answered,
                    gap_ns: u64::try_from(echoes.gap.as_nanos()).unwrap_or(u64::MAX),
                }
            }
            NodeRequest::Seek { session, sought } => {
                let key = (wanted.who.clone(), name.to_owned(), *session);
                self.seeking
                    .begin(key, || agent.watch_trace(name, sought))?;
                Answer::Done {}
            }
            NodeRequest::Found { session } => {
                let key = (wanted.who.clone(), name.to_owned(), *session);
                Answer::Found(self.seeking.end(&key)?)
            }
            _ => Answer::Done {},
        })
    }

    /// Carries out a request to a console; not for other requests.
    fn at_console(
        &self,
        agent: &Agent,
        name: &str,
        wanted: &NetworkRequest,
    ) -> Result<Answer, Error> {
        let key = |node: &String, session: u64| {
            (wanted.who.clone(), name.to_owned(), node.clone(), session)
        };
        match &wanted.ask {
            NodeRequest::Watch {
                node,
                session,
                since,
                wait_ms,
            } => {
                let socket = agent.console(name, node)?;
                // A request with this value is logged, and therefore may start a session.
                let begins = (*since == 0).then_some(socket.as_path());
                let session = self.sessions.of(&key(node, *session), begins)?;
                let session = session.ok_or(Error::ended("the console"))?;
                let wait = Duration::from_millis((*wait_ms).min(WATCH_MS_MAX));
                let (next, bytes, has_ended) = session.output_since(*since, wait);
                return Ok(Answer::ConsoleOutput {
                    next,
                    bytes,
                    has_ended,
                });
            }
            NodeRequest::Type {
                node,
                session,
                bytes,
            } => {
                let session = self.sessions.of(&key(node, *session), None)?;
                let session = session.ok_or(Error::ended("the console's session"))?;
                session.type_in(bytes)?;
            }
            NodeRequest::Leave { node, session } => self.sessions.end(&key(node, *session)),
            _ => {}
        }
        Ok(Answer::Done {})
    }

    fn note(
        &self,
        wanted: &NetworkRequest,
        node: &str,
        what: &str,
        is_done: bool,
    ) -> Result<(), ErrorBody> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let note = Note {
            at_s: now.unwrap_or_default().as_secs(),
            vnet: wanted.vnet.to_string(),
            node,
            who: &wanted.who,
            what,
            is_done,
        };
        let mut line = serde_json::to_vec(&note).expect("a note has only plain fields");
        line.push(b'\n');
        let path = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(&*path);
        file.and_then(|mut file| file.write_all(&line))
            .map_err(|error| {
                self.log
                    .say(format_args!("writing {}: {error}", path.display()));
                let what = "access to nodes cannot be recorded in the log, so access is refused";
                ErrorBody::new(ErrorCode::Internal, what)
            })
    }
}

/// Switches a node or link off or on, and waits for the result; not for other requests.
fn switch(agent: &Agent, name: &str, ask: &NodeRequest) -> Result<Answer, Error> {
    match ask {
        NodeRequest::SwitchNode { node, what } => drop(agent.switch_node(name, node, *what)?),
        NodeRequest::SwitchLink {
            node,
            interface,
            is_up,
        } => drop(agent.switch_link_at(name, [node, interface], *is_up)?),
        _ => return Ok(Answer::Done {}),
    }
    agent.wait_until_settled(name, Duration::from_millis(CHANGE_MS))?;
    Ok(Answer::Done {})
}

/// The state of nodes and links, without anything of the host.
fn look(report: &VnetReport) -> Look {
    let nodes = report.nodes.iter().map(|node| NodeReport {
        state: node.state.for_operators(),
        ..node.clone()
    });
    let mut ends = Vec::new();
    for link in &report.links {
        let state = link.state.for_operators();
        let is_node = |end: &String| !end.contains(' ');
        let has_users = link.ends[1].starts_with("users at ") || link.ends[1].contains("card");
        // The other host reports the far end of a link.
        for (side, end) in link.ends.iter().enumerate().filter(|(_, end)| is_node(end)) {
            ends.push(EndReport {
                link: link.number,
                end: end.clone(),
                carrier: link.carrier,
                rate: link.rate,
                state: state.clone(),
                rtt_ns: link.rtt_ns,
                sent: link.passed[side],
                received: has_users.then_some(link.passed[1]),
                impairment: link.impairment.of_side(side),
            });
        }
    }
    Look {
        nodes: nodes.collect(),
        ends,
        layout: None,
    }
}

/// Longest time for anything in a node, ms.
const MS_MAX: u64 = 3_600_000;
