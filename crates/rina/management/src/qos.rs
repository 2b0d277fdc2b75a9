//! Selection of the QoS cube that serves a flow specification.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use carina_ipcp::config::{QosCube, WindowConfig};
use carina_wire::FlowSpec;

/// A policy of component `qos-selection`: chooses the QoS cube of a flow.
pub trait QosSelection: Send {
    /// Chooses one of the cubes that meet `spec`: returns an index into `cubes`. `cubes` is in the
    /// DIF's order and never empty.
    fn choose(&self, spec: &FlowSpec, cubes: &[&QosCube]) -> usize;
}

/// Policy that takes the first cube that meets the specification.
#[derive(Debug)]
pub(crate) struct FirstFit;

/// Policy that takes the cube that exceeds the specification least.
#[derive(Debug)]
pub(crate) struct BestFit;

impl QosSelection for FirstFit {
    fn choose(&self, _spec: &FlowSpec, _cubes: &[&QosCube]) -> usize {
        0
    }
}

impl QosSelection for BestFit {
    fn choose(&self, _spec: &FlowSpec, cubes: &[&QosCube]) -> usize {
        let capability = |cube: &QosCube| {
            let promises = [
                cube.retransmission,
                cube.in_order,
                cube.window.is_some() || cube.rate.is_some(),
                cube.max_delay_us != 0,
                cube.max_loss < FlowSpec::MAX_LOSS,
                cube.priority == 0,
            ];
            promises.into_iter().filter(|promise| *promise).count()
        };
        let least = cubes
            .iter()
            .enumerate()
            .min_by_key(|(_, cube)| capability(cube));
        least.map_or(0, |(index, _)| index)
    }
}

/// Error: no QoS cube of the DIF meets a flow specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpecificationUnmet {
    /// For each cube, its name and why it does not meet the specification.
    lacks: Vec<(String, &'static str)>,
}

impl fmt::Display for SpecificationUnmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no QoS cube of the DIF meets the specification (")?;
        for (index, (cube, what)) in self.lacks.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{cube}: {what}")?;
        }
        f.write_str(")")
    }
}

impl core::error::Error for SpecificationUnmet {}

/// Selects a QoS cube for a flow.
///
/// # Errors
/// No cube meets the specification.
pub(super) fn select<'a>(
    policy: &dyn QosSelection,
    cubes: &'a [QosCube],
    spec: &FlowSpec,
) -> Result<&'a QosCube, SpecificationUnmet> {
    let mut lacks = Vec::new();
    let mut fit: Vec<&QosCube> = Vec::new();
    for cube in cubes {
        match lack(cube, spec) {
            None => fit.push(cube),
            Some(what) => lacks.push((cube.name.clone(), what)),
        }
    }
    if fit.is_empty() {
        return Err(SpecificationUnmet { lacks });
    }
    let index = policy.choose(spec, &fit).min(fit.len() - 1);
    Ok(fit[index])
}

/// Why a cube does not meet a specification; `None` when it does.
fn lack(cube: &QosCube, spec: &FlowSpec) -> Option<&'static str> {
    // With retransmission, gaps are filled, unless the cube allows gaps up to a limit.
    let gap = if cube.retransmission {
        Some(cube.max_sdu_gap.unwrap_or(0))
    } else {
        cube.max_sdu_gap
    };
    let is_whole = cube.retransmission && gap == Some(0);
    // Without retransmission, a bound on gaps delays delivery but recovers nothing.
    let keeps_gap = match spec.max_sdu_gap {
        u64::MAX => true,
        wanted => gap.is_some_and(|gap| gap <= wanted) && (cube.retransmission || wanted > 0),
    };
    if !keeps_gap {
        return Some("SDUs may be missing");
    }
    if spec.in_order && !cube.in_order {
        return Some("no order");
    }
    let loss = if is_whole { 0 } else { cube.max_loss };
    if spec.max_loss < loss {
        return Some("too many SDUs may be lost");
    }
    if spec.max_delay_us != 0 && (cube.max_delay_us == 0 || cube.max_delay_us > spec.max_delay_us) {
        return Some("the requested delay is not guaranteed");
    }
    if spec.max_jitter_us != 0 && (cube.max_delay_us == 0 || cube.max_delay_us > spec.max_jitter_us)
    {
        return Some("the requested jitter is not guaranteed");
    }
    let is_stream = !spec.msg_boundaries;
    let keeps_streams = cube.in_order && is_whole;
    if is_stream && !keeps_streams {
        return Some("a stream needs order and no loss");
    }
    None
}

