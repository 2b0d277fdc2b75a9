//! Parameters of routing policies: how they are parsed, and the parameters of `link-state`.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::str::FromStr;

use carina_time::Duration;

use crate::compute::Paths;
use crate::database::Limits;
use crate::error::RoutingError;
use crate::message::Address;

/// Parameters of `link-state`: name, default and meaning.
pub(crate) const PARAMETERS: &[(&str, &str, &str)] = &[
    ("ecmp", "true", "spread load over paths of equal cost"),
    (
        "max_paths",
        "8",
        "most next hops for one destination, 1 to 64",
    ),
    ("lfa", "true", "compute loop-free alternates"),
    (
        "delay_ms",
        "10",
        "time in ms to wait for further changes before computing routes; changes of own links do \
         not wait",
    ),
    (
        "hold_ms",
        "100",
        "shortest time in ms between two computations of routes",
    ),
    (
        "max_age_s",
        "900",
        "age in seconds at which a member deletes an object (a member's report about one of its \
         links) from its link-state database, 1 to 86400",
    ),
    (
        "refresh_s",
        "300",
        "age in seconds at which a member sends its own objects again; at most half of max_age_s",
    ),
    (
        "sync_s",
        "60",
        "interval in seconds at which neighbours compare digests of their link-state databases; \
         0: only when a link comes up",
    ),
    (
        "max_objects",
        "65536",
        "most objects in the link-state database, 16 or more",
    ),
    ("batch", "32", "most objects in one message, 1 to 1000"),
];

/// The parameters of `link-state`, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// Which next hops are computed for each destination.
    pub paths: Paths,
    /// Limits of the database of links.
    pub limits: Limits,
    /// Time from a change of a link until the routes are computed again.
    pub delay: Duration,
    /// Shortest time between two computations.
    pub hold: Duration,
    /// Interval between comparisons of databases; `None` for no comparisons.
    pub sync: Option<Duration>,
    /// Largest number of objects in a message.
    pub batch: usize,
}

impl Parameters {
    /// Parses the parameters of `link-state`.
    ///
    /// # Errors
    /// A parameter is unknown or its value is invalid.
    pub(crate) fn parse(params: &BTreeMap<String, String>) -> Result<Parameters, RoutingError> {
        check_names(params, PARAMETERS)?;
        let number = |name, min, max| bounded(params, name, min, max);
        let has_ecmp: bool = value(params, PARAMETERS, "ecmp")?;
        let max_paths = number("max_paths", 1, 64)? as usize;
        let age_s = number("max_age_s", 1, 86_400)?;
        let refresh_s = number("refresh_s", 1, 86_400);
        // If only `max_age_s` is given, the default of `refresh_s` is lowered to match.
        let refresh_s = if params.contains_key("refresh_s") {
            refresh_s?
        } else {
            refresh_s?.min((age_s / 3).max(1))
        };
        if refresh_s * 2 > age_s && age_s > 1 {
            return Err(RoutingError::Refresh {
                refresh_s,
                max_age_s: age_s,
            });
        }
        Ok(Parameters {
            paths: Paths {
                max: if has_ecmp { max_paths } else { 1 },
                has_alternates: value(params, PARAMETERS, "lfa")?,
            },
            limits: Limits {
                objects: number("max_objects", 16, 1 << 24)? as usize,
                age: Duration::from_secs(age_s),
                refresh: Duration::from_secs(refresh_s),
            },
            delay: Duration::from_millis(number("delay_ms", 0, 60_000)?),
            hold: Duration::from_millis(number("hold_ms", 0, 60_000)?),
            sync: Some(number("sync_s", 0, 86_400)?)
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
            batch: number("batch", 1, 1000)? as usize,
        })
    }

    /// Interval at which expired objects are removed.
    pub(crate) fn sweep(&self) -> Duration {
        Duration::from_millis((self.limits.age.as_millis() / 16).clamp(100, 10_000))
    }
}

fn bounded(
    params: &BTreeMap<String, String>,
    parameter: &'static str,
    min: u64,
    max: u64,
) -> Result<u64, RoutingError> {
    let number: u64 = value(params, PARAMETERS, parameter)?;
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    Err(RoutingError::Range {
        parameter,
        value: number,
        min,
        max,
    })
}

/// Parses the parameter `name`, or its default from `table`.
///
/// # Errors
/// The value cannot be parsed.
pub(crate) fn value<T: FromStr>(
    params: &BTreeMap<String, String>,
    table: &[(&'static str, &str, &'static str)],
    name: &str,
) -> Result<T, RoutingError> {
    let row = table.iter().find(|row| row.0 == name);
    let (parameter, default, meaning) = *row.expect("only parameters in the table are asked for");
    let text = params.get(name).map_or(default, String::as_str);
    let parsed = text.trim().parse();
    parsed.map_err(|_| RoutingError::Value {
        parameter,
        value: text.into(),
        meaning,
    })
}

/// Checks that all parameters exist.
///
/// # Errors
/// A parameter is not in `table`.
pub(crate) fn check_names(
    params: &BTreeMap<String, String>,
    table: &[(&str, &str, &str)],
) -> Result<(), RoutingError> {
    let unknown = params
        .keys()
        .find(|name| !table.iter().any(|row| row.0 == *name));
    match unknown {
        Some(name) => Err(RoutingError::UnknownParameter(name.clone())),
        None => Ok(()),
    }
}

/// Parses the address of a member.
///
/// # Errors
/// The text is not an address.
pub(crate) fn address(text: &str) -> Result<Address, RoutingError> {
    match text.parse() {
        Ok(0) | Err(_) => Err(RoutingError::Address(text.into())),
        Ok(address) => Ok(address),
    }
}
