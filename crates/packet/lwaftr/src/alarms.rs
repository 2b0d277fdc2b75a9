//! Alarms of a running AFTR, after the model `ietf-alarms` (RFC 8632) and with the alarm types of
//! Snabb's lwAFTR: which conditions are watched, and the states that an operator gives to alarms.
//!
//! Resource, type and qualifier identify an alarm. It is raised when its condition begins, cleared
//! when the condition ends, and stays in the list until the operator purges it.

use carina_time::{Duration, Instant};
use serde::{Deserialize, Serialize};

/// How severe an alarm is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The condition may become worse.
    Warning,
    /// Service is not affected yet.
    Minor,
    /// Service is degraded.
    Major,
    /// There is no service.
    Critical,
}

/// The state that an operator has given to an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperatorState {
    /// The operator has given no state.
    None,
    /// The operator has acknowledged the alarm and is working on it.
    Ack,
    /// The operator considers the problem solved.
    Closed,
    /// The operator has hidden the alarm.
    Shelved,
    /// The operator no longer hides the alarm.
    UnShelved,
}

/// One change of an alarm: it was raised, or cleared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct StatusChange {
    /// When the alarm changed, in seconds of Unix time.
    pub time: u64,
    /// Whether the alarm was cleared; `false` when it was raised.
    pub is_cleared: bool,
}

/// An alarm, raised or cleared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Alarm {
    /// The name of the process that the alarm is about.
    pub resource: String,
    /// The alarm's type, such as `arp-resolution`.
    pub alarm_type_id: String,
    /// Distinguishes alarms of one type; may be empty.
    pub alarm_type_qualifier: String,
    /// When the alarm was first raised, in seconds of Unix time.
    pub time_created: u64,
    /// Whether the alarm's condition has ended.
    pub is_cleared: bool,
    /// How severe the alarm is.
    pub perceived_severity: Severity,
    /// Describes the condition in words.
    pub alarm_text: String,
    /// The state that the operator gave last.
    pub operator_state: OperatorState,
    /// The latest changes of the alarm, the oldest first; at most [`CHANGES_MAX`].
    pub status_change: Vec<StatusChange>,
}

/// Number of changes that an alarm keeps.
pub const CHANGES_MAX: usize = 32;

/// Selects the alarms to purge. An alarm is purged when it matches all fields that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Purge {
    /// `true` selects cleared alarms, `false` alarms that are not cleared, `None` both.
    pub is_cleared: Option<bool>,
    /// Selects alarms whose last change is at least this many seconds old; `None` selects alarms of
    /// any age.
    pub older_than_s: Option<u64>,
    /// Selects alarms of this severity; `None` selects all severities.
    pub severity_is: Option<Severity>,
    /// Selects alarms less severe than this; `None` sets no such limit.
    pub severity_below: Option<Severity>,
    /// Selects alarms more severe than this; `None` sets no such limit.
    pub severity_above: Option<Severity>,
    /// Selects alarms to which the operator gave this state; `None` selects all.
    pub operator_state: Option<OperatorState>,
}

impl Purge {
    fn concerns(&self, alarm: &Alarm, now_s: u64) -> bool {
        let severity = alarm.perceived_severity;
        let age = now_s.saturating_sub(alarm.status_change.last().map_or(0, |change| change.time));
        self.is_cleared
            .is_none_or(|is_cleared| is_cleared == alarm.is_cleared)
            && self.older_than_s.is_none_or(|least| age >= least)
            && self
                .severity_is
                .is_none_or(|severity_is| severity_is == severity)
            && self
                .severity_below
                .is_none_or(|severity_below| severity < severity_below)
            && self
                .severity_above
                .is_none_or(|severity_above| severity > severity_above)
            && self
                .operator_state
                .is_none_or(|operator_state| operator_state == alarm.operator_state)
    }
}

/// A condition that raises an alarm.
#[derive(Clone, Copy, Debug)]
struct Rule {
    kind: &'static str,
    qualifier: &'static str,
    severity: Severity,
    text: &'static str,
    when: When,
}

#[derive(Clone, Copy, Debug)]
enum When {
    /// The counter of this name, which is 1 in a good state, is 0.
    No(&'static str),
    /// The sum of the counters has grown by more than `above` in `over_s` seconds.
    Grows {
        counters: &'static [&'static str],
        above: u64,
        over_s: u64,
    },
}

