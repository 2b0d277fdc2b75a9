//! The policies of an rlite DIF that this member supports, and the names under which they are
//! configured here.
//!
//! | rlite's component | here | policies |
//! |---|---|---|
//! | `addralloc` | `address-assignment` | `distributed` (`nack-wait`), `static` (`address`) |
//! | `routing` | `routing` | `link-state`, `link-state-lfa` (both: `age-incr-intval`, `age-max`) |
//! | `dft` | `directory` | `fully-replicated` |

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use carina_ipcp::Cause;
use carina_ipcp::config::{DifConfig, PolicySpec};
use carina_ipcp::policy::{Catalogue, Descriptor, Param, component};
use carina_time::Duration;

/// Parameter that each member configures for itself; an enroller does not send it.
const ADDRESS: &str = "address";

/// Default of `nack-wait`: how long a member waits for objections to an address that it proposes.
const NACK_WAIT: Duration = Duration::from_secs(4);

/// Default of `age-max`: age at which a lower flow is removed.
const AGE_MAX: Duration = Duration::from_secs(900);

/// Default of `age-incr-intval`: step in which ages grow.
const AGE_STEP: Duration = Duration::from_secs(10);

/// A component of rlite: its name in rlite (`theirs`), its name in Carina (`here`), its policies
/// (the first is the default), and the parameters of its policies, each with a help text.
struct Component {
    theirs: &'static str,
    here: &'static str,
    policies: &'static [(&'static str, &'static str)],
    params: &'static [(&'static str, &'static str)],
}

/// The components, in the order in which an enroller sends them.
const COMPONENTS: [Component; 3] = [
    Component {
        theirs: "dft",
        here: component::DIRECTORY,
        policies: &[("fully-replicated", "Every member knows all registrations.")],
        params: &[],
    },
    Component {
        theirs: "routing",
        here: component::ROUTING,
        policies: &[
            ("link-state", "Every member knows all lower flows."),
            (
                "link-state-lfa",
                "Every member knows all lower flows, and computes loop-free \
                alternates.",
            ),
        ],
        params: &[
            (
                "age-incr-intval",
                "Interval at which members increase the ages of lower flows, \
                such as 10s.",
            ),
            (
                "age-max",
                "Age at which a lower flow is forgotten, such as 900s.",
            ),
        ],
    },
    Component {
        theirs: "addralloc",
        here: component::ADDRESS_ASSIGNMENT,
        policies: &[
            (
                "distributed",
                "The enroller draws an address at random; other members may object.",
            ),
            ("static", "Members are configured with their addresses."),
        ],
        params: &[
            (
                "nack-wait",
                "Time to wait for objections to an address, such as 1000ms (default: 4s).",
            ),
            (
                ADDRESS,
                "Address of this member under policy static (default: 1).",
            ),
        ],
    },
];

/// Adds rlite's policies to the catalogue of an IPCP.
pub(crate) fn describe(catalogue: &mut Catalogue) {
    for component in &COMPONENTS {
        for (name, help) in component.policies {
            let params = component.params.iter().map(|(name, help)| Param {
                name,
                default: "",
                help,
            });
            let descriptor = Descriptor {
                component: component.here,
                name,
                help,
                params: params.collect(),
                is_live: true,
            };
            catalogue.describe(descriptor, |params| {
                let mut given = params.values().iter();
                given
                    .try_for_each(|(name, value)| check_parameter(component, name, value))
                    .map_err(|error| carina_ipcp::policy::PolicyError::Refused(Cause::new(error)))
            });
        }
    }
}

