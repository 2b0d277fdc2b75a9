//! Actions of a test as an application, and queries to members.

use carina_ipcp::api::{RibObject, RibOp, Scalar};
use carina_ipcp::{Command, Event, FlowKey};
use carina_wire::{Bytes, FlowSpec};

use super::{Net, SECOND};

impl Net {
    pub(crate) fn allocate(&mut self, at: &str, from: &str, to: &str, spec: FlowSpec) -> FlowKey {
        self.try_allocate(at, from, to, spec).expect("a request")
    }

    pub(crate) fn try_allocate(
        &mut self,
        at: &str,
        from: &str,
        to: &str,
        spec: FlowSpec,
    ) -> Result<FlowKey, String> {
        let now = self.now;
        let key = self.member(at).allocate(now, from, to, spec);
        self.pump(at);
        key.map_err(|error| error.to_string())
    }

    pub(crate) fn deallocate(&mut self, at: &str, flow: FlowKey) {
        let reason = String::new();
        self.order(at, Command::Deallocate { flow, reason });
    }

    pub(crate) fn write(&mut self, at: &str, flow: FlowKey, bytes: &[u8]) {
        let now = self.now;
        let sdu = Bytes::from(bytes.to_vec());
        self.member(at).on_sdu(now, flow, sdu, false);
        self.pump(at);
    }

    /// The SDUs that arrived on a flow since the last call.
    pub(crate) fn take_delivered(&mut self, at: &str, flow: FlowKey) -> Vec<Vec<u8>> {
        let key = (at.to_string(), flow);
        self.delivered.remove(&key).unwrap_or_default()
    }

    /// The flow that was last offered to a member.
    pub(crate) fn offered(&self, at: &str) -> FlowKey {
        *self.incoming[at].last().expect("a flow was offered")
    }

    /// Adds IPCPs of a DIF "up" over the members `holders`. The IPCP over member `at` calls any
    /// member of its DIF. Returns which holders received the request.
    pub(crate) fn asked_by_upper(&mut self, at: &str, holders: &[&str]) -> Vec<String> {
        self.accepts.insert("up".into());
        for holder in holders {
            for name in ["up".to_string(), format!("up.{holder}")] {
                self.order(holder, Command::Register { name });
            }
        }
        self.run(2 * SECOND);
        let spec = FlowSpec::unreliable();
        let key = self.allocate(at, &format!("up.{at}"), "up", spec);
        self.run(2 * SECOND);
        assert_eq!(self.allocated(at, key), Some(Ok(())));
        self.incoming.keys().cloned().collect()
    }

    /// The events of a member for which `pick` returns a value.
    pub(crate) fn told<T>(&self, at: &str, pick: impl Fn(&Event) -> Option<T>) -> Vec<T> {
        let at_member = self.events.iter().filter(|(name, _)| name == at);
        at_member.filter_map(|(_, event)| pick(event)).collect()
    }

    pub(crate) fn is_member(&self, name: &str) -> bool {
        self.members[name].address().is_some()
    }

    /// The address of a member; 0 while the IPCP is not enrolled.
    pub(crate) fn address(&self, name: &str) -> u64 {
        self.members[name].address().map_or(0, |address| address.0)
    }

    /// Checks that all of these IPCPs are members.
    pub(crate) fn expect_members(&self, names: &[&str]) {
        for name in names {
            assert!(self.is_member(name), "{name}: {:?}", self.failures(name));
        }
    }

    /// The result of the allocation of a flow.
    pub(crate) fn allocated(&self, at: &str, key: FlowKey) -> Option<Result<(), String>> {
        let pick = |event: &Event| match event {
            Event::Allocated { flow, result } if *flow == key => {
                Some(result.clone().map_err(String::from))
            }
            _ => None,
        };
        self.told(at, pick).pop()
    }

    /// Whether the other side closed a flow in order, and its reason; `None` if it is not closed.
    pub(crate) fn closed(&self, at: &str, key: FlowKey) -> Option<(bool, String)> {
        let pick = |event: &Event| match event {
            Event::Closed {
                flow,
                is_graceful,
                reason,
            } if *flow == key => Some((*is_graceful, reason.clone())),
            _ => None,
        };
        self.told(at, pick).pop()
    }