/// The conditions, with the types and thresholds of Snabb 2024.08.
const RULES: [Rule; 17] = {
    use Severity::{Critical, Major, Warning};
    const fn no(kind: &'static str, counter: &'static str, text: &'static str) -> Rule {
        Rule {
            kind,
            qualifier: "",
            severity: Critical,
            text,
            when: When::No(counter),
        }
    }
    const fn grows(
        kind: &'static str,
        qualifier: &'static str,
        severity: Severity,
        counters: &'static [&'static str],
        [above, over_s]: [u64; 2],
        text: &'static str,
    ) -> Rule {
        let when = When::Grows {
            counters,
            above,
            over_s,
        };
        Rule {
            kind,
            qualifier,
            severity,
            text,
            when,
        }
    }
    const FRAGMENTS: [u64; 2] = [10_000, 1];
    const FILTERED: [u64; 2] = [1_000_000, 1];
    const MISSES: [u64; 2] = [100_000, 5];
    [
        no(
            "arp-resolution",
            "next-hop-ipv4-resolved",
            "the external next hop does not answer ARP requests: check the next hop and its \
             address",
        ),
        no(
            "ndp-resolution",
            "next-hop-ipv6-resolved",
            "the internal next hop does not answer neighbour solicitations: check the next hop \
             and its address",
        ),
        grows(
            "bad-ipv4-softwires-matches",
            "",
            Major,
            &["drop-no-dest-softwire-ipv4-packets"],
            MISSES,
            "more than 20000 packets a second from the Internet match no softwire",
        ),
        grows(
            "bad-ipv6-softwires-matches",
            "",
            Major,
            &["drop-no-source-softwire-ipv6-packets"],
            MISSES,
            "more than 20000 packets a second from B4s match no softwire by their source address \
             and port",
        ),
        grows(
            "ingress-packet-drop",
            "",
            Major,
            &["ingress-packet-drops"],
            [100_000, 10],
            "more than 10000 packets a second are dropped before the AFTR receives them",
        ),
        grows(
            "incoming-ipv4-fragments",
            "",
            Warning,
            &["in-ipv4-frag-needs-reassembly"],
            FRAGMENTS,
            "more than 10000 IPv4 fragments a second arrive",
        ),
        grows(
            "incoming-ipv6-fragments",
            "",
            Warning,
            &["in-ipv6-frag-needs-reassembly"],
            FRAGMENTS,
            "more than 10000 IPv6 fragments a second arrive",
        ),
        grows(
            "outgoing-ipv4-fragments",
            "",
            Warning,
            &["out-ipv4-frag"],
            FRAGMENTS,
            "the AFTR sends more than 10000 IPv4 fragments a second: check the MTUs",
        ),
        grows(
            "outgoing-ipv6-fragments",
            "",
            Warning,
            &["out-ipv6-frag"],
            FRAGMENTS,
            "the AFTR sends more than 10000 IPv6 fragments a second: check the MTUs",
        ),
        grows(
            "filtered-packets",
            "ingress-v4",
            Warning,
            &["drop-filtered-in-ipv4-packets"],
            FILTERED,
            "a filter drops more than a million packets a second",
        ),
        grows(
            "filtered-packets",
            "ingress-v6",
            Warning,
            &["drop-filtered-in-ipv6-packets"],
            FILTERED,
            "a filter drops more than a million packets a second",
        ),
        grows(
            "filtered-packets",
            "egress-v4",
            Warning,
            &["drop-filtered-out-ipv4-packets"],
            FILTERED,
            "a filter drops more than a million packets a second",
        ),
        grows(
            "filtered-packets",
            "egress-v6",
            Warning,
            &["drop-filtered-out-ipv6-packets"],
            FILTERED,
            "a filter drops more than a million packets a second",
        ),
        // Snabb spells this type so.
        grows(
            "ingress-bandwith",
            "external",
            Warning,
            &["in-ipv4-bytes"],
            [1_000_000_000, 1],
            "more than a gigabyte a second arrives",
        ),
        grows(
            "ingress-bandwith",
            "internal",
            Warning,
            &["in-ipv6-bytes"],
            [1_000_000_000, 1],
            "more than a gigabyte a second arrives",
        ),
        grows(
            "ingress-packet-rate",
            "external",
            Warning,
            &["in-ipv4-packets"],
            [2_000_000, 1],
            "more than two million packets a second arrive",
        ),
        grows(
            "ingress-packet-rate",
            "internal",
            Warning,
            &["in-ipv6-packets"],
            [2_000_000, 1],
            "more than two million packets a second arrive",
        ),
    ]
};

/// The alarms of one process, and the windows in which its counters are watched.
#[derive(Debug)]
pub struct Alarms {
    resource: String,
    /// For each rule: when its current window began, and the sum of its counters at that moment.
    windows: [Option<(Instant, u64)>; RULES.len()],
    list: Vec<Alarm>,
}

impl Alarms {
    /// Starts with no alarms, for the process named `resource`.
    #[must_use]
    pub fn new(resource: &str) -> Alarms {
        Alarms {
            resource: resource.to_owned(),
            windows: [None; RULES.len()],
            list: Vec::new(),
        }
    }

