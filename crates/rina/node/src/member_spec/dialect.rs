//! Differences between dialects that matter for creating a member: defaults, limits, and the names
//! of members in the N-1 DIFs.

use std::collections::BTreeMap;

use carina_api::AppName;
use carina_api::control::{Dialect, DifRole};
use carina_ipcp::config::FieldWidths;
use carina_ipcp::policy::component::{AUTHENTICATION, DELIMITING, SDU_PROTECTION};
use carina_ipcp::{DifConfig, PolicySpec, QosCube};
use carina_wire::dif::{Dialect as Wire, Syntax};
use serde::Deserialize;

use super::error::MemberSpecError;

/// A DIF's configuration as a user gives it. Absent fields have the default of the DIF's dialect.
/// The fields are those of [`DifConfig`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PartialDifConfig {
    widths: PartialWidths,
    max_pdu: Option<u32>,
    max_pdu_lifetime_ms: Option<u32>,
    hop_limit: Option<u8>,
    concatenation: Option<bool>,
    keepalive_ms: Option<u32>,
    cubes: Option<Vec<QosCube>>,
    policies: BTreeMap<String, PolicySpec>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PartialWidths {
    address: Option<u8>,
    cep: Option<u8>,
    qos: Option<u8>,
    seq: Option<u8>,
    ctrl_seq: Option<u8>,
    length: Option<u8>,
    rate: Option<u8>,
    frame: Option<u8>,
}

impl PartialDifConfig {
    /// The given fields, with the dialect's defaults for the rest.
    fn over_defaults(&self, dialect: Dialect) -> DifConfig {
        let given = self.clone();
        let usual = DifConfig::of_dialect(wire_dialect(dialect));
        let mut policies = usual.policies;
        policies.extend(given.policies);
        DifConfig {
            widths: given.widths.over(usual.widths),
            max_pdu: given.max_pdu.unwrap_or(usual.max_pdu),
            max_pdu_lifetime_ms: given
                .max_pdu_lifetime_ms
                .unwrap_or(usual.max_pdu_lifetime_ms),
            hop_limit: given.hop_limit.unwrap_or(usual.hop_limit),
            concatenation: given.concatenation.unwrap_or(usual.concatenation),
            keepalive_ms: given.keepalive_ms.unwrap_or(usual.keepalive_ms),
            // Cubes are given completely or not at all.
            cubes: given.cubes.unwrap_or(usual.cubes),
            policies,
        }
    }
}

impl PartialWidths {
    fn over(&self, usual: FieldWidths) -> FieldWidths {
        FieldWidths {
            address: self.address.unwrap_or(usual.address),
            cep: self.cep.unwrap_or(usual.cep),
            qos: self.qos.unwrap_or(usual.qos),
            seq: self.seq.unwrap_or(usual.seq),
            ctrl_seq: self.ctrl_seq.unwrap_or(usual.ctrl_seq),
            length: self.length.unwrap_or(usual.length),
            rate: self.rate.unwrap_or(usual.rate),
            frame: self.frame.unwrap_or(usual.frame),
        }
    }
}

/// The dialect as the crate `wire` names it.
pub(crate) fn wire_dialect(dialect: Dialect) -> Wire {
    match dialect {
        Dialect::Native => Wire::Native,
        Dialect::Rlite => Wire::Rlite,
        Dialect::Irati => Wire::Irati,
    }
}

/// The configuration that a member starts with; `None` for a member that gets it at enrollment.
///
/// # Errors
/// A setting that the dialect does not support, with the valid alternative.
pub(super) fn configure(
    dialect: Dialect,
    role: DifRole,
    given: Option<&PartialDifConfig>,
) -> Result<Option<DifConfig>, MemberSpecError> {
    // Settings that rlite's enrollment does not transfer can be given to a member that joins.
    let has_own = match dialect {
        Dialect::Native => role == DifRole::Create,
        Dialect::Rlite => role == DifRole::Create || given.is_some(),
        Dialect::Irati => true,
    };
    if !has_own {
        return match given {
            Some(_) => Err(MemberSpecError::ConfigOfJoining),
            None => Ok(None),
        };
    }
    let nothing = PartialDifConfig::default();
    let given = given.unwrap_or(&nothing);
    let config = given.over_defaults(dialect);
    check(dialect, given, &config)?;
    Ok(Some(config))
}

