//! The loopback shim: flows between applications of one system.
//!
//! The shim only keeps registrations and matches requests with answers. After a successful
//! `AllocateResult`, the manager gives both applications the two ends of one channel, or makes the
//! data plane relay between ends of different kinds. No SDU passes through the shim.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use carina_api::{AppName, IpcpId, PortId};
use carina_dataplane::{Event, FlowEnd, FlowRequest, IpcProcess, QosOffered, Refusal};

/// A DIF whose only member is this system; it connects applications of the system with each other.
pub struct Loopback {
    ipcp: IpcpId,
    names: BTreeSet<AppName>,
    /// For requests that are not answered: port-id of the called application to port-id of the
    /// caller.
    asked: BTreeMap<PortId, PortId>,
    /// For open flows: each port-id to the port-id of the other end.
    pairs: BTreeMap<PortId, PortId>,
    events: VecDeque<Event>,
    next_port: u32,
}

impl Loopback {
    /// Makes a loopback DIF without registrations.
    #[must_use]
    pub fn new(ipcp: IpcpId) -> Loopback {
        Loopback {
            ipcp,
            names: BTreeSet::new(),
            asked: BTreeMap::new(),
            pairs: BTreeMap::new(),
            events: VecDeque::new(),
            next_port: 0,
        }
    }

    /// Returns the port-id of the other end of an open flow; `None` if `port` is not an open flow.
    #[must_use]
    pub fn peer_of(&self, port: PortId) -> Option<PortId> {
        self.pairs.get(&port).copied()
    }

    /// Returns the registered names in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &AppName> {
        self.names.iter()
    }

    /// A free port-id for a called application. Bits 31 and 30 are set: bit 31 distinguishes it
    /// from port-ids of the manager, bit 30 from those of the data plane.
    fn free_port(&mut self) -> PortId {
        loop {
            self.next_port = (self.next_port + 1) & 0x3fff_ffff;
            let port = PortId(0xc000_0000 | self.next_port);
            if !self.asked.contains_key(&port) && !self.pairs.contains_key(&port) {
                return port;
            }
        }
    }
}

