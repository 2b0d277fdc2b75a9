//! Control events of members of an rlite DIF.

use std::sync::{Arc, Mutex};

use carina_ipcp::{Command, FlowKey, TraceEvent, TraceSink, Tracer};
use carina_time::Instant;
use carina_wire::FlowSpec;

use crate::rlite::net::{Net, SECOND, line};

/// Records the flows that were allocated, and address conflicts as member and address.
#[derive(Default)]
struct Seen {
    allocated: Mutex<Vec<FlowKey>>,
    conflicts: Mutex<Vec<(String, u64)>>,
}

impl TraceSink for Seen {
    fn on_event(&self, _now: Instant, event: &TraceEvent<'_>) {
        match event {
            TraceEvent::FlowAllocated { flow, .. } => {
                self.allocated.lock().expect("no sink panics").push(*flow)
            }
            TraceEvent::AddressConflict { name, address } => {
                let conflict = ((*name).to_string(), address.0);
                self.conflicts
                    .lock()
                    .expect("no sink panics")
                    .push(conflict);
            }
            _ => {}
        }
    }
}

fn traced(net: &mut Net, name: &str) -> Arc<Seen> {
    let seen = Arc::new(Seen::default());
    net.member(name).set_tracer(Tracer::new(seen.clone()));
    seen
}

#[test]
fn both_ends_trace_an_allocated_flow_and_none_a_refused_one() {
    let mut net = line(1, &["a", "b"]);
    let [at_a, at_b] = ["a", "b"].map(|name| traced(&mut net, name));
    net.order("a", Command::Register { name: "app".into() });
    net.run(SECOND);
    net.allocate("b", "client", "app", FlowSpec::unreliable());
    net.run(SECOND);
    let (flow, answer) = (net.offered("a"), Err("not today".into()));
    net.order("a", Command::Respond { flow, answer });
    net.run(SECOND);
    assert!(at_a.allocated.lock().expect("no sink panics").is_empty());
    assert!(at_b.allocated.lock().expect("no sink panics").is_empty());
    let mine = net.allocate("b", "client", "app", FlowSpec::unreliable());
    net.run(SECOND);
    let (flow, answer) = (net.offered("a"), Ok(()));
    net.order("a", Command::Respond { flow, answer });
    net.run(SECOND);
    assert_eq!(*at_a.allocated.lock().expect("no sink panics"), [flow]);
    assert_eq!(*at_b.allocated.lock().expect("no sink panics"), [mine]);
}

#[test]
fn a_member_that_cedes_its_address_traces_the_conflict() {
    // Two DIFs of the same name grow into one: both first members have address 1.
    let mut net = Net::new(9);
    net.bootstrap("a");
    net.bootstrap("b");
    net.add("m");
    let [at_a, at_b] = ["a", "b"].map(|name| traced(&mut net, name));
    net.wire("m", "a");
    net.run(3 * SECOND);
    net.wire("m", "b");
    net.run(60 * SECOND);
    let conflicts = at_a.conflicts.lock().expect("no sink panics");
    assert_eq!(conflicts.first(), Some(&("b".to_string(), 1)));
    assert!(at_b.conflicts.lock().expect("no sink panics").is_empty());
}