/// Checks a configuration against what the dialect supports.
fn check(
    dialect: Dialect,
    given: &PartialDifConfig,
    config: &DifConfig,
) -> Result<(), MemberSpecError> {
    let word = dialect.name();
    let widths = config.widths;
    let limits: &[(&'static str, u8, &[u8])] = match dialect {
        Dialect::Native => &[],
        Dialect::Rlite => &[
            ("address", widths.address, &[1, 2, 4]),
            ("cep", widths.cep, &[1, 2, 4]),
            ("qos", widths.qos, &[1, 2]),
            ("seq", widths.seq, &[2, 4]),
            ("ctrl_seq", widths.ctrl_seq, &[2, 4]),
            ("length", widths.length, &[2, 4]),
        ],
        Dialect::Irati => &[
            ("address", widths.address, &[1, 2, 4]),
            ("cep", widths.cep, &[1, 2, 4]),
            ("qos", widths.qos, &[1, 2]),
            ("seq", widths.seq, &[2, 4]),
            ("ctrl_seq", widths.ctrl_seq, &[2, 4]),
            ("length", widths.length, &[2, 4]),
            ("rate", widths.rate, &[4]),
            ("frame", widths.frame, &[4]),
        ],
    };
    for (field, bytes, possible) in limits {
        if !possible.contains(bytes) {
            let possible: Vec<String> = possible.iter().map(u8::to_string).collect();
            return Err(MemberSpecError::Width {
                field,
                bytes: *bytes,
                dialect: word,
                possible: possible.join(" or "),
            });
        }
    }
    let syntax = Syntax {
        dialect: wire_dialect(dialect),
        widths: widths.into(),
    };
    syntax.check().map_err(|what| MemberSpecError::Widths {
        what: what.to_string(),
        dialect: word,
    })?;
    for (key, is_none) in [
        ("hop_limit", config.hop_limit == 0),
        ("keepalive_ms", config.keepalive_ms == 0),
    ] {
        if is_none {
            return Err(MemberSpecError::Zero(key));
        }
    }
    if dialect == Dialect::Native {
        return Ok(());
    }
    if config.concatenation {
        return Err(MemberSpecError::Concatenation(word));
    }
    if dialect == Dialect::Irati {
        for (key, is_given) in [
            ("hop_limit", given.hop_limit.is_some()),
            ("keepalive_ms", given.keepalive_ms.is_some()),
        ] {
            if is_given {
                return Err(MemberSpecError::KeyOfOtherDialect { key, dialect: word });
            }
        }
    }
    check_policies(dialect, config)
}

/// True when members of this dialect can authenticate as `auth` says.
pub(super) fn supports_auth(dialect: Dialect, auth: Option<&str>) -> bool {
    let kind = auth.map_or("none", |text| text.split(':').next().unwrap_or(text));
    match dialect {
        Dialect::Native => true,
        Dialect::Rlite => kind == "none",
        Dialect::Irati => kind == "none" || kind == "password",
    }
}

/// The dialect's own policy that corresponds to a native authentication policy; `None` if the
/// dialect has none.
pub(super) fn auth_policy(dialect: Dialect, native: PolicySpec) -> Option<PolicySpec> {
    let name = match (dialect, native.name.as_str()) {
        (Dialect::Native, _) => return Some(native),
        (Dialect::Irati, "password") => XOR_PASSWORD.to_owned(),
        _ => return None,
    };
    Some(PolicySpec { name, ..native })
}

/// Authentication policy of IRATI: the peer returns a random text combined with the password.
const XOR_PASSWORD: &str = "xor-password";

/// Refuses policies that this dialect cannot use.
fn check_policies(dialect: Dialect, config: &DifConfig) -> Result<(), MemberSpecError> {
    let possible: [(&'static str, &[&str]); 2] = [
        (SDU_PROTECTION, &["none"]),
        match dialect {
            Dialect::Irati => (AUTHENTICATION, &["none", XOR_PASSWORD]),
            _ => (AUTHENTICATION, &["none"]),
        },
    ];
    for (component, possible) in possible {
        if let Some(policy) = config.policies.get(component)
            && !possible.contains(&policy.name.as_str())
        {
            return Err(MemberSpecError::Policy {
                component,
                name: policy.name.clone(),
                dialect: dialect.name(),
                possible: possible.join(" and "),
            });
        }
    }
    match config.policies.get(DELIMITING) {
        Some(policy) if policy.name == "standard" => Err(MemberSpecError::StandardDelimiting {
            component: DELIMITING,
            dialect: dialect.name(),
        }),
        _ => Ok(()),
    }
}

/// The name under which a member is registered in N-1 DIFs. IRATI adds instance 1 to the name.
pub(crate) fn name_below(dialect: Dialect, member: &AppName) -> AppName {
    if dialect != Dialect::Irati || member.as_str().contains('|') {
        return member.clone();
    }
    // If the name is too long to add the instance, it stays as it is, and the shim refuses it.
    AppName::new(format!("{member}|{INSTANCE}")).unwrap_or_else(|_| member.clone())
}

/// The name of the member that is registered in an N-1 DIF as `below`.
pub(crate) fn member_of(dialect: Dialect, below: &AppName) -> String {
    let text = below.as_str();
    match (dialect, text.split_once('|')) {
        (Dialect::Irati, Some((member, _))) if !member.is_empty() => member.to_owned(),
        _ => text.to_owned(),
    }
}

/// The instance under which IPCPs of IRATI are registered.
const INSTANCE: &str = "1";

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn made(dialect: Dialect, config: Value) -> Result<DifConfig, String> {
        let given: PartialDifConfig =
            serde_json::from_value(config).map_err(|error| error.to_string())?;
        let config =
            configure(dialect, DifRole::Create, Some(&given)).map_err(|error| error.to_string())?;
        Ok(config.expect("the first member has one"))
    }

    #[test]
    fn what_is_not_given_is_as_usual_in_the_dialect() {
        let native = made(Dialect::Native, json!({"max_pdu": 1000})).unwrap();
        let usual = DifConfig::default();
        assert_eq!(
            native,
            DifConfig {
                max_pdu: 1000,
                ..usual
            }
        );
        for dialect in [Dialect::Rlite, Dialect::Irati] {
            let usual = DifConfig::of_dialect(wire_dialect(dialect));
            let config = made(dialect, json!({"widths": {"address": 1}})).unwrap();
            assert_eq!(config.widths.address, 1);
            assert_eq!(config.widths.qos, usual.widths.qos);
            assert_eq!(config.cubes, usual.cubes);
        }
    }

    #[test]
    fn what_a_dialect_cannot_do_is_refused_by_name() {
        for (dialect, config, words) in [
            (
                Dialect::Irati,
                json!({"widths": {"address": 8}}),
                "widths.address is 8",
            ),
            (Dialect::Irati, json!({"hop_limit": 9}), "hop_limit"),
            (
                Dialect::Rlite,
                json!({"concatenation": true}),
                "concatenation",
            ),
            (
                Dialect::Rlite,
                json!({"policies": {"sdu-protection": {"name": "aead"}}}),
                "policies.sdu-protection is \"aead\"",
            ),
            (Dialect::Rlite, json!({"width": 1}), "unknown field `width`"),
            (Dialect::Native, json!({"hop_limit": 0}), "hop_limit is 0"),
        ] {
            let error = made(dialect, config).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn joining_members_of_other_dialects_have_own_configurations() {
        let given = PartialDifConfig::default();
        let join = |dialect, given| {
            configure(dialect, DifRole::Join, given).map_err(|error| error.to_string())
        };
        assert_eq!(join(Dialect::Native, None), Ok(None));
        let refused = join(Dialect::Native, Some(&given)).unwrap_err();
        assert!(refused.contains("members that join learn"), "{refused}");
        assert_eq!(join(Dialect::Rlite, None), Ok(None));
        assert!(join(Dialect::Rlite, Some(&given)).unwrap().is_some());
        assert!(join(Dialect::Irati, None).unwrap().is_some());
    }

    #[test]
    fn members_of_irati_are_instance_1_below() {
        let name = |text: &str| AppName::new(text).unwrap();
        let below = name_below(Dialect::Irati, &name("test1.normal.DIF"));
        assert_eq!(below, name("test1.normal.DIF|1"));
        assert_eq!(member_of(Dialect::Irati, &below), "test1.normal.DIF");
        assert_eq!(name_below(Dialect::Rlite, &name("x.IPCP")), name("x.IPCP"));
        assert_eq!(member_of(Dialect::Native, &name("org|app")), "org|app");
    }
}
