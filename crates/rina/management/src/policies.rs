//! The policies of layer management, and their entries in the catalogue.

use alloc::boxed::Box;
use alloc::vec;

use carina_ipcp::policy::{Catalogue, Descriptor, PolicyError, component, live, param};
use carina_routing::Routing;
use carina_time::Duration;

use super::access_control::{AllowAll, BoxedAccess, List};
use super::addresses::{Blocks, BoxedAssignment, Draw, Sequential};
use super::entries::ENTRIES_MAX;
use super::qos::{BestFit, BoxedSelection, FirstFit};

/// Policy of component `directory`: where registrations are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectoryPolicy {
    /// Every member stores all registrations.
    Replicated,
    /// Two members, which follow from the name, store a registration; other members query them.
    OnDemand {
        /// How long an answer to a query is cached.
        cache_time: Duration,
        /// Largest number of registrations that a member stores as a home.
        names_max: usize,
    },
}

/// Policy of component `enrollment`: time limits and retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EnrollmentPolicy {
    /// Time limit of one step of an enrollment.
    pub step_timeout: Duration,
    /// Longest pause between two attempts to enroll.
    pub retry_max: Duration,
    /// Whether the member retries connections to neighbours that it has lost.
    pub reconnects: bool,
}

/// Adds the policies of layer management to a catalogue. A policy of the same name is replaced. The
/// first policy of a component remains its default, so a program can add its own before these.
pub fn describe(catalogue: &mut Catalogue) {
    routing(catalogue);
    addresses(catalogue);
    directory(catalogue);
    selection(catalogue);
    access(catalogue);
    enrollment(catalogue);
}

fn routing(catalogue: &mut Catalogue) {
    for (name, params) in carina_routing::policy::POLICIES {
        let params = params
            .iter()
            .map(|(name, default, help)| param(name, default, help))
            .collect();
        let help = match *name {
            "static" => "Takes routes from its parameters.",
            _ => "Every member knows all links and computes shortest paths.",
        };
        let name = *name;
        catalogue.register::<Box<dyn Routing>>(
            live(component::ROUTING, name, help, params),
            move |params| {
                carina_routing::policy::make(name, params.values()).map_err(PolicyError::Routing)
            },
        );
    }
}

fn addresses(catalogue: &mut Catalogue) {
    let place = component::ADDRESS_ASSIGNMENT;
    let help = "Each member has a block of `size` addresses, from `size` times its own address \
        on, and assigns these addresses to the IPCPs that it admits.";
    let size = param("size", "16", "Addresses in a block, 2 to 65536.");
    catalogue.register::<BoxedAssignment>(live(place, "blocks", help, vec![size]), |params| {
        Ok(Box::new(Blocks {
            size: params.uint("size", 2, 65_536)?,
        }))
    });
    let help = "Any address that no known member has.";
    catalogue
        .register::<BoxedAssignment>(live(place, "random", help, vec![]), |_| Ok(Box::new(Draw)));
    let help = "The lowest address that no known member has.";
    catalogue.register::<BoxedAssignment>(live(place, "sequential", help, vec![]), |_| {
        Ok(Box::new(Sequential))
    });
}

fn directory(catalogue: &mut Catalogue) {
    let place = component::DIRECTORY;
    let fixed = |name, help, params| Descriptor {
        is_live: false,
        ..live(place, name, help, params)
    };
    let help = "Every member knows all registrations.";
    catalogue.register(fixed("replicated", help, vec![]), |_| {
        Ok(DirectoryPolicy::Replicated)
    });
    let help = "Two members, chosen by a hash of the name, store a registration.";
    let cache = param(
        "cache-ms",
        "30000",
        "Time for which an answer is cached in ms, 0 to 3600000.",
    );
    let names = param(
        "names-max",
        "65536",
        "Most registrations that a member stores for others, 1 to 65536.",
    );
    catalogue.register(fixed("on-demand", help, vec![cache, names]), |params| {
        let cache_time = Duration::from_millis(params.uint("cache-ms", 0, 3_600_000)?);
        let names_max = params.uint("names-max", 1, ENTRIES_MAX as u64)? as usize;
        Ok(DirectoryPolicy::OnDemand {
            cache_time,
            names_max,
        })
    });
}

