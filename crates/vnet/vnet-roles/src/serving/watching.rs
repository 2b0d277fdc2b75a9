//! Reads the state of an operator's networks from their hosts, through the providers: on request,
//! and from time to time for the histories. Changes of nodes and links become events.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::document::Document;
use carina_vnet::host_part::{LinkState, NodeState, VnetId};
use carina_vnet::report::{LinkReport, NodeReport, VnetReport};
use carina_vnet::store::Store;
use carina_vnet::vno::Seen;
use carina_vnet_web::{History, HistoryReport, Moment};

use super::operations::Operations;
use crate::driver::Handle;
use crate::identity::{Identity, Role};
use crate::inside::below::Below;
use crate::inside::network_report::report;
use crate::inside::{Answer, Look, NetworkRequest, NodeRequest};

/// Reads the states of a VNO's networks from the hosts, through the VNP and the PIPs, and records
/// their histories.
#[derive(Debug)]
pub struct Watching<S> {
    handle: Handle<Operations<S>>,
    below: Below,
    vnp: String,
    /// The operator, on whose behalf it reads.
    operator: Identity,
    /// Histories and last states, by network name.
    kept: Mutex<BTreeMap<String, StateRecord>>,
    /// When a user has last asked for states or events; `None` if no user has.
    wanted: Mutex<Option<Instant>>,
    /// Time between two readings while no user asks; `None`: no readings then.
    idle: Option<Duration>,
}

/// The recorded states of a network.
#[derive(Debug)]
struct StateRecord {
    history: History,
    last: VnetReport,
    noted: Instant,
}

/// A network's state, read from the VNO and from the hosts.
#[derive(Clone, Debug)]
pub struct Now {
    /// The state that the VNO knows from its VNP.
    pub seen: Seen,
    /// The document that the operator has requested.
    pub document: Document,
    /// The state of nodes and links, as the hosts report it.
    pub report: VnetReport,
}

