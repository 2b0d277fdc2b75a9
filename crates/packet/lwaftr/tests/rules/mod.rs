//! A trial for each rule of the AFTR: captures in, captures out, as for `carina lwaftr check`, with
//! and without VLAN tags, on two interfaces and on a stick. tshark reads the frames that leave, and
//! all counters are compared by name.

mod cutting;
mod errors;
mod forwarding;
mod own;
mod tshark;

use std::collections::BTreeMap;

use carina_lwaftr::check::{
    Frames, Inputs, Ran, read_counters, read_frames, run, write_counters, write_frames,
};
use carina_lwaftr::counters::Counters;
use carina_wire::pcap::{file_header, record};

use self::tshark::Seen;
use crate::harness::*;

/// The rules that the AFTR must follow, by RFC 7596 (lw4o6), 7597 (ports), 2473 (tunnels), 6333
/// (MTU), 5508 (ICMP), 1812 and 4443 (errors), 791 and 8200 (fragments), 826 and 4861 (neighbours).
const RULES: [(u8, &str); 35] = [
    (1, "a softwire is an address, a PSID, a B4 and a BR address"),
    (2, "the PSID is k bits of the port behind a offset bits"),
    (3, "with a > 0 the lowest ports belong to no set"),
    (
        5,
        "of IPv6, protocols 4 and 58 count behind extension headers",
    ),
    (6, "a B4 sends from its softwire, else ICMPv6 1/5"),
    (7, "that error comes from the softwire's BR address"),
    (
        8,
        "what is taken out of a tunnel leaves by IPv4, a hop later",
    ),
    (9, "an address without softwire is unreachable, but to ICMP"),
    (10, "a damaged packet is dropped, padding is cut"),
    (11, "a packet without a hop left is answered by ICMPv4 11/0"),
    (12, "the outer header is that of the softwire"),
    (
        13,
        "the traffic class is the TOS octet; congestion is carried",
    ),
    (14, "ICMP can be refused, and must have a right checksum"),
    (15, "the port of a packet, of an echo, of an error"),
    (16, "no error about errors, groups, and what is no host"),
    (17, "errors quote as much as fits"),
    (
        18,
        "errors of ICMPv4 come from the own address, precedence 6",
    ),
    (19, "an error to an address of the table goes to its B4"),
    (20, "errors are limited, and can be switched off"),
    (
        21,
        "packets between softwires are turned around, if so configured",
    ),
    (22, "ICMPv6 errors from within tunnels become ICMPv4"),
    (23, "path MTUs towards B4s are learnt"),
    (
        24,
        "what is too long for a tunnel is cut outside, or answered",
    ),
    (25, "fragments of IPv6 are as long as fits"),
    (
        26,
        "fragments of IPv6 are put together before they are taken out",
    ),
    (27, "fragments of IPv4 are put together before the look-up"),
    (28, "fragments of IPv4 within tunnels too"),
    (29, "what is too long for the Internet is cut, or answered"),
    (30, "reassembly is bounded"),
    (31, "filters see whole packets without tags"),
    (32, "checksums of transports stay, those of IPv4 follow"),
    (33, "ARP is answered, the next hop is asked for"),
    (34, "neighbours are solicited, and solicitations answered"),
    (35, "echo requests to own addresses are answered"),
    (36, "frames of other VLANs and families are dropped"),
];

/// Frames to send through an AFTR, and the expected result.
pub(crate) struct Trial {
    rule: u8,
    what: &'static str,
    case: Case,
    /// Frames of another VLAN: whether they are internal, and their bytes without tag.
    stray: Vec<(bool, Vec<u8>)>,
    /// Whether to run only on a stick or only on two interfaces; `None` runs both.
    is_stick: Option<bool>,
    left: [Vec<String>; 2],
    counters: &'static str,
}

