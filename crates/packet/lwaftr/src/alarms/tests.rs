//! Tests of alarms that are raised, cleared, compressed and purged.

use std::collections::HashMap;

use super::*;

struct Watched {
    alarms: Alarms,
    counters: HashMap<&'static str, u64>,
    now_ms: u64,
}

impl Watched {
    fn new() -> Watched {
        Watched {
            alarms: Alarms::new("7"),
            counters: HashMap::new(),
            now_ms: 0,
        }
    }

    /// Lets `ms` milliseconds pass, in which each counter of `grow` grows by its number every
    /// 100 ms. Returns the alarms that changed.
    fn pass(&mut self, ms: u64, grow: &[(&'static str, u64)]) -> Vec<(String, bool)> {
        let mut changed = Vec::new();
        for _ in 0..ms / 100 {
            self.now_ms += 100;
            for (name, count) in grow {
                *self.counters.entry(name).or_default() += count;
            }
            let now = Instant::ZERO + Duration::from_millis(self.now_ms);
            let value = |name: &str| self.counters.get(name).copied();
            let found = self.alarms.observe(now, self.now_ms / 1000, value);
            let found = found
                .into_iter()
                .map(|alarm| (alarm.alarm_type_id, alarm.is_cleared));
            changed.extend(found);
        }
        changed
    }
}

#[test]
fn next_hop_that_is_not_known_is_an_alarm_until_it_answers() {
    let mut watched = Watched::new();
    watched.counters.insert("next-hop-ipv4-resolved", 0);
    watched.counters.insert("next-hop-ipv6-resolved", 1);
    let raised = watched.pass(1000, &[]);
    assert_eq!(raised, [("arp-resolution".to_owned(), false)]);
    watched.counters.insert("next-hop-ipv4-resolved", 1);
    let cleared = watched.pass(1000, &[]);
    assert_eq!(cleared, [("arp-resolution".to_owned(), true)]);
    let alarm = &watched.alarms.list()[0];
    assert_eq!(alarm.perceived_severity, Severity::Critical);
    assert_eq!(alarm.status_change.len(), 2);
}

#[test]
fn rates_count_over_the_time_of_their_rule() {
    let name = "drop-no-dest-softwire-ipv4-packets";
    let mut watched = Watched::new();
    // Exactly the growth that is allowed.
    assert!(watched.pass(20_000, &[(name, 2000)]).is_empty());
    let kind = "bad-ipv4-softwires-matches".to_owned();
    let raised = watched.pass(10_100, &[(name, 2100)]);
    assert_eq!(raised, [(kind.clone(), false)]);
    assert_eq!(watched.pass(10_100, &[]), [(kind, true)]);
}

#[test]
fn alarms_are_purged_compressed_and_commented() {
    let mut watched = Watched::new();
    watched.counters.insert("next-hop-ipv4-resolved", 0);
    watched.pass(1000, &[("in-ipv4-packets", 300_000)]);
    watched.pass(4000, &[("in-ipv4-packets", 300_000)]);
    let mut value = 1;
    for _ in 0..40 {
        watched.counters.insert("next-hop-ipv4-resolved", value);
        value = 1 - value;
        watched.pass(100, &[]);
    }
    let alarms = &mut watched.alarms;
    let changes = |alarms: &Alarms| alarms.list()[0].status_change.len();
    assert_eq!((alarms.list().len(), changes(alarms)), (2, CHANGES_MAX));
    assert_eq!(alarms.compress("arp-resolution"), 1);
    assert_eq!(changes(alarms), 1);
    let state = OperatorState::Ack;
    assert_eq!(
        alarms.set_operator_state("ingress-packet-rate/external", state),
        1
    );
    assert_eq!(
        alarms.set_operator_state("ingress-packet-rate/internal", state),
        0
    );
    let purge = |alarms: &mut Alarms, which: Purge| alarms.purge(&which, 100);
    let old = Purge {
        older_than_s: Some(1000),
        ..Purge::default()
    };
    assert_eq!(purge(alarms, old), 0);
    let worse = Purge {
        severity_above: Some(Severity::Warning),
        is_cleared: Some(false),
        ..Purge::default()
    };
    assert_eq!(purge(alarms, worse.clone()), 1);
    assert_eq!(purge(alarms, worse), 0);
    let acknowledged = Purge {
        operator_state: Some(state),
        ..Purge::default()
    };
    assert_eq!(purge(alarms, acknowledged), 1);
}