impl<S: Store + Send + 'static> Watching<S> {
    /// Starts a thread that reads the states until the returned value is dropped. Without
    /// `keeps_history` it reads only while users ask for states. `name` is the operator, on whose
    /// behalf it reads; `vnp` is the VNO's VNP.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(
        handle: Handle<Operations<S>>,
        below: Below,
        (name, vnp): (&str, &str),
        keeps_history: bool,
    ) -> std::io::Result<Arc<Watching<S>>> {
        let watching = Arc::new(Watching {
            handle,
            below,
            vnp: vnp.to_owned(),
            operator: Identity {
                role: Role::Operator,
                name: name.to_owned(),
            },
            kept: Mutex::default(),
            wanted: Mutex::default(),
            idle: keeps_history.then_some(IDLE),
        });
        let looks = Arc::downgrade(&watching);
        let thread = std::thread::Builder::new().name("watching".to_owned());
        thread.spawn(move || look_on(&looks))?;
        Ok(watching)
    }

    /// Reports that a user is interested in states: the thread then reads them often for some time.
    pub fn wake(&self) {
        *lock(&self.wanted) = Some(Instant::now());
    }

    /// The current state of a network. If no host answers, it consists of what is requested.
    ///
    /// # Errors
    /// No network has this name.
    pub fn now(&self, name: &str) -> Result<Now, ErrorBody> {
        self.wake();
        self.look(name)
    }

    /// The current state of a network, with the reports of its hosts.
    ///
    /// # Errors
    /// There is no such network, or no host answers.
    pub fn hosts(&self, name: &str) -> Result<(Now, Look), ErrorBody> {
        let (seen, document, _) = self.wanted_of(name)?;
        let look = self.ask_hosts(seen.vnet)?;
        let report = report(&seen, &document, Some(&look));
        let now = Now {
            seen,
            document,
            report,
        };
        Ok((now, look))
    }

    /// Sends a request to the nodes of a network for a caller whose rights were checked. A request
    /// that gives a person access to a node is recorded in the network's events.
    ///
    /// # Errors
    /// There is no such network or node, or the request is refused.
    pub fn ask(
        &self,
        caller: &Identity,
        name: &str,
        ask: NodeRequest,
    ) -> Result<Answer, ErrorBody> {
        let (who, deed) = (caller.to_string(), ask.deed());
        let (node, name) = (ask.node().map(str::to_owned), name.to_owned());
        let vnet = self.handle.ask_and_wait(move |it, now| {
            let seen = it.seen(&name)?;
            if let (Some(node), Some(deed)) = (node, deed) {
                it.tell(now, &name, format!("node {node}: {who} {deed}"));
            }
            Ok::<_, ErrorBody>(seen.vnet)
        });
        self.ask_vnp(caller, vnet??, ask)
    }

    /// The samples of a network's history that are later than `since_ms`, in ms since this process
    /// learned of the network; 0: all samples.
    ///
    /// # Errors
    /// No network has this name.
    pub fn history(&self, name: &str, since_ms: u64) -> Result<HistoryReport, ErrorBody> {
        let (_, _, age_ms) = self.wanted_of(name)?;
        let kept = lock(&self.kept);
        let report = kept
            .get(name)
            .map(|kept| kept.history.report(age_ms, since_ms));
        Ok(report.unwrap_or(HistoryReport {
            now_ms: age_ms,
            samples: Vec::new(),
        }))
    }

    /// The state of a network at `at_ms`, in ms since this process learned of the network, from the
    /// last sample before it.
    ///
    /// # Errors
    /// Nothing is recorded yet.
    pub fn moment(&self, name: &str, at_ms: u64) -> Result<Moment, ErrorBody> {
        let kept = lock(&self.kept);
        let moment = kept.get(name).and_then(|kept| kept.history.at(at_ms));
        moment.ok_or_else(|| {
            let name: String = name.chars().take(64).collect();
            let what = format!("no history of network {name} is recorded yet");
            ErrorBody::new(ErrorCode::NotFound, what)
        })
    }

    fn wanted_of(&self, name: &str) -> Result<(Seen, Document, u64), ErrorBody> {
        let name = name.to_owned();
        let asked = self
            .handle
            .ask_and_wait(move |it, now| it.whole(now, &name));
        asked?
    }

    fn ask_vnp(
        &self,
        caller: &Identity,
        vnet: VnetId,
        ask: NodeRequest,
    ) -> Result<Answer, ErrorBody> {
        let wanted = NetworkRequest {
            vnet,
            ask,
            who: vec![caller.to_string()],
        };
        self.below
            .ask_and_wait(std::slice::from_ref(&self.vnp), &wanted)
    }

    fn ask_hosts(&self, vnet: VnetId) -> Result<Look, ErrorBody> {
        match self.ask_vnp(&self.operator, vnet, NodeRequest::Look {})? {
            Answer::Looked(look) => Ok(look),
            _ => {
                let what = "something else was answered";
                Err(ErrorBody::new(ErrorCode::Internal, what))
            }
        }
    }

    /// Reads the state of a network, and records the changes since the last call.
    fn look(&self, name: &str) -> Result<Now, ErrorBody> {
        let (seen, document, age_ms) = self.wanted_of(name)?;
        // A network that is not made has no hosts yet.
        let look = self.ask_hosts(seen.vnet).ok();
        let report = report(&seen, &document, look.as_ref());
        let now = Now {
            seen,
            document,
            report,
        };
        let told = {
            let mut kept = lock(&self.kept);
            let room = ROOM / kept.len().max(ROOMS_MIN);
            let told = match kept
                .get_mut(name)
                .filter(|kept| kept.history.is_of(&now.report))
            {
                Some(kept) => {
                    kept.history.note(age_ms, now.report.clone(), room);
                    kept.noted = Instant::now();
                    let before = std::mem::replace(&mut kept.last, now.report.clone());
                    changes(&before, &now.report)
                }
                None => {
                    let mut history = History::new(&now.report);
                    history.note(age_ms, now.report.clone(), room);
                    let new = StateRecord {
                        history,
                        last: now.report.clone(),
                        noted: Instant::now(),
                    };
                    kept.insert(name.to_owned(), new);
                    Vec::new()
                }
            };
            told.into_iter().take(CHANGES_TOLD).collect::<Vec<_>>()
        };
        if !told.is_empty() {
            let name = name.to_owned();
            // If the state machine has ended, the events are lost.
            let _ = self.handle.ask_and_wait(move |it, at| {
                told.into_iter().for_each(|what| it.tell(at, &name, what));
            });
        }
        Ok(now)
    }

    /// Reads all networks, if that is due.
    fn look_at_all(&self) {
        let wanted = *lock(&self.wanted);
        let is_wanted = wanted.is_some_and(|at| at.elapsed() < WANTED);
        let every = if is_wanted { Some(EVERY) } else { self.idle };
        let Some(every) = every else {
            return;
        };
        let listed = self.handle.ask_and_wait(|it, _| it.list());
        let names: Vec<String> = listed.into_iter().flatten().map(|vnet| vnet.name).collect();
        lock(&self.kept).retain(|name, _| names.contains(name));
        for name in names {
            let is_due = lock(&self.kept)
                .get(&name)
                .is_none_or(|candidate| candidate.noted.elapsed() >= every);
            if is_due {
                // The network may have been removed meanwhile.
                let _ = self.look(&name);
            }
        }
    }
}