/// A trial of a rule with the frames of a case, which so far expects that nothing leaves.
pub(crate) fn trial(rule: u8, what: &'static str, case: Case) -> Trial {
    Trial {
        rule,
        what,
        case,
        stray: Vec::new(),
        is_stick: None,
        left: Default::default(),
        counters: "",
    }
}

impl Trial {
    /// Expects a frame towards the Internet, with these fields of tshark: `FIELD=VALUE`, by spaces.
    fn to4(mut self, fields: impl Into<String>) -> Trial {
        self.left[0].push(fields.into());
        self
    }

    /// Expects a frame towards the access network, with these fields of tshark.
    fn to6(mut self, fields: impl Into<String>) -> Trial {
        self.left[1].push(fields.into());
        self
    }

    /// Expects these values of the counters that are not 0: `NAME=VALUE`, without `-packets`.
    /// Leaves out the byte counters and the counters of packets that need no reassembly.
    fn counts(mut self, counters: &'static str) -> Trial {
        self.counters = counters;
        self
    }

    fn only_on(mut self, is_stick: bool) -> Trial {
        self.is_stick = Some(is_stick);
        self
    }

    fn with_stray(mut self, is_internal: bool, frame: Vec<u8>) -> Trial {
        self.stray.push((is_internal, frame));
        self
    }

    fn place(&self, variant: &Variant) -> String {
        format!("rule {}, {}, {variant:?}", self.rule, self.what)
    }

    fn run(&self, variant: &Variant) -> Ran {
        let file = |frames: &Frames, tag, is_internal| {
            let stray = self.stray.iter().filter(|stray| stray.0 == is_internal);
            let stray = stray.map(|(_, frame)| with_tag(frame, Some(STRAY)));
            let mut file = file_header(65_535).to_vec();
            let last = frames.last().map_or(0, |(time, _)| time.as_nanos());
            let first = frames.first().map_or(0, |(time, _)| time.as_nanos());
            assert_eq!(first, 0, "times count from the first frame of a file");
            let tagged = frames
                .iter()
                .map(|(time, frame)| (time.as_nanos(), with_tag(frame, tag)));
            for (time, frame) in tagged.chain(stray.map(|frame| (last, frame))) {
                file.extend(record(time, frame.len(), frame.len()));
                file.extend(frame);
            }
            read_frames(&file[..]).unwrap()
        };
        let inputs = Inputs {
            external: file(&self.case.external, variant.tags[0], false),
            internal: file(&self.case.internal, variant.tags[1], true),
            is_stick: variant.is_stick,
        };
        run(&self.case.loaded(variant.tags), self.case.rules, &inputs).unwrap()
    }

    /// Compares the frames that left with the expected ones; returns a text for each difference.
    fn differences(&self, variant: &Variant, side: usize, seen: &[Seen]) -> Vec<String> {
        let place = format!("{}, {}", self.place(variant), ["out4", "out6"][side]);
        let wanted = &self.left[side];
        if seen.len() != wanted.len() {
            let all: Vec<String> = seen.iter().map(Seen::text).collect();
            let (count, wanted) = (seen.len(), wanted.len());
            return vec![format!("{place}: {count} frames, not {wanted}: {all:#?}")];
        }
        let tag = variant.tags[side].map_or(String::new(), |tag| tag.to_string());
        let always = format!("eth.src=02:00:00:00:00:01 vlan.id={tag}");
        let mut differ = Vec::new();
        for (number, (seen, wanted)) in seen.iter().zip(wanted).enumerate() {
            let to_next = if wanted.contains("eth.dst=") {
                ""
            } else {
                "eth.dst=02:00:00:00:00:09"
            };
            let wrong = seen.differences(&format!("{always} {to_next} {wanted}"));
            differ.extend(
                wrong
                    .into_iter()
                    .map(|wrong| format!("{place}, frame {}: {wrong}", number + 1)),
            );
        }
        differ
    }