/// Why a policy or parameter cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PolicyError {
    /// A DIF of rlite has no component of this name with policies.
    Component(String),
    /// In a DIF of rlite, the component has no policy of this name.
    Policy {
        component: &'static str,
        name: String,
        known: &'static [(&'static str, &'static str)],
    },
    /// In a DIF of rlite, the policies of the component have no parameter of this name.
    Parameter {
        component: &'static str,
        name: String,
    },
    /// The value of the parameter `address` is not a valid address.
    Address(String),
    /// Addresses are not configured in this DIF.
    AddressAssigned(String),
    /// The value of a parameter is not a duration.
    Duration {
        component: &'static str,
        name: String,
        value: String,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Component(name) => {
                write!(f, "component {name:?} has no policies in an rlite DIF")
            }
            PolicyError::Policy {
                component,
                name,
                known,
            } => {
                let known: Vec<&str> = known.iter().map(|policy| policy.0).collect();
                let known = known.join(", ");
                write!(
                    f,
                    "{component}: there is no policy {name:?} in an rlite DIF; there are: \
                     {known}"
                )
            }
            PolicyError::Parameter { component, name } => {
                write!(
                    f,
                    "{component}: there is no parameter {name:?} in an rlite DIF"
                )
            }
            PolicyError::Address(value) => write!(
                f,
                "{}: {ADDRESS} is {value:?}, which is no address from 1 to {}",
                component::ADDRESS_ASSIGNMENT,
                i32::MAX
            ),
            PolicyError::AddressAssigned(value) => write!(
                f,
                "{}: {ADDRESS} is {value}, but addresses are assigned; use the policy static",
                component::ADDRESS_ASSIGNMENT
            ),
            PolicyError::Duration {
                component,
                name,
                value,
            } => write!(
                f,
                "{component}: {name} is {value:?}, which is no duration such as 1000ms or 4s"
            ),
        }
    }
}

impl core::error::Error for PolicyError {}

/// The policies in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Policies {
    /// For each component, by rlite's name: its policy, and the parameters that were configured or
    /// received.
    chosen: BTreeMap<&'static str, PolicySpec>,
    /// The address configured for this member.
    address: Option<u64>,
}

impl Policies {
    /// The policies that a configuration selects, with rlite's defaults for the rest.
    ///
    /// # Errors
    /// A policy or parameter does not exist, or a value is invalid.
    pub(super) fn of(config: &DifConfig) -> Result<Policies, PolicyError> {
        let mut policies = Policies {
            chosen: BTreeMap::new(),
            address: None,
        };
        for component in &COMPONENTS {
            let mut spec = PolicySpec {
                name: component.policies[0].0.to_string(),
                params: BTreeMap::new(),
            };
            if let Some(configured) = config.policies.get(component.here) {
                let name = &configured.name;
                if !name.is_empty() {
                    check_policy(component, name)?;
                    spec.name.clone_from(name);
                }
                for (name, value) in &configured.params {
                    check_parameter(component, name, value)?;
                    if name == ADDRESS {
                        policies.address = address(value);
                    } else if !value.is_empty() {
                        spec.params.insert(name.clone(), value.clone());
                    }
                }
            }
            policies.chosen.insert(component.theirs, spec);
        }
        match policies.address {
            Some(address) if policies.assigns() => {
                Err(PolicyError::AddressAssigned(address.to_string()))
            }
            _ => Ok(policies),
        }
    }

    /// The address configured for this member; `None` without one, or if enrollers assign
    /// addresses.
    pub(super) fn configured_address(&self) -> Option<u64> {
        self.address.filter(|_| !self.assigns())
    }

    /// Sets a policy that the enroller sent.
    ///
    /// # Errors
    /// Why the policy cannot be used.
    pub(super) fn set_policy(&mut self, component: &str, name: &str) -> Result<(), PolicyError> {
        let component = find(component)?;
        check_policy(component, name)?;
        let spec = self.chosen.entry(component.theirs).or_default();
        spec.name = name.to_string();
        Ok(())
    }

