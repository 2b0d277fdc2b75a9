//! The web page of a PIP, for those who run it: its hosts with what is promised of them, the parts
//! of networks, and events. It shows names of the substrate, and cannot give orders.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use carina_api::ErrorBody;
use carina_vnet::host_part::NodeState;
use carina_vnet::pip::{HostView, NodeView, PartState, PartView, Pip, PipView};
use carina_vnet::progress::Event;
use carina_vnet::store::Store;
use carina_vnet_web::About;
use carina_vnet_web::answers::{answer, answered, event_query};
use serde::Serialize;

use super::event_log::EventLog;
use super::messages::unknown_path;
use crate::driver::Handle;

/// What the web page of a PIP shows: the PIP's state machine, and the events that were recorded of
/// it.
#[derive(Debug)]
pub struct Provider<S> {
    handle: Handle<Pip<S>>,
    name: String,
    began: Instant,
    happened: Mutex<Happened>,
    came: Condvar,
}

/// What has happened since this process began.
#[derive(Debug, Default)]
struct Happened {
    last: Option<PipView>,
    events: EventLog,
}

/// The view of a PIP, with the time that its events use.
#[derive(Debug, Serialize)]
struct Shown {
    now_ms: u64,
    #[serde(flatten)]
    view: PipView,
}

type ProviderState<S> = State<Arc<Provider<S>>>;

impl<S: Store + Send + 'static> Provider<S> {
    /// Starts a thread that records the events of a PIP until the returned value is dropped.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(handle: Handle<Pip<S>>, name: &str) -> std::io::Result<Arc<Provider<S>>> {
        let provider = Arc::new(Provider {
            handle,
            name: name.to_owned(),
            began: Instant::now(),
            happened: Mutex::default(),
            came: Condvar::new(),
        });
        let notes = Arc::downgrade(&provider);
        let thread = std::thread::Builder::new().name("provider".to_owned());
        thread.spawn(move || note_on(&notes))?;
        Ok(provider)
    }

    /// The HTTP routes of the PIP's page.
    pub fn router(self: &Arc<Provider<S>>) -> Router {
        Router::new()
            .route("/v1/page", get(about::<S>))
            .route("/v1/provider", get(view::<S>))
            .route("/v1/provider/events", get(events::<S>))
            .fallback(unknown_path)
            .with_state(Arc::clone(self))
    }

    fn pip_view(&self) -> Result<PipView, ErrorBody> {
        self.handle.ask_and_wait(|pip, now| pip.view(now))
    }

    fn note(&self) {
        // If the PIP has too much to do, it is checked the next time.
        let Ok(view) = self.pip_view() else {
            return;
        };
        let mut happened = self.lock();
        let before = happened.last.replace(view);
        let (Some(before), Some(now)) = (before, &happened.last) else {
            return;
        };
        let changes = changes(&before, now);
        let at_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        for what in changes {
            happened.events.add(at_ms, what);
        }
        drop(happened);
        self.came.notify_all();
    }

    fn events(&self, since: u64, wait: Duration) -> Vec<Event> {
        let happened = self.lock();
        let waits = |happened: &mut Happened| happened.events.last() <= since;
        let waited = self.came.wait_timeout_while(happened, wait, waits);
        let happened = waited.unwrap_or_else(PoisonError::into_inner).0;
        happened.events.since(since)
    }

    fn lock(&self) -> MutexGuard<'_, Happened> {
        // Every critical section leaves the value consistent, even after a panic.
        self.happened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn note_on<S: Store + Send + 'static>(provider: &Weak<Provider<S>>) {
    while let Some(provider) = provider.upgrade() {
        provider.note();
        drop(provider);
        std::thread::sleep(EVERY);
    }
}

async fn about<S: Store + Send + 'static>(State(provider): ProviderState<S>) -> Response {
    answered(Ok(About {
        role: "pip",
        title: provider.name.clone(),
        can: &[],
    }))
}

async fn view<S: Store + Send + 'static>(State(provider): ProviderState<S>) -> Response {
    answer(move || {
        let now_ms = provider.began.elapsed().as_millis();
        Ok(Shown {
            now_ms: u64::try_from(now_ms).unwrap_or(u64::MAX),
            view: provider.pip_view()?,
        })
    })
    .await
}

async fn events<S: Store + Send + 'static>(
    State(provider): ProviderState<S>,
    RawQuery(query): RawQuery,
) -> Response {
    answer(move || {
        let (since, wait) = event_query(query.as_deref().unwrap_or_default())?;
        Ok(provider.events(since, wait))
    })
    .await
}

