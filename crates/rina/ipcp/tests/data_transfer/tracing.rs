//! Control events of data transfer that a trace sink receives.

use std::sync::{Arc, Mutex};

use carina_ipcp::api::{FlowKey, N1Port};
use carina_ipcp::data_transfer::api::{DataTransfer, Owner};
use carina_ipcp::{TraceEvent, TraceSink, Tracer};
use carina_time::Instant;
use carina_wire::Bytes;

use super::net::{MS, Net, config, cubes, sdu};

const FLOW: u32 = 3;

/// Records events of connections and first drops, in order.
#[derive(Default)]
struct Steps(Mutex<Vec<String>>);

impl Steps {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no sink panics"))
    }
}

impl TraceSink for Steps {
    fn on_event(&self, _now: Instant, event: &TraceEvent<'_>) {
        let step = match event {
            TraceEvent::ConnectionOpened { flow, cube, .. } => {
                assert_eq!(*flow, Some(FlowKey(FLOW)));
                format!("opened {cube}")
            }
            TraceEvent::ConnectionEstablished { remote, .. } => {
                format!("established to {}", remote.0)
            }
            TraceEvent::ConnectionStalled { .. } => "stalled".into(),
            TraceEvent::ConnectionResumed { .. } => "resumed".into(),
            TraceEvent::RetransmissionTimeout { in_a_row, .. } => format!("timeout {in_a_row}"),
            TraceEvent::ConnectionFailed { .. } => "failed".into(),
            TraceEvent::ConnectionClosed { .. } => "closed".into(),
            TraceEvent::FirstDrop { reason } => format!("dropped: {reason}"),
            _ => return,
        };
        self.0.lock().expect("no sink panics").push(step);
    }
}

/// Two members; the first one is traced.
fn traced() -> (Net, Arc<Steps>) {
    let mut net = Net::new(2, &config());
    net.wire((0, 0), (1, 0));
    let steps = Arc::new(Steps::default());
    net.members[0].set_tracer(Tracer::new(steps.clone()));
    (net, steps)
}

fn set_room(net: &mut Net, bytes: usize) {
    let now = net.now;
    net.members[1].set_delivery_room(now, FlowKey(FLOW), bytes);
}

#[test]
fn a_sink_receives_the_life_of_a_connection() {
    let (mut net, steps) = traced();
    net.flow(0, 1, FLOW, &cubes()[2]);
    assert_eq!(steps.take(), ["opened reliable", "established to 2"]);
    for number in 0..5 {
        net.write(0, FLOW, &sdu(number, 1000));
    }
    net.run_until(net.now + 1000 * MS);
    assert_eq!(steps.take(), [""; 0], "nothing happens while all goes well");
    let now = net.now;
    net.members[0].close(now, Owner::Flow(FlowKey(FLOW)));
    assert_eq!(steps.take(), ["closed"]);
}

#[test]
fn a_sink_receives_a_stall_and_its_end() {
    let (mut net, steps) = traced();
    net.flow(0, 1, FLOW, &cubes()[2]);
    set_room(&mut net, 0);
    steps.take();
    for number in 0..200 {
        net.write(0, FLOW, &sdu(number, 1400));
    }
    net.run_until(net.now + 1000 * MS);
    assert_eq!(steps.take(), ["stalled"]);
    net.run_until(net.now + 1000 * MS);
    assert_eq!(steps.take(), [""; 0], "the same stall");
    set_room(&mut net, 1 << 24);
    net.run_until(net.now + 1000 * MS);
    assert_eq!(steps.take(), ["resumed"]);
    assert_eq!(net.take_read(1, FLOW).len(), 200);
}

#[test]
fn a_sink_receives_retransmission_timeouts() {
    let (mut net, steps) = traced();
    net.flow(0, 1, FLOW, &cubes()[2]);
    steps.take();
    net.loses = Some(Box::new(|from, _, _| from == 0));
    net.write(0, FLOW, &sdu(1, 1000));
    net.run_until(net.now + 4000 * MS);
    let seen = steps.take();
    assert!(seen.len() >= 2, "{seen:?}");
    for (index, step) in seen.iter().enumerate() {
        assert_eq!(*step, format!("timeout {}", index + 1));
    }
    net.run_until(net.now + 20_000 * MS);
    assert_eq!(steps.take().last().map(String::as_str), Some("failed"));
}

#[test]
fn a_sink_receives_only_the_first_drop_of_a_reason() {
    let (mut net, steps) = traced();
    for _ in 0..3 {
        let now = net.now;
        net.members[0].on_pdu(now, N1Port(0), Bytes::from(vec![0xff; 3]));
        net.run_until_quiet();
    }
    assert_eq!(net.members[0].counters().dropped_total(), 3);
    let seen = steps.take();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].starts_with("dropped: "), "{seen:?}");
}