    /// Sets a parameter that the enroller sent.
    ///
    /// # Errors
    /// Why the parameter cannot be used.
    pub(super) fn set_parameter(
        &mut self,
        component: &str,
        name: &str,
        value: &str,
    ) -> Result<(), PolicyError> {
        let component = find(component)?;
        if name == ADDRESS {
            let (component, name) = (component.here, name.to_string());
            return Err(PolicyError::Parameter { component, name });
        }
        check_parameter(component, name, value)?;
        let spec = self.chosen.entry(component.theirs).or_default();
        spec.params.insert(name.to_string(), value.to_string());
        Ok(())
    }

    /// The policies that an enroller sends: component and policy.
    pub(super) fn announced_policies(&self) -> Vec<(&'static str, String)> {
        let all = COMPONENTS.iter().filter_map(|component| {
            let spec = self.chosen.get(component.theirs)?;
            Some((component.theirs, spec.name.clone()))
        });
        all.collect()
    }

    /// The parameters that an enroller sends: component, parameter and value of those that are set.
    pub(super) fn announced_parameters(&self) -> Vec<(&'static str, String, String)> {
        let of = |component: &Component| {
            let spec = self.chosen.get(component.theirs)?;
            let params = spec.params.iter();
            Some((component.theirs, params))
        };
        let all = COMPONENTS
            .iter()
            .filter_map(of)
            .flat_map(|(theirs, params)| {
                params.map(move |(name, value)| (theirs, name.clone(), value.clone()))
            });
        all.collect()
    }

    /// The chosen policies, each with Carina's name of its component.
    pub(super) fn here(&self) -> Vec<(&'static str, PolicySpec)> {
        let all = COMPONENTS.iter().filter_map(|component| {
            let mut spec = self.chosen.get(component.theirs)?.clone();
            if component.here == component::ADDRESS_ASSIGNMENT
                && let Some(address) = self.configured_address()
            {
                spec.params.insert(ADDRESS.to_string(), address.to_string());
            }
            Some((component.here, spec))
        });
        all.collect()
    }

    /// True when enrollers assign addresses.
    pub(super) fn assigns(&self) -> bool {
        self.name("addralloc") == "distributed"
    }

    /// True when routes have loop-free alternates.
    pub(super) fn has_alternates(&self) -> bool {
        self.name("routing") == "link-state-lfa"
    }

    /// How long this member waits for objections to an address that it proposes.
    pub(super) fn nack_wait(&self) -> Duration {
        self.duration("addralloc", "nack-wait", NACK_WAIT)
    }

    /// Age at which a lower flow is removed.
    pub(super) fn age_max(&self) -> Duration {
        self.duration("routing", "age-max", AGE_MAX)
    }

    /// Step in which the ages of lower flows grow; at least a second.
    pub(super) fn age_step(&self) -> Duration {
        self.duration("routing", "age-incr-intval", AGE_STEP)
            .max(Duration::from_secs(1))
    }

    fn name(&self, component: &str) -> &str {
        let spec = self.chosen.get(component);
        spec.map_or("", |spec| spec.name.as_str())
    }

    fn duration(&self, component: &str, parameter: &str, default: Duration) -> Duration {
        let spec = self.chosen.get(component);
        let text = spec.and_then(|spec| spec.params.get(parameter));
        text.and_then(|text| duration(text)).unwrap_or(default)
    }
}

fn find(theirs: &str) -> Result<&'static Component, PolicyError> {
    let found = COMPONENTS
        .iter()
        .find(|candidate| candidate.theirs == theirs);
    found.ok_or_else(|| PolicyError::Component(theirs.to_string()))
}

fn check_policy(component: &Component, name: &str) -> Result<(), PolicyError> {
    if component.policies.iter().any(|policy| policy.0 == name) {
        return Ok(());
    }
    Err(PolicyError::Policy {
        component: component.here,
        name: name.to_string(),
        known: component.policies,
    })
}

