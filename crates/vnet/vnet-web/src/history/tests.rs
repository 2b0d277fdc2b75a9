//! Tests of adding, thinning and reading samples.

use carina_vnet::document::{Carrier, Kind, Rate};
use carina_vnet::host_part::VnetId;

use super::*;
use carina_vnet::report::{LinkReport, NodeReport};

const ROOM: usize = 1 << 30;

fn report(state: VnetState, bytes: u64) -> VnetReport {
    let passed = Passed {
        bytes,
        ..Passed::default()
    };
    VnetReport {
        name: "x".into(),
        vnet: VnetId::new(1),
        generation: 1,
        state,
        obstacles: Vec::new(),
        nodes: vec![NodeReport {
            name: "a".into(),
            kind: Kind::Namespace,
            state: NodeState::Up,
            is_console_ready: true,
            interfaces: Vec::new(),
            position: None,
        }],
        links: vec![LinkReport {
            number: 0,
            ends: ["a:eth0".into(), "b:eth0".into()],
            carrier: Carrier::Ipip,
            rate: Rate::from_bps(1_000_000).unwrap(),
            path: None,
            state: LinkState::Up,
            rtt_ns: None,
            passed: [passed, Passed::default()],
            impairment: LinkImpairment::default(),
        }],
        phases: Vec::new(),
        ready_after_ms: None,
    }
}

fn history() -> History {
    History::new(&report(VnetState::Ready, 0))
}

#[test]
fn moments_have_what_was_and_its_rates() {
    let mut history = history();
    history.note(1000, report(VnetState::Changing, 0), ROOM);
    history.note(2000, report(VnetState::Ready, 1000), ROOM);
    history.note(4000, report(VnetState::Ready, 2000), ROOM);
    let at = |at_ms| history.at(at_ms).unwrap();
    assert_eq!((at(0).at_ms, at(1999).at_ms), (1000, 1000));
    assert_eq!(at(1999).report.state, VnetState::Changing);
    assert_eq!(at(2500).report, report(VnetState::Ready, 1000));
    assert_eq!(at(2500).rates[0][0].bps, 8000.0);
    assert_eq!(at(9999).rates[0][0].bps, 4000.0);
    assert_eq!(at(9999).rates[0][1], LinkRate::default());
    let samples = history.report(5000, 1000).samples;
    assert_eq!(samples.len(), 2);
    assert_eq!(samples[0].at_ms, 2000);
}

#[test]
fn what_changes_is_noted_at_once_and_counters_by_the_second() {
    let mut history = history();
    history.note(0, report(VnetState::Ready, 0), ROOM);
    history.note(300, report(VnetState::Ready, 500), ROOM);
    assert_eq!(history.samples.len(), 1);
    history.note(400, report(VnetState::Degraded, 500), ROOM);
    assert_eq!(history.samples.len(), 2);
    history.note(1400, report(VnetState::Degraded, 500), ROOM);
    assert_eq!(history.samples.len(), 3);
    // Rates are not computed over the last moment alone.
    history.note(1410, report(VnetState::Ready, 1500), ROOM);
    let bps = history.at(1410).unwrap().rates[0][0].bps;
    assert_eq!(bps, 1000.0 * 8.0 / 1.01);
}

#[test]
fn history_is_bounded_and_keeps_what_is_long_ago() {
    let mut history = history();
    for second in 0..100_000 {
        history.note(second * 1000, report(VnetState::Ready, second), ROOM);
        assert!(history.samples.len() <= SAMPLES_MAX);
    }
    let times: Vec<u64> = history.samples.iter().map(|sample| sample.at_ms).collect();
    assert_eq!((times[0], *times.last().unwrap()), (0, 99_999_000));
    assert!(times.is_sorted());
    let half = times.len() / 2;
    assert!(
        times[half + 1..]
            .windows(2)
            .all(|pair| pair[1] - pair[0] == 1000)
    );
    // The smallest possible room.
    history.note(100_000_000, report(VnetState::Ready, 1), 1);
    assert!(history.samples.len() <= SAMPLES_MIN);
}

#[test]
fn another_shape_is_kept_with_its_samples() {
    let mut history = history();
    history.note(0, report(VnetState::Ready, 0), ROOM);
    let mut wider = report(VnetState::Ready, 700);
    wider.generation = 2;
    wider.links[0].ends[1] = "c:eth0".into();
    history.note(1000, wider.clone(), ROOM);
    assert_eq!(history.at(0).unwrap().report.generation, 1);
    let moment = history.at(1000).unwrap();
    assert_eq!(moment.report, wider);
    // The link has other ends, and is therefore another link.
    assert_eq!(moment.rates[0][0], LinkRate::default());
    let mut other = report(VnetState::Ready, 0);
    other.vnet = VnetId::new(2);
    assert!(history.is_of(&wider) && !history.is_of(&other));
}
