//! Tests of the search for cycles between modules.

use super::*;

fn found(files: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
    let sources: Vec<Source> = files
        .iter()
        .map(|(path, text)| Source {
            path: path.into(),
            text: (*text).to_owned(),
        })
        .collect();
    let cycles = cycles(&sources);
    cycles
        .into_iter()
        .map(|cycle| (cycle.parent, cycle.modules))
        .collect()
}

fn one(parent: &str, modules: &[&str]) -> Vec<(String, Vec<String>)> {
    let modules = modules.iter().map(|name| (*name).to_owned()).collect();
    vec![(parent.to_owned(), modules)]
}

#[test]
fn dependency_in_one_direction_is_no_cycle() {
    let files = [
        ("crates/x/src/lib.rs", "mod a;\nmod b;\npub use a::A;\n"),
        ("crates/x/src/a.rs", "use crate::b::B;\npub struct A(B);\n"),
        ("crates/x/src/b.rs", "pub struct B;\n"),
    ];
    assert_eq!(found(&files), []);
}

#[test]
fn uses_and_paths_of_every_form_are_followed() {
    for back in [
        "use crate::a::A;\n",
        "use crate::{a, c};\n",
        "use super::a::A as Other;\n",
        "use crate::{c::{C}, a::{self}};\n",
        "use crate::A;\n",
        "fn f() { let _ = crate::a::A; }\n",
        "fn f(a: &super::a::A) {}\n",
        "mod inner { use super::super::a::A; }\n",
        "fn f() -> bool { matches!(1, crate::A) }\n",
    ] {
        let files = [
            (
                "crates/x/src/lib.rs",
                "mod a;\nmod b;\nmod c;\npub use a::A;\n",
            ),
            ("crates/x/src/a/mod.rs", "mod part;\npub struct A;\n"),
            ("crates/x/src/a/part.rs", "use crate::b::B;\n"),
            ("crates/x/src/b.rs", back),
            ("crates/x/src/c.rs", "pub struct C;\n"),
        ];
        assert_eq!(found(&files), one("crates/x", &["a", "b"]), "{back}");
    }
}

#[test]
fn comments_texts_and_tests_are_no_dependency() {
    for back in [
        "// use crate::a::A;\n",
        "const A: &str = \"crate::a::A\";\n",
        "#[cfg(test)]\nmod tests { use crate::a::A; }\n",
        "#[cfg(test)]\nuse crate::a::{A};\nfn f() {}\n",
        "pub(in crate::a) struct B;\n",
        "#[cfg(test)]\nmod proof;\n",
    ] {
        let files = [
            ("crates/x/src/lib.rs", "mod a;\nmod b;\n"),
            ("crates/x/src/a.rs", "use crate::b::B;\npub struct A;\n"),
            ("crates/x/src/b/mod.rs", back),
            ("crates/x/src/b/proof.rs", "use crate::a::A;\n"),
        ];
        let expected = if back.contains("proof") { "" } else { "proof" };
        let files = files
            .iter()
            .filter(|(path, _)| !path.contains(expected) || expected.is_empty());
        assert_eq!(found(&files.copied().collect::<Vec<_>>()), [], "{back}");
    }
}

#[test]
fn cycle_of_three_below_a_module_is_found() {
    let files = [
        ("crates/x/src/lib.rs", "mod m;\n"),
        (
            "crates/x/src/m/mod.rs",
            "mod a;\nmod b;\nmod c;\npub use c::*;\n",
        ),
        ("crates/x/src/m/a.rs", "use super::b::B;\npub struct A;\n"),
        ("crates/x/src/m/b.rs", "use super::C;\npub struct B;\n"),
        (
            "crates/x/src/m/c.rs",
            "use crate::m::a::A;\npub struct C;\n",
        ),
    ];
    assert_eq!(found(&files), one("crates/x::m", &["a", "b", "c"]));
}