impl IpcProcess for Loopback {
    fn kind(&self) -> &'static str {
        "loopback"
    }

    fn qos_offered(&self) -> QosOffered {
        QosOffered::SHARED_MEMORY
    }

    fn register(&mut self, name: &AppName) -> Result<(), Refusal> {
        if !self.names.insert(name.clone()) {
            return Err(Refusal::NameTaken(name.clone()));
        }
        tracing::debug!(target: TARGET, ipcp = %self.ipcp, %name, "name registered");
        Ok(())
    }

    fn unregister(&mut self, name: &AppName) -> Result<(), Refusal> {
        if !self.names.remove(name) {
            return Err(Refusal::NotRegistered(name.clone()));
        }
        tracing::debug!(target: TARGET, ipcp = %self.ipcp, %name, "name withdrawn");
        Ok(())
    }

    fn reaches(&self, name: &AppName) -> bool {
        self.names.contains(name)
    }

    fn allocate(&mut self, call: FlowRequest, _end: Option<FlowEnd>) -> Result<(), Refusal> {
        self.qos_offered()
            .meets(&call.spec)
            .map_err(Refusal::Quality)?;
        if !self.reaches(&call.remote) {
            return Err(Refusal::Unreachable(call.remote));
        }
        let port = self.free_port();
        tracing::debug!(target: TARGET, ipcp = %self.ipcp, flow = %call.port, local = %call.local,
            remote = %call.remote, "flow requested");
        self.asked.insert(port, call.port);
        self.events.push_back(Event::IncomingFlow {
            ipcp: self.ipcp,
            port,
            local: call.remote,
            remote: call.local,
            spec: call.spec,
        });
        Ok(())
    }

    fn respond(
        &mut self,
        port: PortId,
        answer: Result<Option<FlowEnd>, String>,
    ) -> Result<(), Refusal> {
        let caller = self.asked.remove(&port).ok_or(Refusal::UnknownPort(port))?;
        let result = answer.map(|_| ());
        match &result {
            Ok(()) => {
                tracing::debug!(target: TARGET, ipcp = %self.ipcp, flow = %caller, "flow opened");
            }
            Err(reason) => {
                tracing::debug!(target: TARGET, ipcp = %self.ipcp, flow = %caller, reason,
                    "flow refused");
            }
        }
        if result.is_ok() {
            self.pairs.insert(port, caller);
            self.pairs.insert(caller, port);
        }
        self.events.push_back(Event::AllocateResult {
            port: caller,
            result,
        });
        Ok(())
    }

    fn deallocate(&mut self, port: PortId, reason: &str) {
        tracing::debug!(target: TARGET, ipcp = %self.ipcp, flow = %port, reason, "flow ended");
        let reason = reason.to_owned();
        if let Some(peer) = self.pairs.remove(&port) {
            self.pairs.remove(&peer);
            self.events
                .push_back(Event::FlowClosed { port: peer, reason });
        } else if let Some(caller) = self.asked.remove(&port) {
            self.events.push_back(Event::AllocateResult {
                port: caller,
                result: Err(reason),
            });
        } else if let Some((&called, _)) = self.asked.iter().find(|(_, caller)| **caller == port) {
            self.asked.remove(&called);
            self.events.push_back(Event::FlowClosed {
                port: called,
                reason,
            });
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn is_local(&self) -> bool {
        true
    }

    fn local_peer(&self, port: PortId) -> Option<PortId> {
        self.peer_of(port)
    }
}

/// Target of log messages.
const TARGET: &str = "carina::shim::loopback";

#[cfg(test)]
mod tests {
    use carina_api::FlowSpec;

    use super::*;

    fn name(text: &str) -> AppName {
        AppName::new(text).unwrap()
    }

    fn call(port: u32, remote: &str, spec: FlowSpec) -> FlowRequest {
        FlowRequest {
            port: PortId(port),
            local: name("caller"),
            remote: name(remote),
            spec,
        }
    }

    #[test]
    fn call_reaches_the_name_and_its_end_is_reported() {
        let mut dif = Loopback::new(IpcpId(1));
        dif.register(&name("echo")).unwrap();
        dif.allocate(call(7, "echo", FlowSpec::reliable()), None)
            .unwrap();
        let Some(Event::IncomingFlow {
            port,
            local,
            remote,
            ..
        }) = dif.poll_event()
        else {
            panic!("no request")
        };
        assert_eq!((local, remote), (name("echo"), name("caller")));
        assert_eq!(port.0 >> 30, 3);
        dif.respond(port, Ok(None)).unwrap();
        assert_eq!(
            dif.poll_event(),
            Some(Event::AllocateResult {
                port: PortId(7),
                result: Ok(())
            })
        );
        assert_eq!(dif.peer_of(PortId(7)), Some(port));
        dif.deallocate(PortId(7), "done");
        assert_eq!(
            dif.poll_event(),
            Some(Event::FlowClosed {
                port,
                reason: "done".into()
            })
        );
        assert_eq!(dif.peer_of(port), None);
        assert_eq!(dif.poll_event(), None);
    }

    #[test]
    fn duplicate_and_unknown_names_and_bad_specs_are_refused() {
        let mut dif = Loopback::new(IpcpId(1));
        dif.register(&name("echo")).unwrap();
        assert_eq!(
            dif.register(&name("echo")),
            Err(Refusal::NameTaken(name("echo")))
        );
        assert_eq!(
            dif.allocate(call(1, "nobody", FlowSpec::reliable()), None),
            Err(Refusal::Unreachable(name("nobody")))
        );
        let spec = FlowSpec {
            max_delay_us: 5,
            ..FlowSpec::reliable()
        };
        assert!(matches!(
            dif.allocate(call(1, "echo", spec), None),
            Err(Refusal::Quality(_))
        ));
        assert_eq!(
            dif.unregister(&name("x")),
            Err(Refusal::NotRegistered(name("x")))
        );
        assert_eq!(
            dif.respond(PortId(3), Ok(None)),
            Err(Refusal::UnknownPort(PortId(3)))
        );
    }

    #[test]
    fn denied_and_withdrawn_calls_are_reported_once() {
        let mut dif = Loopback::new(IpcpId(1));
        dif.register(&name("echo")).unwrap();
        dif.allocate(call(7, "echo", FlowSpec::reliable()), None)
            .unwrap();
        let Some(Event::IncomingFlow { port, .. }) = dif.poll_event() else {
            panic!()
        };
        dif.respond(port, Err("busy".into())).unwrap();
        let denied = Event::AllocateResult {
            port: PortId(7),
            result: Err("busy".into()),
        };
        assert_eq!(dif.poll_event(), Some(denied));
        dif.allocate(call(8, "echo", FlowSpec::reliable()), None)
            .unwrap();
        let Some(Event::IncomingFlow { port, .. }) = dif.poll_event() else {
            panic!()
        };
        dif.deallocate(PortId(8), "gave up");
        assert_eq!(
            dif.poll_event(),
            Some(Event::FlowClosed {
                port,
                reason: "gave up".into()
            })
        );
        assert_eq!(dif.poll_event(), None);
    }
}
