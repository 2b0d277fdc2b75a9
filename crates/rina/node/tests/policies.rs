//! Policies of DIFs, listed and changed through `control.sock`.
#![allow(missing_docs, clippy::unwrap_used)]

use carina_api::ErrorCode;
use carina_api::control::{ClientError, Dialect, DifRole, PolicyInfo};

use crate::support::members::{enrolled, request};
use crate::support::*;

#[test]
fn changing_a_fixed_policy_is_a_conflict() {
    let house = House::new("policies", "");
    let create = request("net", DifRole::Create, "local", "a");
    house.control().create_dif(&create).unwrap();
    enrolled(&house, "a");
    let set = |component: &str, fields: serde_json::Value| {
        let path = format!("/policies/{component}");
        let write = serde_json::json!({"path": path, "fields": fields});
        let write = serde_json::from_value(write).unwrap();
        match house.control().write_rib(&write).map(drop) {
            Ok(()) => Ok(()),
            Err(ClientError::Refused { body, .. }) => Err((body.code, body.message)),
            Err(other) => panic!("{other}"),
        }
    };
    let refused = |component: &str, fields: serde_json::Value, code: ErrorCode, words: &str| {
        let (is, message) = set(component, fields).unwrap_err();
        assert_eq!(is, code, "{message}");
        assert!(message.contains(words), "{message}");
    };
    let name = |name: &str| serde_json::json!({ "name": name });
    let late = "cannot be changed while the DIF runs";
    refused("delimiting", name("none"), ErrorCode::Conflict, late);
    refused("routing", name("pigeons"), ErrorCode::BadRequest, "pigeons");
    refused("colour", name("red"), ErrorCode::BadRequest, "colour");
    let parameter = serde_json::json!({"name": "link-state", "wings": "2"});
    refused("routing", parameter, ErrorCode::BadRequest, "wings");
    let parameter = serde_json::json!({"wings": "2"});
    refused("routing", parameter, ErrorCode::Conflict, "wings");
    set("rmt-scheduling", name("strict-priority")).unwrap();
}

#[test]
fn each_dialect_has_its_own_policies() {
    let house = House::new("dialects", "");
    let control = house.control();
    let listed = |dialect| control.policies_of(dialect).unwrap().policies;
    let names = |dialect, component: &str| -> Vec<String> {
        let of_it = listed(dialect).into_iter();
        let of_it = of_it.filter(|policy| policy.component == component);
        of_it.map(|policy| policy.name).collect()
    };
    for (dialect, component, wanted) in [
        (
            Dialect::Rlite,
            "routing",
            &["link-state", "link-state-lfa"][..],
        ),
        (Dialect::Rlite, "directory", &["fully-replicated"]),
        (
            Dialect::Rlite,
            "address-assignment",
            &["distributed", "static"],
        ),
        (Dialect::Rlite, "authentication", &["none"]),
        (Dialect::Rlite, "pci-checksum", &["none", "inet"]),
        (Dialect::Rlite, "access-control", &[]),
        (Dialect::Irati, "routing", &["link-state"]),
        (Dialect::Irati, "address-assignment", &["known-addresses"]),
        (Dialect::Irati, "authentication", &["none", "xor-password"]),
        (Dialect::Irati, "delimiting", &["none", "flag-byte"]),
        (Dialect::Irati, "sdu-protection", &["none"]),
        (Dialect::Native, "pci-checksum", &["none"]),
    ] {
        assert_eq!(names(dialect, component), wanted, "{dialect:?} {component}");
    }
    assert!(listed(Dialect::Irati).iter().all(|policy| !policy.live));
    assert_eq!(
        control.policies(None).unwrap().policies,
        listed(Dialect::Native)
    );

    for dialect in [Dialect::Rlite, Dialect::Irati] {
        let name = format!("{}.net", dialect.name());
        let mut create = request(&name, DifRole::Create, "local", dialect.name());
        create.dialect = dialect;
        control.create_dif(&create).unwrap();
        enrolled(&house, dialect.name());
        let shown = control.policies(Some(&name)).unwrap();
        assert_eq!(shown.policies, listed(dialect));
        for used in &shown.in_force {
            let is_it = |policy: &PolicyInfo| {
                policy.component == used.component && policy.name == used.name
            };
            assert!(shown.policies.iter().any(is_it), "{dialect:?} {used:?}");
        }
        let used: Vec<&str> = shown
            .in_force
            .iter()
            .map(|used| used.component.as_str())
            .collect();
        assert!(
            used.contains(&"routing") && used.contains(&"delimiting"),
            "{used:?}"
        );
    }
}
