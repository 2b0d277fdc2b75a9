//! The differences of a scenario in another dialect than native, and the reasons for them.
//!
//! Graph, cables, faults and calls of a seed are the same in all dialects, except for what the
//! rules of a dialect make impossible. All these exceptions are in this module.

use std::collections::BTreeMap;

use carina_ipcp::policy::component;
use carina_ipcp::{DifConfig, PolicySpec};
use carina_wire::dif::Dialect;

use crate::link::Profile;
use carina_random::{Random, mix};

/// Properties of a dialect that a scenario must respect.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    dialect: Dialect,
    /// Whether members retransmit lost management PDUs. If they do not, information arrives with
    /// the next refresh, a request for a flow fails, and a member may never learn that a flow has
    /// ended.
    pub repeats_management: bool,
    /// Whether a caller that gives up a request for a flow tells the called member, which may have
    /// accepted it.
    pub withdraws_requests: bool,
    /// Whether the message that ends a flow says if all SDUs written before were delivered.
    pub reports_failures: bool,
    /// Whether cables still lose PDUs after the last fault has been repaired.
    pub loses_in_peace: bool,
    /// By what factor faults last longer than in a DIF of the native dialect. Members of rlite and
    /// IRATI need more time: they count a neighbour as lost after three unanswered keep-alives,
    /// sent every 20 or 30 s.
    pub slowness: u64,
    /// Time without faults after which the faults must have no visible effect, in ns. It is longer
    /// than any retransmission lasts, and longer than members remember a silent member.
    pub settle_ns: u64,
    /// Interval at which members repeat unsolicited information, in ns. A member that missed a
    /// route learns it within this time.
    pub refresh_ns: u64,
    /// Time after which a closed flow must have left nothing behind, in ns.
    pub part_ns: u64,
    /// How checks and faults differ from those of native members, as text for people.
    pub restrictions: &'static [&'static str],
}

impl Terms {
    /// The properties of a dialect.
    #[must_use]
    pub fn of(dialect: Dialect) -> Terms {
        let native = Terms {
            dialect,
            repeats_management: true,
            withdraws_requests: true,
            reports_failures: true,
            loses_in_peace: true,
            slowness: 1,
            settle_ns: 100 * SECOND,
            refresh_ns: 30 * SECOND,
            part_ns: 60 * SECOND,
            restrictions: &[],
        };
        match dialect {
            // In rlite, a neighbour is lost after 3 keep-alives of 20 s and the wait for their
            // answer. A request is repeated after at most 30 s. A member repeats its own
            // information every 30 s. Addresses are compared every 10 s. M_DELETE of a flow names
            // it by the receiver's port-id, which the sender learns from the answer only; it cannot
            // carry a result, because rlite accepts no request with one.
            Dialect::Rlite => Terms {
                repeats_management: false,
                withdraws_requests: false,
                reports_failures: false,
                loses_in_peace: false,
                slowness: 4,
                settle_ns: 300 * SECOND,
                restrictions: &RLITE,
                ..native
            },
            // In IRATI, a neighbour is lost after 3 keep-alives of 30 s. Enrollment has steps of 10
            // s, three attempts, and the next ones 30 s later. Everything is announced again about
            // every 60 s. Connections end with MPL 60 s.
            Dialect::Irati => Terms {
                repeats_management: false,
                slowness: 4,
                settle_ns: 400 * SECOND,
                refresh_ns: 60 * SECOND,
                part_ns: 600 * SECOND,
                restrictions: &IRATI,
                ..native
            },
            _ => native,
        }
    }

    /// Adapts the cables of a seed to this dialect. If members cannot detect a damaged PDU, the
    /// cable drops it, as Ethernet would.
    #[must_use]
    pub fn cable(self, drawn: Profile) -> Profile {
        match self.dialect {
            Dialect::Native => drawn,
            _ => Profile {
                loss: drawn.loss + drawn.corruption,
                corruption: 0,
                ..drawn
            },
        }
    }

