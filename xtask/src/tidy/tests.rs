//! Tests of what tidy refuses.

use super::*;

#[test]
fn map_names_existing_files() {
    let map = "| `xtask/src/tidy.rs`, `main.rs` | `{tidy,gone}.rs` | `no place` `word` |\n\
               ```\n`drawn/away.rs`\n```\n`main.rs` of `xtask`\n";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let source = Source {
        path: "ARCHITECTURE.md".into(),
        text: map.to_owned(),
    };
    let mut breaches = Vec::new();
    places(&source, &root, is_of_map, &mut breaches);
    let expected = [(1, "there is no gone.rs"), (5, "there is no main.rs")];
    assert_eq!(
        breaches,
        expected.map(|(line, what)| (line, what.to_owned()))
    );
}

#[test]
fn page_names_existing_files_and_other_paths() {
    let page = "`crates/rina/api`, `ipcp/src/gone` `/dif/cubes` `labs/LAB` `target/x` \
         `away.rs`\n\
                `xtask/src/{tidy,prose}.rs`, `main.rs`, `a/b`\n";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let source = Source {
        path: "docs/page.md".into(),
        text: page.to_owned(),
    };
    let mut breaches = Vec::new();
    places(&source, &root, is_of_page, &mut breaches);
    let expected = ["there is no ipcp/src/gone", "there is no away.rs"];
    assert_eq!(breaches, expected.map(|what| (1, what.to_owned())));
}

fn found(path: &str, text: &str) -> Vec<String> {
    let source = Source {
        path: path.into(),
        text: text.into(),
    };
    let breaches = breaches_of(&source, Path::new("/nonexistent"));
    breaches
        .into_iter()
        .map(|(line, breach)| format!("{line} {breach}"))
        .collect()
}

#[test]
fn cycle_is_a_breach_until_listed_and_so_is_a_stale_row() {
    let cycle = Cycle {
        parent: "crates/x".to_owned(),
        modules: ["a", "b"].map(String::from).to_vec(),
        because: vec!["a needs b".to_owned()],
    };
    let found = [cycle];
    assert_eq!(cycles(&found, &[]).len(), 2);
    assert_eq!(cycles(&found, &[("crates/x", "a")]).len(), 2);
    assert_eq!(cycles(&found, &[("crates/x", "a b")]), [""; 0]);
    assert_eq!(cycles(&found, &[("crates/x", "a b c")]).len(), 1);
    assert_eq!(cycles(&[], &[("crates/y", "a")]).len(), 1);
    let below = Cycle {
        parent: "crates/x::m".to_owned(),
        ..found.into_iter().next().unwrap()
    };
    assert_eq!(cycles(&[below], &[]).len(), 2);
}

#[test]
fn prose_that_a_reader_has_to_solve_is_a_breach() {
    let riddle = ["who", "ever"].concat();
    let text = format!("//! B.\n// For {riddle} asks.\n");
    let found = found("crates/a/src/b.rs", &text);
    assert_eq!(found, [format!("2 \"{riddle}\": name the actor")]);
}

#[test]
fn file_of_tests_that_no_program_has_is_a_breach() {
    let file = |path: &str, text: &str| Source {
        path: path.into(),
        text: text.to_owned(),
    };
    let manifest = "autotests = false\npath = \"tests/own.rs\"\n";
    let sources = [
        file("crates/x/Cargo.toml", manifest),
        file("crates/x/tests/main.rs", "mod a;\npub mod b;\n"),
        file("crates/x/tests/a.rs", ""),
        file("crates/x/tests/b.rs", ""),
        file("crates/x/tests/c.rs", ""),
        file("crates/x/tests/own.rs", ""),
        file("crates/y/Cargo.toml", ""),
        file("crates/y/tests/c.rs", ""),
    ];
    let found = unreached(&sources);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("x/tests/c.rs"), "{found:?}");
}

#[test]
fn clean_file_has_no_breach() {
    assert_eq!(found("crates/a/src/b.rs", "//! B.\nfn b() {}\n"), [""; 0]);
    assert_eq!(found("crates/base/sys/src/lib.rs", "//! Sys.\n"), [""; 0]);
}

#[test]
fn each_rule_is_found_at_its_line() {
    let text = format!(
        "//! B.\nlet a = 1; \n// {}: later\n{}",
        MARKS[0],
        "x".repeat(101)
    );
    let found = found("crates/common/src/b.rs", &text);
    let all = found.join("\n");
    for want in [
        "the name common is too general",
        "2 white space",
        "3 ",
        "4 101 columns",
        "no newline",
    ] {
        assert!(all.contains(want), "{want} is not in\n{all}");
    }
}

#[test]
fn fuzz_harness_that_is_always_compiled_is_a_breach() {
    let root = |before: &str| format!("//! A.\n#![forbid(unsafe_code)]\n{before}pub mod fuzz;\n");
    assert_eq!(found("crates/a/src/lib.rs", &root("")).len(), 1);
    let behind = root("#[cfg(any(test, feature = \"fuzzing\"))]\n");
    assert_eq!(found("crates/a/src/lib.rs", &behind), [""; 0]);
}

#[test]
fn crate_without_the_lints_of_the_workspace_is_a_breach() {
    let package = "[package]\nname = \"a\"\n";
    assert_eq!(found("crates/a/Cargo.toml", package).len(), 1);
    let with = format!("{package}\n[lints]\nworkspace = true\n");
    assert_eq!(found("crates/a/Cargo.toml", &with), [""; 0]);
    assert_eq!(found("Cargo.toml", "[workspace]\n"), [""; 0]);
}

#[test]
fn crate_root_must_forbid_unsafe_code() {
    assert_eq!(found("crates/a/src/lib.rs", "//! A.\n").len(), 1);
    assert_eq!(
        found(
            "crates/io/nic/src/lib.rs",
            "//! A.\n#![deny(unsafe_code)]\n"
        )
        .len(),
        0
    );
    assert_eq!(
        found("crates/a/src/lib.rs", "//! A.\n#![deny(unsafe_code)]\n").len(),
        1
    );
    assert_eq!(
        found("crates/a/src/main.rs", "//! A.\n#![forbid(unsafe_code)]\n").len(),
        0
    );
}

#[test]
fn link_to_a_section_that_is_missing_is_a_breach() {
    let page = "# A `b`, and C\n[here](#a-b-and-c), [gone](#a-b)\n";
    assert_eq!(
        found("docs/a.md", page),
        ["2 the link to #a-b: the page has no section #a-b"]
    );
    let sections: Vec<String> = sections("```sh\n# no\n```\n### The DIF's end\n").collect();
    assert_eq!(sections, ["the-difs-end"]);
}

#[test]
fn overlong_file_and_dead_link_are_breaches() {
    let long = format!("//! A.\n{}", "fn a() {}\n".repeat(HARD_LINES));
    assert_eq!(found("crates/a/src/b.rs", &long).len(), 1);
    let page = "[a](gone.md) [b](https://example.org) [c](#here)\n# Here\n";
    assert_eq!(
        found("docs/a.md", page),
        ["1 the link to gone.md: the file does not exist"]
    );
}
