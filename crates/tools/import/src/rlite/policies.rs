//! Translates policies and parameters of rlite's components.

use serde_json::{Value, json};

use super::number;
use crate::Member;
use crate::error::Reason;

/// The parameters of each component of rlite.
const PARAMETERS: [(&str, &[&str]); 7] = [
    ("addralloc", &["nack-wait", "replicas", "cli-timeout"]),
    ("dft", &["replicas", "cli-timeout"]),
    ("routing", &["age-incr-intval", "age-max"]),
    (
        "enrollment",
        &["timeout", "keepalive", "keepalive-thresh", "auto-reconnect"],
    ),
    (
        "flowalloc",
        &[
            "force-flow-control",
            "max-rtxq-len",
            "initial-rtx-timeout",
            "initial-a",
            "initial-credit",
            "max-cwq-len",
        ],
    ),
    (
        "resalloc",
        &["reliable-flows", "reliable-n-flows", "broadcast-enroller"],
    ),
    ("ribd", &["refresh-intval"]),
];

/// The component of Carina that corresponds to a component of rlite.
fn component_here(theirs: &str) -> Result<&'static str, Reason> {
    match theirs {
        "addralloc" => Ok("address-assignment"),
        "dft" => Ok("directory"),
        "routing" => Ok("routing"),
        "enrollment" | "flowalloc" | "resalloc" | "ribd" => {
            Err(format!("{theirs} has only one policy, default").into())
        }
        _ => Err(format!(
            "{theirs} is not a component; the components are addralloc, dft, routing, enrollment, \
             flowalloc, resalloc, ribd"
        )
        .into()),
    }
}

/// Translates the choice of a policy for a component.
pub(super) fn choose(member: &mut Member, component: &str, policy: &str) -> Result<(), Reason> {
    // Every member of this dialect has these default policies.
    if policy == "default" && ["enrollment", "flowalloc", "resalloc", "ribd"].contains(&component) {
        return Ok(());
    }
    let here = component_here(component)?;
    let known: &[&str] = match component {
        "addralloc" => &["distributed", "static"],
        "dft" => &["fully-replicated"],
        _ => &["link-state", "link-state-lfa"],
    };
    if !known.contains(&policy) {
        return Err(format!(
            "{component} {policy} does not exist in DIFs of this dialect; available: {}",
            known.join(", ")
        )
        .into());
    }
    let spec = member.table(&["policies", here]);
    spec.insert("name".to_owned(), policy.into());
    Ok(())
}

/// Sets the address of a member, for a DIF that does not assign addresses.
///
/// # Errors
/// The DIF assigns addresses.
pub(super) fn set_address(member: &mut Member, address: u64) -> Result<(), &'static str> {
    let policies = member.config.get("policies");
    let name = policies.and_then(|all| all.get("address-assignment")?.get("name"));
    if name != Some(&"static".into()) {
        return Err(
            "addresses are assigned: the first member has 1, others get theirs at enrollment; with \
             `dif-policy-mod DIF addralloc static` they are configured",
        );
    }
    let params = member.table(&["policies", "address-assignment", "params"]);
    params.insert("address".to_owned(), address.to_string().into());
    Ok(())
}

/// Translates a parameter of a component.
pub(super) fn set(
    member: &mut Member,
    component: &str,
    key: &str,
    value: &str,
) -> Result<(), Reason> {
    match (component, key) {
        ("addralloc", "nack-wait") | ("routing", "age-incr-intval" | "age-max") => {
            let value = duration(value)?;
            let here = component_here(component)?;
            let usual = if component == "routing" {
                "link-state"
            } else {
                "distributed"
            };
            let spec = member.table(&["policies", here]);
            spec.entry("name").or_insert_with(|| usual.into());
            let spec = member.table(&["policies", here, "params"]);
            spec.insert(key.to_owned(), value.into());
            Ok(())
        }
        ("enrollment", "keepalive") => {
            let ms = positive(
                fitting(milliseconds(value)?, value)?,
                "keep-alives are always sent",
            )?;
            member.config.insert("keepalive_ms".to_owned(), ms.into());
            Ok(())
        }
        ("flowalloc", "initial-a") => {
            let ms = fitting(milliseconds(value)?, value)?;
            change_cubes(member, |cube| {
                drop(cube.insert("initial_a_ms".to_owned(), ms.into()))
            });
            Ok(())
        }
        ("flowalloc", "initial-credit") => {
            let credit: u32 = positive(number(value)?, "a window of 0 PDUs lets none pass")?;
            change_cubes(member, |cube| {
                let window = json!({ "credit_max": credit, "initial_credit": credit });
                cube.insert("window".to_owned(), window);
            });
            Ok(())
        }
        ("flowalloc", "initial-rtx-timeout") => {
            // A PDU is retransmitted for ten times this interval.
            let ms = fitting(milliseconds(value)?.saturating_mul(10), value)?;
            let ms = positive(ms, "a lost PDU is sent again for some time")?;
            change_cubes(member, |cube| {
                drop(cube.insert("retransmit_ms".to_owned(), ms.into()))
            });
            Ok(())
        }
        _ => Err(why_not(component, key).into()),
    }
}