/// The cubes of a DIF whose configuration has none.
pub(super) fn standard_cubes() -> Vec<QosCube> {
    let cube = |id, name: &str| QosCube {
        ecn: true,
        ..QosCube::plain(id, name)
    };
    let window = Some(WindowConfig::default());
    alloc::vec![
        cube(1, "unreliable"),
        QosCube {
            in_order: true,
            window,
            ..cube(2, "unreliable-flow-control")
        },
        QosCube {
            in_order: true,
            retransmission: true,
            window,
            max_sdu_gap: Some(0),
            max_loss: 0,
            ..cube(3, "reliable")
        },
        QosCube {
            retransmission: true,
            window,
            max_sdu_gap: Some(0),
            max_loss: 0,
            ..cube(4, "reliable-unordered")
        },
        QosCube {
            priority: 0,
            max_delay_us: 10_000,
            ..cube(5, "low-delay")
        },
    ]
}

/// The cube of management channels: reliable, in order, highest priority. Its QoS-id, 0, is not
/// used by cubes of the DIF.
pub(super) fn channel_cube() -> QosCube {
    QosCube {
        in_order: true,
        retransmission: true,
        window: Some(WindowConfig {
            credit_max: 1024,
            initial_credit: 32,
        }),
        max_sdu_gap: Some(0),
        priority: 0,
        initial_a_ms: 10,
        max_loss: 0,
        ..QosCube::plain(0, "management")
    }
}

/// The type that the catalogue makes for component `qos-selection`.
pub(super) type BoxedSelection = Box<dyn QosSelection>;

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn name(policy: &dyn QosSelection, spec: FlowSpec) -> String {
        let cubes = standard_cubes();
        select(policy, &cubes, &spec)
            .map_or_else(|error| error.to_string(), |cube| cube.name.clone())
    }

    #[test]
    fn standard_cubes_meet_the_usual_specifications() {
        let unreliable = FlowSpec::unreliable();
        let in_order = FlowSpec {
            in_order: true,
            ..unreliable
        };
        let unordered = FlowSpec {
            in_order: false,
            ..FlowSpec::reliable()
        };
        let urgent = FlowSpec {
            max_delay_us: 20_000,
            ..unreliable
        };
        for policy in [&FirstFit as &dyn QosSelection, &BestFit] {
            assert_eq!(name(policy, unreliable), "unreliable");
            assert_eq!(name(policy, in_order), "unreliable-flow-control");
            assert_eq!(name(policy, FlowSpec::reliable()), "reliable");
            assert_eq!(name(policy, urgent), "low-delay");
        }
        assert_eq!(name(&FirstFit, unordered), "reliable");
        assert_eq!(name(&BestFit, unordered), "reliable-unordered");
    }

    #[test]
    fn a_cube_that_allows_gaps_is_not_reliable() {
        let tolerant = QosCube {
            in_order: true,
            retransmission: true,
            window: Some(WindowConfig::default()),
            max_sdu_gap: Some(3),
            max_loss: 100,
            ..QosCube::plain(1, "tolerant")
        };
        let cubes = [tolerant];
        let refusal = |spec: FlowSpec| {
            let chosen = select(&FirstFit, &cubes, &spec);
            chosen.err().map(|error| error.to_string())
        };
        let error = refusal(FlowSpec::reliable());
        assert!(error.is_some_and(|text| text.contains("SDUs may be missing")));
        let tolerated = FlowSpec {
            max_sdu_gap: 3,
            max_loss: 100,
            ..FlowSpec::reliable()
        };
        assert_eq!(refusal(tolerated), None);
        let fewer = FlowSpec {
            max_loss: 99,
            ..tolerated
        };
        let error = refusal(fewer);
        assert!(error.is_some_and(|text| text.contains("too many SDUs may be lost")));
        let stream = FlowSpec {
            msg_boundaries: false,
            ..tolerated
        };
        assert!(refusal(stream).is_some());
    }

    #[test]
    fn an_unmet_specification_is_refused_with_all_lacks() {
        let spec = FlowSpec {
            max_delay_us: 20_000,
            ..FlowSpec::reliable()
        };
        let error = name(&FirstFit, spec);
        assert!(
            error.contains("reliable: the requested delay is not guaranteed"),
            "{error}"
        );
        assert!(error.contains("low-delay: SDUs may be missing"), "{error}");
    }
}
