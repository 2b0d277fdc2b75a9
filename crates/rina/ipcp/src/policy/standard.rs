//! The standard policies of data transfer.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use carina_efcp::delimiting::Delimiting;
use carina_efcp::{CongestionControl, ParamInfo, PolicyInfo, RttEstimator, congestion, rtt};

use super::{
    Catalogue, Descriptor, Ecmp, EcnMark, Fifo, ForwardingPolicy, Param, Params, PolicyError,
    QueuePolicy, Red, Scheduler, Single, Spread, StrictPriority, TailDrop, WeightedFair, component,
    live, param,
};

impl Catalogue {
    /// The standard policies of data transfer. Layer management and the toolbox add theirs when an
    /// IPCP is made.
    #[must_use]
    pub fn standard() -> Catalogue {
        let mut catalogue = Catalogue::empty();
        scheduling(&mut catalogue);
        queueing(&mut catalogue);
        forwarding(&mut catalogue);
        efcp(&mut catalogue);
        catalogue
    }
}

fn scheduling(catalogue: &mut Catalogue) {
    let mut add =
        |name, help, params, make: fn(&Params) -> Result<Box<dyn Scheduler>, PolicyError>| {
            catalogue.register(live(component::RMT_SCHEDULING, name, help, params), make);
        };
    add(
        "strict-priority",
        "Serves the most urgent class first (cube field `priority`); classes of equal priority \
         in order of arrival.",
        vec![],
        |_| Ok(Box::new(StrictPriority)),
    );
    add(
        "fifo",
        "Serves PDUs in the order of their arrival.",
        vec![],
        |_| Ok(Box::new(Fifo)),
    );
    add(
        "weighted-fair",
        "Deficit round robin: classes share the bytes by the `weight` of their cubes.",
        vec![param(
            "quantum",
            "2048",
            "Bytes that weight 1 gets in each round, 256 to 65536.",
        )],
        |params| {
            let quantum = params.uint("quantum", 256, 65_536)?;
            Ok(Box::new(WeightedFair::new(to_u32(quantum))))
        },
    );
}

#[expect(
    clippy::too_many_lines,
    reason = "a table of policies and their parameters"
)]
fn queueing(catalogue: &mut Catalogue) {
    let mut add =
        |name, help, own, make: fn(&Params) -> Result<Box<dyn QueuePolicy>, PolicyError>| {
            let mut params = vec![
                param(
                    "limit-pdus",
                    "4096",
                    "Longest queue of a class in PDUs, 2 to 1000000.",
                ),
                param(
                    "limit-bytes",
                    "4194304",
                    "Longest queue of a class in bytes, 4096 to 2^32.",
                ),
                param(
                    "own-pdus",
                    "128",
                    "Queue length of a class in PDUs at which this member's own flows wait, 1 \
                     to 1000000.",
                ),
                param(
                    "own-bytes",
                    "262144",
                    "Queue length of a class in bytes at which this member's own flows wait, \
                     1024 to 2^32.",
                ),
            ];
            params.extend::<Vec<Param>>(own);
            catalogue.register(live(component::RMT_QUEUE, name, help, params), make);
        };
    add(
        "ecn-mark",
        "Marks PDUs that arrive at a queue above a threshold, and drops them when the queue is full.",
        vec![
            param(
                "mark-pdus",
                "64",
                "Queue length in PDUs at which marking starts, 1 to 1000000.",
            ),
            param(
                "mark-bytes",
                "131072",
                "Queue length in bytes at which marking starts, 1 to 2^32.",
            ),
        ],
        |params| {
            Ok(Box::new(EcnMark {
                mark_pdus: to_u32(params.uint("mark-pdus", 1, 1_000_000)?),
                mark_bytes: params.uint("mark-bytes", 1, 1 << 32)?,
                full: full(params)?,
            }))
        },
    );
    add(
        "tail-drop",
        "Drops PDUs that arrive at a full queue.",
        vec![],
        |params| Ok(Box::new(full(params)?)),
    );
    add(
        "red",
        "Random early detection: marks or drops more PDUs as the average queue grows.",
        vec![
            param(
                "least",
                "32",
                "Average queue length in PDUs from which on some arriving PDUs are marked or \
                 dropped, 1 to 1000000.",
            ),
            param(
                "most",
                "256",
                "Average queue length in PDUs from which on every arriving PDU is marked or \
                 dropped, 2 to 1000000.",
            ),
            param(
                "share",
                "1000",
                "Share of arriving PDUs that are marked or dropped when the average is just below \
                 `most`, in 1/10000.",
            ),
            param(
                "shift",
                "6",
                "N from 0 to 16: the queue length at each arriving PDU has weight 1/2^N in the \
                 average.",
            ),
        ],
        |params| {
            let least = to_u32(params.uint("least", 1, 1_000_000)?);
            Ok(Box::new(Red::new(
                least,
                to_u32(params.uint("most", u64::from(least) + 1, 1_000_000)?),
                to_u32(params.uint("share", 0, 10_000)?),
                to_u32(params.uint("shift", 0, 16)?),
                full(params)?,
            )))
        },
    );
}