/// Reads again and again, until the value is dropped.
fn look_on<S: Store + Send + 'static>(watching: &Weak<Watching<S>>) {
    while let Some(watching) = watching.upgrade() {
        watching.look_at_all();
        drop(watching);
        std::thread::sleep(TURN);
    }
}

/// The changes of nodes and links between two states, as text.
fn changes(before: &VnetReport, now: &VnetReport) -> Vec<String> {
    let nodes: BTreeMap<&str, &NodeReport> = before
        .nodes
        .iter()
        .map(|node| (node.name.as_str(), node))
        .collect();
    let links: BTreeMap<u32, &LinkReport> = before
        .links
        .iter()
        .map(|link| (link.number, link))
        .collect();
    let nodes = now.nodes.iter().filter_map(|node| {
        let old = nodes.get(node.name.as_str())?;
        let word = match &node.state {
            state if *state == old.state => return None,
            NodeState::Absent => "is not there".to_owned(),
            NodeState::Starting => "begins".to_owned(),
            NodeState::Up => "is up".to_owned(),
            NodeState::Stopped => "is stopped".to_owned(),
            NodeState::Failed { cause, .. } => format!("has failed: {cause}"),
            NodeState::Refused { cause, .. } => format!("cannot be made: {cause}"),
        };
        Some(format!("node {} {word}", node.name))
    });
    let links = now.links.iter().filter_map(|link| {
        let old = links
            .get(&link.number)
            .filter(|old| old.ends == link.ends)?;
        let name = format!("link {} ({})", link.number, link.ends.join(" -- "));
        let word = match &link.state {
            state if *state == old.state => match link.impairment == old.impairment {
                true => return None,
                false if link.impairment.is_none() => "is no longer impaired".to_owned(),
                false => "is impaired".to_owned(),
            },
            LinkState::Absent => "is not known".to_owned(),
            LinkState::Down { cause, .. } => format!("is down: {}", cause.words_of_link()),
            LinkState::Up => "is up".to_owned(),
        };
        Some(format!("{name} {word}"))
    });
    nodes.chain(links).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves the value consistent, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time between two checks whether a reading is due.
const TURN: Duration = Duration::from_millis(250);
/// Time between two readings while a user asks.
const EVERY: Duration = Duration::from_millis(900);
/// Time between two readings while no user asks.
const IDLE: Duration = Duration::from_secs(10);
/// Time without a request after which a user counts as disconnected.
const WANTED: Duration = Duration::from_secs(20);
/// Bytes for the histories of all networks, and the least number of equal shares into which they
/// are divided.
const ROOM: usize = 64 << 20;
const ROOMS_MIN: usize = 8;
/// Largest number of events of one reading; a network's log holds 1000.
const CHANGES_TOLD: usize = 100;

#[cfg(test)]
mod tests {
    use carina_vnet::document::Form;
    use carina_vnet::host_part::Cause;
    use carina_vnet::message::Standing;

    use super::*;

    #[test]
    fn changes_of_states_have_names_of_the_document() {
        let text = "[vnet]\nname = \"x\"\n[node.a]\n[node.b]\n\
                    [[link]]\nends = [\"a\", \"b\"]\nrate = \"1Mbps\"\n";
        let document = Document::read(text, Form::Toml).unwrap();
        let seen = Seen {
            vnet: VnetId::new(1),
            name: "x".into(),
            generation: 1,
            standing: Standing::default(),
        };
        let before = report(&seen, &document, None);
        assert!(changes(&before, &before).is_empty());
        let mut now = before.clone();
        now.nodes[1].state = NodeState::Up;
        now.links[0].state = LinkState::Up;
        assert_eq!(
            changes(&before, &now),
            ["node b is up", "link 0 (a:eth0 -- b:eth0) is up"]
        );
        let mut failed = now.clone();
        failed.nodes[0].state = NodeState::Failed {
            reason: "on host h1 there is no image x".into(),
            cause: Cause::Image,
        };
        failed.links[0].state = LinkState::Down {
            reason: "h1 has no flow to h2".into(),
            cause: Cause::Carrier,
        };
        assert_eq!(
            changes(&now, &failed),
            [
                "node a has failed: its host has no bootable image of this name: ask the provider",
                "link 0 (a:eth0 -- b:eth0) is down: its frames are not carried between its hosts; \
                 the provider's log has the reason"
            ]
        );
        let mut worse = now.clone();
        worse.links[0].impairment.there = Some(Default::default());
        assert_eq!(
            changes(&now, &worse),
            ["link 0 (a:eth0 -- b:eth0) is impaired"]
        );
    }
}
