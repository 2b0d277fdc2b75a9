//! Tests of the rules of dependencies.

use serde_json::json;

use super::*;

fn package(name: &str, needed: &str, kind: Value) -> Value {
    let dependency = json!({"name": needed, "kind": kind});
    json!({"packages": [{"name": name, "source": null, "dependencies": [dependency]}]})
}

#[test]
fn arrow_that_points_up_is_a_breach() {
    assert_eq!(
        rows(&package("carina-vmpi", "carina-node", Value::Null)).len(),
        1
    );
    assert_eq!(
        rows(&package("carina-vmpi", "carina-ring", Value::Null)).len(),
        0
    );
    assert_eq!(
        rows(&package("carina-client", "tokio", Value::Null)).len(),
        1
    );
}

#[test]
fn tests_may_use_more_but_not_anything() {
    assert_eq!(
        rows(&package("carina-wire", "proptest", json!("dev"))).len(),
        0
    );
    assert_eq!(
        rows(&package("carina-wire", "proptest", Value::Null)).len(),
        1
    );
    assert_eq!(
        rows(&package("carina-wire", "tokio", json!("dev"))).len(),
        1
    );
}

#[test]
fn crate_named_outside_of_its_command_is_a_breach() {
    let file = |path: &str| Source {
        path: Path::new("crates/programs/cli/src").join(path),
        text: "use carina_lab::Running;\n".to_owned(),
    };
    let files = ["commands/lab.rs", "commands/lab/text.rs", "interrupt.rs"].map(file);
    let breaches = strays(&files);
    assert_eq!(breaches.len(), 1);
    assert!(breaches[0].contains("interrupt.rs"), "{breaches:?}");
}

#[test]
fn crate_without_a_row_is_a_breach() {
    assert_eq!(rows(&package("carina-new", "libc", Value::Null)).len(), 1);
}

#[test]
fn two_versions_in_the_data_path_are_a_breach() {
    let node = |id: &str, needs: &[&str]| {
        let deps: Vec<Value> = needs
            .iter()
            .map(|id| json!({"pkg": id, "dep_kinds": [{"kind": null, "target": null}]}))
            .collect();
        json!({"id": id, "deps": deps})
    };
    let package = |id: &str, name: &str, version: &str| {
        let (key, value) = ("version", version);
        json!({"id": id, "name": name, key: value})
    };
    let metadata = json!({
        "packages": [
            package("r", "carina-ring", "1.0.0"),
            package("a1", "a", "1.0.0"),
            package("a2", "a", "2.0.0"),
            package("a3", "a", "3.0.0"),
        ],
        "resolve": {"nodes": [
            node("r", &["a1", "a2"]), node("a1", &[]), node("a2", &[]), node("a3", &[]),
        ]},
    });
    let found = duplicates(&metadata);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].contains("2.0.0") && !found[0].contains("3.0.0"),
        "{found:?}"
    );
}