    pub(crate) fn notices(&self, at: &str) -> Vec<String> {
        self.told(at, |event| match event {
            Event::Notice { text } => Some(text.clone()),
            _ => None,
        })
    }

    pub(crate) fn failures(&self, at: &str) -> Vec<String> {
        self.told(at, |event| match event {
            Event::EnrollFailed { reason, .. } | Event::EnrollRefused { reason, .. } => {
                Some(reason.clone())
            }
            _ => None,
        })
    }

    /// Orders the member at one end of a wire to give the N-1 flow up.
    pub(crate) fn give_up(&mut self, wire: usize, end: usize) {
        let (name, n1) = self.wires[wire].ends[end].clone();
        let reason = "it is needed elsewhere".to_string();
        self.order(&name, Command::GiveUpN1 { n1, reason });
    }

    /// How often a member has lost a neighbour, returned an N-1 flow, and requested one.
    pub(crate) fn partings(&self, at: &str) -> [usize; 3] {
        let count = |is_it: fn(&Event) -> bool| {
            let found = self.told(at, |event| is_it(event).then_some(()));
            found.len()
        };
        [
            count(|event| matches!(event, Event::NeighbourDown { .. })),
            count(|event| matches!(event, Event::DropN1 { .. })),
            count(|event| matches!(event, Event::NeedN1 { .. })),
        ]
    }

    /// The reasons of permanent refusals at a member.
    pub(crate) fn refusals(&self, at: &str) -> Vec<String> {
        self.told(at, |event| match event {
            Event::EnrollRefused { reason, .. } => Some(reason.clone()),
            _ => None,
        })
    }

    /// Reads or writes a RIB, and waits for the answer.
    pub(crate) fn rib(
        &mut self,
        at: &str,
        member: Option<&str>,
        op: RibOp,
    ) -> Result<Vec<RibObject>, String> {
        self.next_id += 1;
        let id = self.next_id;
        let member = member.map(str::to_string);
        self.order(at, Command::Rib { id, member, op });
        for _ in 0..60 {
            let pick = |event: &Event| match event {
                Event::Answer { id: of, result } if *of == id => {
                    Some(result.clone().map_err(String::from))
                }
                _ => None,
            };
            if let Some(result) = self.told(at, pick).pop() {
                return result;
            }
            self.run(SECOND);
        }
        panic!("no answer to a question about a RIB");
    }

    pub(crate) fn read_rib(&mut self, at: &str, path: &str, scope: u32) -> Vec<RibObject> {
        self.try_read_rib(at, path, scope).expect("an object")
    }

    /// Like `read_rib`, if the read may be refused.
    pub(crate) fn try_read_rib(
        &mut self,
        at: &str,
        path: &str,
        scope: u32,
    ) -> Result<Vec<RibObject>, String> {
        let read = RibOp::Read {
            path: path.to_string(),
            scope,
            filter: String::new(),
        };
        self.rib(at, None, read)
    }

    /// The objects at and below a path.
    pub(crate) fn objects(&mut self, at: &str, path: &str) -> Vec<RibObject> {
        self.read_rib(at, path, 9)
    }

    /// The names of the objects directly below a path.
    pub(crate) fn names(&mut self, at: &str, path: &str) -> Vec<String> {
        let below = format!("{path}/");
        let objects = self.read_rib(at, path, 1);
        let names = objects.iter();
        let names = names.filter_map(|object| object.path.strip_prefix(&below));
        names.map(str::to_string).collect()
    }

    /// The value of a counter of a member.
    pub(crate) fn count(&mut self, at: &str, what: &str) -> u64 {
        let objects = self.objects(at, "/counters");
        let fields = objects.iter().flat_map(|object| &object.fields);
        let found = fields.filter_map(|(name, value)| match value {
            Scalar::Uint(count) if name == what => Some(*count),
            _ => None,
        });
        found.sum()
    }
}