fn forwarding(catalogue: &mut Catalogue) {
    let mut add =
        |name, help, make: fn(&Params) -> Result<Box<dyn ForwardingPolicy>, PolicyError>| {
            let params = vec![param(
                "multi-homing",
                "flow",
                "How to choose among several N-1 flows to a neighbour: `flow` or `least-queue`.",
            )];
            catalogue.register(live(component::FORWARDING, name, help, params), make);
        };
    add(
        "ecmp",
        "Spreads connections over all next hops of equal cost; each connection keeps its path.",
        |params| {
            Ok(Box::new(Ecmp {
                spread: spread(params)?,
            }))
        },
    );
    add(
        "single",
        "Sends all PDUs to the first next hop.",
        |params| {
            Ok(Box::new(Single {
                spread: spread(params)?,
            }))
        },
    );
}

/// The policies of EFCP and of delimiting.
fn efcp(catalogue: &mut Catalogue) {
    for info in congestion::list() {
        let name = info.name;
        catalogue.register::<Box<dyn CongestionControl>>(
            described(component::CONGESTION_CONTROL, info, true),
            move |params| congestion::by_name(name, params.values()).map_err(PolicyError::Efcp),
        );
    }
    for info in rtt::list() {
        let name = info.name;
        catalogue.register::<Box<dyn RttEstimator>>(
            described(component::RTT_ESTIMATION, info, true),
            move |params| rtt::by_name(name, params.values()).map_err(PolicyError::Efcp),
        );
    }
    for (name, help, is_on) in [
        ("none", "PDUs have no checksum.", false),
        (
            "inet",
            "The Internet checksum (RFC 1071); only in rlite DIFs.",
            true,
        ),
    ] {
        let info = PolicyInfo {
            name,
            help,
            params: &[],
        };
        let descriptor = described(component::PCI_CHECKSUM, &info, false);
        catalogue.register::<bool>(descriptor, move |_| Ok(is_on));
    }
    for info in Delimiting::list() {
        let name = info.name;
        // Existing flows keep their delimiting.
        catalogue.register::<Delimiting>(
            described(component::DELIMITING, info, false),
            move |params| Delimiting::by_name(name, params.values()).map_err(PolicyError::Efcp),
        );
    }
}

fn described(component: &'static str, info: &PolicyInfo, is_live: bool) -> Descriptor {
    let own = |&ParamInfo {
                   name,
                   default,
                   help,
               }: &ParamInfo| param(name, default, help);
    Descriptor {
        component,
        name: info.name,
        help: info.help,
        params: info.params.iter().map(own).collect(),
        is_live,
    }
}

fn full(params: &Params) -> Result<TailDrop, PolicyError> {
    Ok(TailDrop {
        pdus: to_u32(params.uint("limit-pdus", 2, 1_000_000)?),
        bytes: params.uint("limit-bytes", 4096, 1 << 32)?,
        own_pdus: to_u32(params.uint("own-pdus", 1, 1_000_000)?),
        own_bytes: params.uint("own-bytes", 1024, 1 << 32)?,
    })
}

fn spread(params: &Params) -> Result<Spread, PolicyError> {
    let index = params.one_of("multi-homing", &["flow", "least-queue"])?;
    Ok([Spread::Flow, Spread::LeastQueue][index])
}

/// Converts a value that the caller has already checked to be small.
fn to_u32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PolicySpec;

    #[test]
    fn every_standard_policy_can_be_made_with_its_defaults() {
        let catalogue = Catalogue::standard();
        for component in catalogue.components() {
            let policies: Vec<_> = catalogue.policies(component).collect();
            assert!(policies.len() >= 2, "{component}");
            for policy in policies {
                let spec = PolicySpec {
                    name: policy.name.into(),
                    ..PolicySpec::default()
                };
                let made = match component {
                    component::RMT_SCHEDULING => is_made::<Box<dyn Scheduler>>(component, &spec),
                    component::RMT_QUEUE => is_made::<Box<dyn QueuePolicy>>(component, &spec),
                    component::FORWARDING => is_made::<Box<dyn ForwardingPolicy>>(component, &spec),
                    component::CONGESTION_CONTROL => {
                        is_made::<Box<dyn CongestionControl>>(component, &spec)
                    }
                    component::RTT_ESTIMATION => is_made::<Box<dyn RttEstimator>>(component, &spec),
                    component::PCI_CHECKSUM => is_made::<bool>(component, &spec),
                    component::DELIMITING => is_made::<Delimiting>(component, &spec),
                    other => panic!("{other} is not tested"),
                };
                assert!(made, "{component} {}", policy.name);
            }
        }
    }

    fn is_made<T: 'static>(component: &str, spec: &PolicySpec) -> bool {
        Catalogue::standard().make::<T>(component, spec).is_ok()
    }
}