fn why_not(component: &str, key: &str) -> String {
    let why = match (component, key) {
        ("enrollment", "timeout") => "how long an enrollment may take is fixed",
        ("enrollment", "keepalive-thresh") => "three missed signs of life are always a loss",
        ("enrollment", "auto-reconnect") => "lost neighbours are always asked again",
        ("flowalloc", "force-flow-control") => "ask for a flow specification that needs it",
        ("flowalloc", "max-rtxq-len" | "max-cwq-len") => {
            "queues are bounded by the window and by memory"
        }
        ("resalloc", "reliable-flows" | "reliable-n-flows") => {
            "management travels in the same N-1 flow as data"
        }
        ("resalloc", "broadcast-enroller") => {
            "a member is always registered under the name of its DIF too"
        }
        ("ribd", "refresh-intval") => "how often entries are renewed is fixed",
        ("addralloc" | "dft", "replicas" | "cli-timeout") => {
            "the directory and the addresses of this dialect are replicated at all members"
        }
        ("routing", "age-incr-max") => "age-max is meant",
        _ => {
            let known = PARAMETERS.iter().find(|(name, _)| *name == component);
            return match known {
                Some((_, known)) => crate::no_such_key(component, "parameter", key, known),
                None => component_here(component)
                    .err()
                    .map_or_else(String::new, Reason::into),
            };
        }
    };
    why.to_owned()
}

/// Changes the reliable one of the dialect's two default cubes. Both are first written into the
/// member's configuration.
fn change_cubes(member: &mut Member, change: impl Fn(&mut serde_json::Map<String, Value>)) {
    let usual = carina_ipcp::DifConfig::of_dialect(carina_wire::dif::Dialect::Rlite);
    let cubes = member
        .config
        .entry("cubes")
        .or_insert_with(|| serde_json::to_value(usual.cubes).unwrap_or_default());
    for cube in cubes.as_array_mut().into_iter().flatten() {
        if let Some(cube) = cube.as_object_mut()
            && cube.get("retransmission") == Some(&Value::Bool(true))
        {
            change(cube);
        }
    }
}

/// Checks that a time in milliseconds fits into a configuration.
fn fitting(ms: u64, text: &str) -> Result<u32, Reason> {
    u32::try_from(ms).map_err(|_| format!("{text} is too long; must be at most 49 days").into())
}

/// Refuses the value 0; `why` is the reason for the note.
fn positive(value: u32, why: &str) -> Result<u32, Reason> {
    match value {
        0 => Err(format!("0 is not allowed: {why}").into()),
        _ => Ok(value),
    }
}

/// Converts a time to the form of policy parameters in this dialect.
fn duration(text: &str) -> Result<String, Reason> {
    match milliseconds(text)? {
        0..=DAY_MS => {}
        _ => return Err(format!("{text} is too long; must be at most a day").into()),
    }
    let has_unit = ["s", "ms", "us"].contains(&unit_of(text));
    if has_unit {
        Ok(text.to_owned())
    } else {
        Ok(format!("{}ms", milliseconds(text)?))
    }
}

const DAY_MS: u64 = 86_400_000;

/// The letters behind the digits of a time.
fn unit_of(text: &str) -> &str {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    &text[digits.len()..]
}

/// Parses a time such as `1000ms`, `20s` or `20000us`; without a unit it is in milliseconds.
fn milliseconds(text: &str) -> Result<u64, Reason> {
    let unit = unit_of(text);
    let count: u64 = number(&text[..text.len() - unit.len()])?;
    match unit {
        "" | "ms" => Ok(count),
        "s" => Ok(count.saturating_mul(1000)),
        "us" => Ok(count / 1000),
        "ns" => Ok(count / 1_000_000),
        unit => Err(format!("{unit:?} is not a unit of time; the units are s, ms, us, ns").into()),
    }
}