    /// The cables after the last fault has been repaired. If the loss of a few PDUs, such as
    /// keep-alives, could change the final state, the cables lose nothing.
    #[must_use]
    pub fn peace(self, profile: Profile) -> Profile {
        if self.loses_in_peace {
            return profile;
        }
        Profile {
            loss: 0,
            is_blocking: true,
            ..profile
        }
    }

    /// What members report when a flow ends. `loses`: cables may lose a PDU with such a report.
    #[must_use]
    pub(crate) fn flow_ends(self, config: &DifConfig, loses: bool) -> FlowEnds {
        let reliable = config.cubes.iter().filter(|cube| cube.retransmission);
        let patience_ms = reliable.map(|cube| cube.retransmit_ms).min();
        FlowEnds {
            are_sent_once: !self.repeats_management && loses,
            include_abandoned: self.withdraws_requests,
            report_failures: self.reports_failures,
            patience_ns: u64::from(patience_ms.unwrap_or_default()) * 1_000_000,
        }
    }

    /// Time within which `members` members must have joined, in ns.
    #[must_use]
    pub fn join_ns(self, members: u64) -> u64 {
        if self.repeats_management {
            60 * SECOND + 2 * SECOND * members
        } else {
            // Every attempt of every member has to succeed, one after another.
            600 * SECOND + 60 * SECOND * members
        }
    }

    /// Longest SDU of the calls, in bytes.
    #[must_use]
    pub fn sdu_max(self, config: &DifConfig, profile: &Profile) -> usize {
        let pdu_max = match config.max_pdu {
            0 => profile.mtu,
            max_pdu => profile.mtu.min(max_pdu as usize),
        };
        if config.fragments() {
            usize::MAX
        } else {
            config.sdu_in_one_pdu(self.dialect, pdu_max)
        }
    }

    /// Adapts the configuration of a seed to this dialect.
    #[must_use]
    pub fn config(
        self,
        seed: u64,
        members: usize,
        profile: &Profile,
        drawn: DifConfig,
    ) -> DifConfig {
        if self.dialect == Dialect::Native {
            return drawn;
        }
        let mut random = Random::new(mix(seed, 0xd1a_1ec7));
        let mut config = DifConfig::of_dialect(self.dialect);
        for component in [component::RMT_SCHEDULING, component::RMT_QUEUE] {
            if let Some(spec) = drawn.policies.get(component) {
                config.policies.insert(component.to_owned(), spec.clone());
            }
        }
        let (component, name, param) = match self.dialect {
            Dialect::Irati => {
                config.max_pdu = config.max_pdu.min(profile.mtu as u32);
                // Addresses are in an order that is independent of the order of joining.
                let first = random.within(1, 1_000);
                let entries: Vec<String> = (0..members as u64)
                    .map(|at| format!("m{at}={}", first + members as u64 - at))
                    .collect();
                let param = ("addresses", entries.join(","));
                (
                    component::ADDRESS_ASSIGNMENT,
                    "known-addresses",
                    Some(param),
                )
            }
            _ => {
                let name = *random.pick(&["link-state", "link-state-lfa"]);
                (component::ROUTING, name, None)
            }
        };
        let params = param.map(|(name, value)| (name.to_owned(), value));
        let spec = PolicySpec {
            name: name.to_owned(),
            params: params.into_iter().collect::<BTreeMap<_, _>>(),
        };
        config.policies.insert(component.to_owned(), spec);
        config
    }
}

/// What members report when a flow ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowEnds {
    /// A member sends each report once, and PDUs may be lost: the other end may not learn of the
    /// end.
    pub are_sent_once: bool,
    /// The called side learns that the caller has given up its request.
    pub include_abandoned: bool,
    /// Reports tell whether the flow failed. If they do not, the end of a flow that gave up
    /// undelivered SDUs, or whose member left the DIF, looks like a regular end.
    pub report_failures: bool,
    /// Shortest time for which a reliable flow retransmits an SDU before it gives up, in ns: the
    /// lowest R (`retransmit_ms`) of the DIF's reliable QoS cubes. 0: the DIF has none.
    pub patience_ns: u64,
}