    fn judge_counters(&self, variant: &Variant, counted: &Counters) -> Vec<String> {
        let counted = read_counters(&write_counters(counted)).unwrap();
        let counted = counted.into_iter().filter(|(name, _)| {
            let each = ["-bytes", "-reassembly-unneeded", "-frag-not"];
            !each.iter().any(|end| name.ends_with(end)) && !name.starts_with("memuse-")
        });
        let known = Counters::names();
        let wanted = self.counters.split_whitespace().map(|word| {
            let (name, value) = word.split_once('=').unwrap();
            let packets = format!("{name}-packets");
            let name = if known.contains(&packets) {
                packets
            } else {
                name.to_owned()
            };
            assert!(known.contains(&name), "no counter {name}");
            (name, value.parse::<u64>().unwrap())
        });
        let (counted, wanted): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (counted.collect(), wanted.collect());
        if counted == wanted {
            Vec::new()
        } else {
            vec![format!(
                "{}: counters {counted:?}, not {wanted:?}",
                self.place(variant)
            )]
        }
    }
}

/// How an AFTR is connected: VLAN tags, and one or two interfaces.
#[derive(Clone, Copy, Debug)]
struct Variant {
    tags: [Option<u16>; 2],
    is_stick: bool,
}

const VARIANTS: [Variant; 4] = [
    Variant {
        tags: [None, None],
        is_stick: false,
    },
    Variant {
        tags: [None, None],
        is_stick: true,
    },
    Variant {
        tags: [Some(7), Some(4094)],
        is_stick: false,
    },
    Variant {
        tags: [Some(7), Some(8)],
        is_stick: true,
    },
];

/// A VLAN that neither side uses.
const STRAY: u16 = 99;

fn trials() -> Vec<Trial> {
    let all = [
        forwarding::trials(),
        errors::trials(),
        cutting::trials(),
        own::trials(),
    ];
    all.into_iter().flatten().collect()
}

#[test]
fn every_rule_has_a_trial() {
    let trials = trials();
    for (rule, what) in RULES {
        let count = trials.iter().filter(|trial| trial.rule == rule).count();
        assert!(count > 0, "rule {rule}: {what}");
    }
    let is_rule = |trial: &Trial| RULES.iter().any(|(rule, _)| *rule == trial.rule);
    assert!(trials.iter().all(is_rule));
}

#[test]
fn every_rule_is_kept_as_tshark_and_the_counters_say() {
    let trials = trials();
    let mut differ = Vec::new();
    // Counters exclude the tag, so they do not depend on how the AFTR is connected.
    let mut counted: BTreeMap<usize, Counters> = BTreeMap::new();
    for variant in VARIANTS {
        let is_run = |trial: &&Trial| {
            trial
                .is_stick
                .is_none_or(|is_stick| is_stick == variant.is_stick)
        };
        let ran: Vec<(&Trial, Ran)> = trials
            .iter()
            .filter(is_run)
            .map(|trial| (trial, trial.run(&variant)))
            .collect();
        let mut frames = Vec::new();
        for (_, ran) in &ran {
            frames.extend(ran.external.iter().chain(&ran.internal).cloned());
        }
        let Some(seen) = tshark::read(&write_frames(&frames)) else {
            return;
        };
        assert_eq!(seen.len(), frames.len(), "{variant:?}");
        let mut rest = &seen[..];
        for (number, (trial, ran)) in ran.iter().enumerate() {
            for (side, count) in [ran.external.len(), ran.internal.len()]
                .into_iter()
                .enumerate()
            {
                let (own, others) = rest.split_at(count);
                differ.extend(trial.differences(&variant, side, own));
                rest = others;
            }
            differ.extend(trial.judge_counters(&variant, &ran.counters));
            if trial.is_stick.is_none() && trial.stray.is_empty() {
                let place = trials
                    .iter()
                    .position(|candidate| std::ptr::eq(candidate, *trial));
                let first = counted.entry(place.unwrap_or(number));
                let first = first.or_insert_with(|| ran.counters.clone());
                assert_eq!(*first, ran.counters, "{}", trial.place(&variant));
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