fn check_parameter(component: &Component, name: &str, value: &str) -> Result<(), PolicyError> {
    let name_of = || name.to_string();
    if !component.params.iter().any(|param| param.0 == name) {
        return Err(PolicyError::Parameter {
            component: component.here,
            name: name_of(),
        });
    }
    if name == ADDRESS {
        return if value.is_empty() || address(value).is_some() {
            Ok(())
        } else {
            Err(PolicyError::Address(value.to_string()))
        };
    }
    if !value.is_empty() && duration(value).is_none() {
        return Err(PolicyError::Duration {
            component: component.here,
            name: name_of(),
            value: value.to_string(),
        });
    }
    Ok(())
}

/// Parses an address. A-DATA carries addresses as signed 32-bit numbers, which limits the range.
fn address(text: &str) -> Option<u64> {
    let address = text.parse::<u64>().ok()?;
    (1..=i32::MAX as u64).contains(&address).then_some(address)
}

/// Parses a duration as rlite writes it (`1000ms`, `4s`, `20000us`), of at most a day.
fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at(unit_at);
    let unit = match unit {
        "s" => Duration::from_secs(1),
        "ms" => Duration::from_millis(1),
        "us" => Duration::from_micros(1),
        _ => return None,
    };
    let nanoseconds = digits.parse::<u64>().ok()?.checked_mul(unit.as_nanos())?;
    let span = Duration::from_nanos(nanoseconds);
    (span <= Duration::from_secs(86_400)).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("1000ms"), Some(Duration::from_secs(1)));
        assert_eq!(duration("4s"), Some(Duration::from_secs(4)));
        assert_eq!(duration("20000us"), Some(Duration::from_millis(20)));
        for bad in ["", "4", "s", "4m", "-1s", "99999999999999999999s", "86401s"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn policies_that_cannot_be_followed_are_named() {
        let mut policies = Policies::of(&DifConfig::default()).expect("defaults");
        assert!(policies.assigns() && !policies.has_alternates());
        assert_eq!(policies.set_policy("routing", "link-state-lfa"), Ok(()));
        assert!(policies.has_alternates());
        let error = policies.set_policy("addralloc", "centralized-fault-tolerant");
        assert!(error.is_err_and(|error| error.to_string().contains("distributed, static")));
        let error = policies.set_parameter("addralloc", "nack-wait", "soon");
        assert!(error.is_err_and(|error| error.to_string().contains("1000ms")));
        assert_eq!(
            policies.set_parameter("addralloc", "nack-wait", "1s"),
            Ok(())
        );
        assert_eq!(policies.nack_wait(), Duration::from_secs(1));
        assert!(policies.set_policy("wine", "red").is_err());
    }

    #[test]
    fn own_address_is_configured_and_not_announced() {
        let configured = |policy: &str, address: &str| {
            let mut config = DifConfig::default();
            let spec = PolicySpec {
                name: policy.to_string(),
                params: [(ADDRESS.to_string(), address.to_string())].into(),
            };
            let component = component::ADDRESS_ASSIGNMENT.to_string();
            config.policies.insert(component, spec);
            Policies::of(&config).map_err(|error| error.to_string())
        };
        let mut policies = configured("static", "7").expect("an address");
        assert_eq!(policies.configured_address(), Some(7));
        assert_eq!(policies.announced_parameters(), []);
        let here = policies.here();
        assert!(
            here.iter()
                .any(|(_, spec)| spec.params.get(ADDRESS) == Some(&"7".to_string()))
        );
        assert!(policies.set_parameter("addralloc", ADDRESS, "9").is_err());
        // The enroller says that addresses are assigned.
        assert_eq!(policies.set_policy("addralloc", "distributed"), Ok(()));
        assert_eq!(policies.configured_address(), None);
        for (policy, address, words) in [
            ("static", "0", "from 1 to"),
            ("static", "4294967296", "from 1 to"),
            ("distributed", "7", "use the policy static"),
        ] {
            let error = configured(policy, address).expect_err(policy);
            assert!(error.contains(words), "{error}");
        }
    }
}