impl Default for FlowEnds {
    fn default() -> FlowEnds {
        FlowEnds {
            are_sent_once: false,
            include_abandoned: true,
            report_failures: true,
            patience_ns: 0,
        }
    }
}

const RLITE: [&str; 9] = [
    "an SDU goes in one PDU: there is no delimiting, so a longer SDU is refused",
    "there is no SDU protection: a cable drops a damaged PDU",
    "management messages are not repeated: cables lose nothing after the repair",
    "M_DELETE of a flow is sent once: one end may stay open if M_DELETE, a route or a system was \
     lost",
    "a request without an answer is not withdrawn: the called end may stay open",
    "M_DELETE has no result: if the other end gave up an SDU after R, or left the DIF, the flow \
     seems to end normally",
    "a neighbour is lost after three keep-alives of 20 s: faults last four times as long, and no \
     fault occurs for 300 s before the checks",
    "addresses of 4 bytes, lifetime of 4 s, no concatenation, cubes best-effort and reliable",
    "a joining member learns the configuration; its RMT has the default policies",
];

const IRATI: [&str; 7] = [
    "an SDU goes in one PDU of at most 1470 bytes: there is no delimiting, so a longer SDU is \
     refused",
    "there is no SDU protection: a cable drops a damaged PDU",
    "requests are not repeated: if cables lose PDUs, new flows are tried in up to three rounds",
    "M_DELETE of a flow has no answer: one end may stay open if M_DELETE, a route or a system was \
     lost, as long as this end has nothing to write",
    "a neighbour is lost after three keep-alives of 30 s: faults last four times as long, and no \
     fault occurs for 400 s before the checks",
    "every member has the template with the addresses of all members",
    "addresses of 2 bytes, lifetime of 60 s, no concatenation, the two cubes of default.dif",
];

const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_scenarios_are_as_drawn() {
        let terms = Terms::of(Dialect::Native);
        let drawn = Profile {
            loss: 7,
            corruption: 5,
            ..Profile::clean()
        };
        assert_eq!(terms.cable(drawn), drawn);
        assert_eq!(terms.peace(drawn), drawn);
        let config = DifConfig::default();
        assert_eq!(terms.sdu_max(&config, &drawn), usize::MAX);
        assert_eq!(terms.config(1, 5, &drawn, config.clone()), config);
        assert!(terms.restrictions.is_empty());
    }

    #[test]
    fn ends_of_flows_say_what_the_dialect_has_room_for() {
        let ends = |dialect: Dialect| {
            let config = DifConfig::of_dialect(dialect);
            Terms::of(dialect).flow_ends(&config, true)
        };
        let says = |ends: FlowEnds| (ends.include_abandoned, ends.report_failures);
        assert_eq!(says(ends(Dialect::Native)), (true, true));
        assert_eq!(says(ends(Dialect::Irati)), (true, true));
        assert_eq!(says(ends(Dialect::Rlite)), (false, false));
        assert_eq!(ends(Dialect::Rlite).patience_ns, 10 * SECOND);
    }

    #[test]
    fn damage_becomes_loss_and_sdus_fit_in_a_pdu() {
        let drawn = Profile {
            loss: 7,
            corruption: 5,
            ..Profile::clean()
        };
        for (dialect, header) in [(Dialect::Rlite, 28), (Dialect::Irati, 19)] {
            let terms = Terms::of(dialect);
            let cable = terms.cable(drawn);
            assert_eq!((cable.loss, cable.corruption), (12, 0));
            let is_lossy = dialect == Dialect::Irati;
            assert_eq!(terms.peace(cable).loss > 0, is_lossy);
            let config = terms.config(1, 5, &cable, DifConfig::default());
            let max_pdu = if dialect == Dialect::Irati {
                1_470
            } else {
                1_500
            };
            assert_eq!(terms.sdu_max(&config, &cable), max_pdu - header);
        }
    }
}
