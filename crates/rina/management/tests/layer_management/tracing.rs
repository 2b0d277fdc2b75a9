//! Control events that a trace sink receives.

use std::sync::{Arc, Mutex};

use carina_ipcp::{Command, TraceEvent, TraceSink, Tracer};
use carina_time::Instant;
use carina_wire::FlowSpec;

use crate::layer_management::net::{Net, SECOND, config};

/// Records the names of layer management's events, in order.
#[derive(Default)]
struct Steps(Mutex<Vec<&'static str>>);

impl TraceSink for Steps {
    fn on_event(&self, _now: Instant, event: &TraceEvent<'_>) {
        let name = match event {
            TraceEvent::EnrollmentStarted { .. } => "enrollment started",
            TraceEvent::Enrolled { .. } => "enrolled",
            TraceEvent::NeighbourAdded { .. } => "neighbour added",
            TraceEvent::NeighbourLost { .. } => "neighbour lost",
            TraceEvent::NameRegistered { .. } => "name registered",
            TraceEvent::NameUnknown { .. } => "name unknown",
            TraceEvent::FlowRequested { .. } => "flow requested",
            TraceEvent::FlowAllocated { .. } => "flow allocated",
            TraceEvent::FlowRefused { .. } => "flow refused",
            TraceEvent::Left { .. } => "left",
            _ => return,
        };
        self.0.lock().expect("no sink panics").push(name);
    }
}

#[test]
fn a_sink_receives_the_steps_of_a_membership() {
    let mut net = Net::new(1);
    net.bootstrap("a", config());
    net.add("b", None, "secret");
    let steps = Arc::new(Steps::default());
    net.member("b").set_tracer(Tracer::new(steps.clone()));
    net.wire("b", "a");
    net.run(5 * SECOND);
    for (at, name) in [("b", "here"), ("a", "there")] {
        let name = name.into();
        net.order(at, Command::Register { name });
    }
    net.run(SECOND);
    net.allocate("b", "here", "there", FlowSpec::reliable());
    net.run(SECOND);
    let (flow, answer) = (net.offered("a"), Ok(()));
    net.order("a", Command::Respond { flow, answer });
    net.run(SECOND);
    net.allocate("b", "here", "nowhere", FlowSpec::reliable());
    net.run(SECOND);
    net.order("b", Command::Leave);
    net.run(5 * SECOND);
    let mut steps = steps.0.lock().expect("no sink panics").clone();
    // The attempt to enroll again after leaving is ignored.
    let left = steps.iter().position(|step| *step == "left").unwrap();
    steps.truncate(left + 1);
    let expected = [
        "enrollment started",
        "enrolled",
        "neighbour added",
        "name registered",
        "flow requested",
        "flow allocated",
        "flow requested",
        "name unknown",
        "flow refused",
    ];
    assert_eq!(steps[..expected.len()], expected);
    assert!(steps.contains(&"neighbour lost"), "{steps:?}");
}
