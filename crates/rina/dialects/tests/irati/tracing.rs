//! Control events of members of an IRATI DIF.

use std::sync::{Arc, Mutex};

use carina_ipcp::{Command, FlowKey, TraceEvent, TraceSink, Tracer};
use carina_time::Instant;
use carina_wire::FlowSpec;

use crate::irati::net::{SECOND, chain, config};

/// Records the flows that were allocated.
#[derive(Default)]
struct Allocated(Mutex<Vec<FlowKey>>);

impl TraceSink for Allocated {
    fn on_event(&self, _now: Instant, event: &TraceEvent<'_>) {
        if let TraceEvent::FlowAllocated { flow, .. } = event {
            self.0.lock().expect("no sink panics").push(*flow);
        }
    }
}

#[test]
fn both_ends_trace_an_allocated_flow() {
    let mut net = chain(1, &["a", "b"], &config());
    let [at_a, at_b] = ["a", "b"].map(|name| {
        let sink = Arc::new(Allocated::default());
        net.member(name).set_tracer(Tracer::new(sink.clone()));
        sink
    });
    net.order("a", Command::Register { name: "app".into() });
    net.run(SECOND);
    let mine = net.allocate("b", "client", "app", FlowSpec::reliable());
    net.run(SECOND);
    let (flow, answer) = (net.offered("a"), Ok(()));
    net.order("a", Command::Respond { flow, answer });
    net.run(SECOND);
    assert_eq!(*at_a.0.lock().expect("no sink panics"), [flow]);
    assert_eq!(*at_b.0.lock().expect("no sink panics"), [mine]);
}