/// The changes between two views, as text.
fn changes(before: &PipView, now: &PipView) -> Vec<String> {
    let mut all = changes_of_hosts(before, now);
    let key = |part: &PartView| (part.vnet, part.state == PartState::Held);
    let old: BTreeMap<_, &PartView> = before.parts.iter().map(|part| (key(part), part)).collect();
    for part in &now.parts {
        let name = format!("{} of {}", part.name, part.vnp);
        let was = old.get(&key(part));
        let word = match (was.map(|was| (was.round, was.state)), part.state) {
            (Some(was), state) if was == (part.round, state) => None,
            (_, PartState::Held) => Some("is held"),
            (_, PartState::Leaving) => Some("is being removed"),
            (Some(_), PartState::Made) => Some("is changed"),
            (None, PartState::Made) => Some("is committed, and made"),
        };
        all.extend(word.map(|word| format!("{name} {word}")));
        let nodes = was.into_iter().flat_map(|was| &was.nodes);
        let nodes: BTreeMap<&str, &NodeView> =
            nodes.map(|node| (node.name.as_str(), node)).collect();
        for node in &part.nodes {
            let was = nodes.get(node.name.as_str());
            if was.is_some_and(|was| was.host != node.host) {
                all.push(format!(
                    "{name}: node {} moves to host {}",
                    node.name, node.host
                ));
            }
            let word = match (was.map(|was| &was.state), &node.state) {
                (Some(was), state) if was == state => continue,
                (_, NodeState::Up) => "is up".to_owned(),
                (_, NodeState::Stopped) => "is stopped by its operator".to_owned(),
                (_, NodeState::Failed { reason, .. }) => format!("has failed: {reason}"),
                (_, NodeState::Refused { reason, .. }) => format!("cannot be made: {reason}"),
                _ => continue,
            };
            all.push(format!("{name}: node {} {word}", node.name));
        }
    }
    let current: Vec<_> = now.parts.iter().map(key).collect();
    for part in before
        .parts
        .iter()
        .filter(|part| !current.contains(&key(part)))
    {
        let is_made = now.parts.iter().any(|made| made.vnet == part.vnet);
        match part.state {
            PartState::Held if is_made => {}
            PartState::Held => all.push(format!("{} of {} is let go", part.name, part.vnp)),
            _ => all.push(format!("{} of {} has gone", part.name, part.vnp)),
        }
    }
    all.truncate(CHANGES_MAX);
    all
}

/// The changes of hosts between two views, as text.
fn changes_of_hosts(before: &PipView, now: &PipView) -> Vec<String> {
    let old = before.hosts.iter().map(|host| (host.name.as_str(), host));
    let old: BTreeMap<&str, &HostView> = old.collect();
    let hosts = now.hosts.iter().filter_map(|host| {
        let was = old.get(host.name.as_str()).is_some_and(|old| old.is_there);
        match (was, host.is_there) {
            (false, true) => Some(format!("host {} reports", host.name)),
            (true, false) => Some(format!("host {} is silent", host.name)),
            _ => None,
        }
    });
    let drained = now.hosts.iter().filter_map(|host| {
        let was = old
            .get(host.name.as_str())
            .is_some_and(|old| old.is_drained);
        match (was, host.is_drained) {
            (false, true) => Some(format!("host {} takes no new nodes", host.name)),
            (true, false) => Some(format!("host {} takes nodes again", host.name)),
            _ => None,
        }
    });
    hosts.chain(drained).collect()
}

/// Time between two checks for changes.
const EVERY: Duration = Duration::from_millis(500);
/// Largest number of events of one check.
const CHANGES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use carina_vnet::host_part::VnetId;

    use super::*;

    fn part(state: PartState, node: NodeState) -> PartView {
        PartView {
            vnet: VnetId::new(1),
            name: "ring".into(),
            vnp: "net".into(),
            round: 1,
            state,
            expires_in_ms: None,
            nodes: vec![NodeView {
                name: "a".into(),
                kind: carina_vnet::document::Kind::Vm,
                image: "carina".into(),
                cpus: 1,
                memory_mib: 64,
                host: "h1".into(),
                state: node,
            }],
            links: Vec::new(),
            leaving_hosts: Vec::new(),
        }
    }

    fn view(parts: Vec<PartView>) -> PipView {
        PipView {
            hosts: Vec::new(),
            links: Vec::new(),
            parts,
            discarded: BTreeMap::new(),
            excess: Vec::new(),
        }
    }

    #[test]
    fn events_of_a_part_come_in_order() {
        let failed = NodeState::Failed {
            reason: "no guest".into(),
            cause: Default::default(),
        };
        let steps = [
            vec![],
            vec![part(PartState::Held, NodeState::Absent)],
            vec![part(PartState::Made, NodeState::Absent)],
            vec![part(PartState::Made, NodeState::Up)],
            vec![part(PartState::Made, failed.clone())],
            vec![part(PartState::Leaving, failed)],
            vec![],
        ];
        let told = steps
            .windows(2)
            .flat_map(|pair| changes(&view(pair[0].clone()), &view(pair[1].clone())));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                "ring of net is held",
                "ring of net is committed, and made",
                "ring of net: node a is up",
                "ring of net: node a has failed: no guest",
                "ring of net is being removed",
                "ring of net has gone",
            ]
        );
    }
}