    /// Evaluates all conditions. `value` returns the present value of a counter by its name, and
    /// `now_s` is the time of day in seconds of Unix time. May be called at any interval. Returns
    /// the alarms that were raised or cleared by this call.
    pub fn observe(
        &mut self,
        now: Instant,
        now_s: u64,
        value: impl Fn(&str) -> Option<u64>,
    ) -> Vec<Alarm> {
        let mut changed = Vec::new();
        for (at, rule) in RULES.iter().enumerate() {
            let is_on = match rule.when {
                When::No(counter) => value(counter).map(|value| value == 0),
                When::Grows {
                    counters,
                    above,
                    over_s,
                } => {
                    let sum = counters.iter().filter_map(|name| value(name)).sum();
                    self.grew(at, now, sum, [above, over_s])
                }
            };
            if let Some(is_on) = is_on {
                changed.extend(self.set(rule, is_on, now_s));
            }
        }
        changed
    }

    /// Whether the counters of rule `at` grew too fast in the window that now ends; `None` while
    /// the window has not ended.
    fn grew(
        &mut self,
        at: usize,
        now: Instant,
        sum: u64,
        [above, over_s]: [u64; 2],
    ) -> Option<bool> {
        let window = &mut self.windows[at];
        let (began, before) = *window.get_or_insert((now, sum));
        let passed = now.since(began);
        if passed < Duration::from_secs(over_s) {
            return None;
        }
        *window = Some((now, sum));
        let grown = u128::from(sum.saturating_sub(before)) * 1_000_000_000;
        let allowed = u128::from(above) * u128::from(passed.as_nanos()) / u128::from(over_s);
        Some(grown > allowed)
    }

    fn set(&mut self, rule: &Rule, is_on: bool, now_s: u64) -> Option<Alarm> {
        let mut list = self.list.iter_mut();
        let is_same = |alarm: &&mut Alarm| {
            alarm.alarm_type_id == rule.kind && alarm.alarm_type_qualifier == rule.qualifier
        };
        let alarm = match list.find(is_same) {
            Some(alarm) if alarm.is_cleared != is_on => return None,
            Some(alarm) => alarm,
            None if !is_on => return None,
            None => {
                self.list.push(Alarm {
                    resource: self.resource.clone(),
                    alarm_type_id: rule.kind.to_owned(),
                    alarm_type_qualifier: rule.qualifier.to_owned(),
                    time_created: now_s,
                    is_cleared: false,
                    perceived_severity: rule.severity,
                    alarm_text: rule.text.to_owned(),
                    operator_state: OperatorState::None,
                    status_change: Vec::new(),
                });
                self.list.last_mut()?
            }
        };
        alarm.is_cleared = !is_on;
        if alarm.status_change.len() == CHANGES_MAX {
            alarm.status_change.remove(0);
        }
        alarm.status_change.push(StatusChange {
            time: now_s,
            is_cleared: !is_on,
        });
        Some(alarm.clone())
    }

    /// All alarms, in the order in which they were first raised.
    #[must_use]
    pub fn list(&self) -> &[Alarm] {
        &self.list
    }

    /// Removes alarms from the list, and returns how many. An alarm whose condition still holds is
    /// raised again.
    pub fn purge(&mut self, which: &Purge, now_s: u64) -> usize {
        let before = self.list.len();
        self.list.retain(|alarm| !which.concerns(alarm, now_s));
        before - self.list.len()
    }

    /// Removes all but the last change of each alarm of type `kind`; returns the number of these
    /// alarms.
    pub fn compress(&mut self, kind: &str) -> usize {
        let mut count = 0;
        for alarm in &mut self.list {
            if alarm.alarm_type_id == kind {
                let last = alarm.status_change.len().saturating_sub(1);
                alarm.status_change.drain(..last);
                count += 1;
            }
        }
        count
    }

    /// Sets the operator's state of the alarms of one type; `kind` is `TYPE` or `TYPE/QUALIFIER`.
    /// Returns the number of these alarms.
    pub fn set_operator_state(&mut self, kind: &str, state: OperatorState) -> usize {
        let (kind, qualifier) = match kind.split_once('/') {
            Some((kind, qualifier)) => (kind, Some(qualifier)),
            None => (kind, None),
        };
        let mut count = 0;
        for alarm in &mut self.list {
            let is_qualified =
                qualifier.is_none_or(|qualifier| qualifier == alarm.alarm_type_qualifier);
            if alarm.alarm_type_id == kind && is_qualified {
                alarm.operator_state = state;
                count += 1;
            }
        }
        count
    }
}

#[cfg(test)]
mod tests;