fn selection(catalogue: &mut Catalogue) {
    let place = component::QOS_SELECTION;
    let help = "Takes the first cube, in the DIF's order, that meets the specification.";
    catalogue.register::<BoxedSelection>(live(place, "first-fit", help, vec![]), |_| {
        Ok(Box::new(FirstFit))
    });
    let help = "Of the cubes that meet the specification, takes the one with the fewest further \
        guarantees.";
    catalogue.register::<BoxedSelection>(live(place, "best-fit", help, vec![]), |_| {
        Ok(Box::new(BestFit))
    });
}

fn access(catalogue: &mut Catalogue) {
    let place = component::ACCESS_CONTROL;
    let help = "Every IPCP and every application may do everything.";
    catalogue.register::<BoxedAccess>(live(place, "allow-all", help, vec![]), |_| {
        Ok(Box::new(AllowAll))
    });
    let help = "Lists of name patterns, separated by commas; `*` matches any characters.";
    let params = vec![
        param("join", "*", "IPCPs that may join or become neighbours."),
        param(
            "flows",
            "*>*",
            "FROM>TO: which applications may request flows to which applications of this member.",
        ),
        param(
            "write",
            "",
            "IPCPs that may change policies of this member.",
        ),
        param("expel", "", "IPCPs that may expel members."),
    ];
    catalogue.register::<BoxedAccess>(live(place, "list", help, params), |params| {
        Ok(Box::new(List::new(params)?))
    });
}

fn enrollment(catalogue: &mut Catalogue) {
    let place = component::ENROLLMENT;
    for (name, reconnects, help) in [
        (
            "reconnecting",
            true,
            "The member tries to reach a lost neighbour again, with growing pauses.",
        ),
        (
            "once",
            false,
            "The member does not try to reach a lost neighbour again.",
        ),
    ] {
        let params = vec![
            param(
                "step-ms",
                "10000",
                "Time limit in ms of each step of an enrollment (a request and its answer), 100 \
                 to 600000.",
            ),
            param(
                "retry-max-ms",
                "30000",
                "Longest pause in ms between two attempts to join the DIF or, with \
                 `reconnecting`, to reach a lost neighbour, 100 to 3600000.",
            ),
        ];
        catalogue.register(live(place, name, help, params), move |params| {
            Ok(EnrollmentPolicy {
                step_timeout: Duration::from_millis(params.uint("step-ms", 100, 600_000)?),
                retry_max: Duration::from_millis(params.uint("retry-max-ms", 100, 3_600_000)?),
                reconnects,
            })
        });
    }
}

impl Default for EnrollmentPolicy {
    fn default() -> EnrollmentPolicy {
        EnrollmentPolicy {
            step_timeout: Duration::from_secs(10),
            retry_max: Duration::from_secs(30),
            reconnects: true,
        }
    }
}

/// The policies of layer management that are in force.
pub(super) struct Policies {
    pub(super) access: BoxedAccess,
    pub(super) addresses: BoxedAssignment,
    pub(super) selection: BoxedSelection,
    pub(super) directory: DirectoryPolicy,
    pub(super) enrollment: EnrollmentPolicy,
}

impl Policies {
    /// Makes the policies that a configuration selects.
    ///
    /// # Errors
    /// The first policy that cannot be made.
    pub(super) fn make(
        catalogue: &Catalogue,
        config: &carina_ipcp::DifConfig,
    ) -> Result<Policies, PolicyError> {
        Ok(Policies {
            access: catalogue.make_for(component::ACCESS_CONTROL, config)?,
            addresses: catalogue.make_for(component::ADDRESS_ASSIGNMENT, config)?,
            selection: catalogue.make_for(component::QOS_SELECTION, config)?,
            directory: catalogue.make_for(component::DIRECTORY, config)?,
            enrollment: catalogue.make_for(component::ENROLLMENT, config)?,
        })
    }
}

/// True for components of layer management; the others belong to data transfer or the toolbox.
pub(super) fn is_own(component: &str) -> bool {
    [
        component::ROUTING,
        component::ADDRESS_ASSIGNMENT,
        component::DIRECTORY,
        component::QOS_SELECTION,
        component::ACCESS_CONTROL,
        component::ENROLLMENT,
    ]
    .contains(&component)
}
