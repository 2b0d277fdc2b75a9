//! Style that the compiler, rustfmt and clippy do not check.

use std::path::Path;

use crate::source::{self, Source};

/// Returns one line for each breach; long files are only mentioned.
pub fn check(root: &Path) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in source::all(root) {
        for (line, breach) in breaches_of(&source, root) {
            let place = source.path.display();
            breaches.push(match line {
                0 => format!("{place}: {breach}"),
                line => format!("{place}:{line}: {breach}"),
            });
        }
        let length = source.production().count();
        if source.extension() == "rs" && (SOFT_LINES..HARD_LINES).contains(&length) {
            println!(
                "{}: {length} lines; more than {SOFT_LINES}",
                source.path.display()
            );
        }
    }
    breaches
}

/// Line number, or 0 for the whole file, and what is wrong.
fn breaches_of(source: &Source, root: &Path) -> Vec<(usize, String)> {
    let mut breaches = Vec::new();
    match source.extension() {
        "rs" => rust(source, &mut breaches),
        "md" => {
            links(source, root, &mut breaches);
            if source.path == Path::new("ARCHITECTURE.md") {
                places(source, root, &mut breaches);
            }
        }
        "toml" | "h" | "c" | "sh" | "" => {}
        _ => return breaches,
    }
    names(source, &mut breaches);
    for (index, line) in source.text.lines().enumerate() {
        if line.ends_with([' ', '\t']) {
            breaches.push((index + 1, "white space at the end of the line".into()));
        }
        if let Some(mark) = MARKS.iter().find(|mark| line.contains(**mark)) {
            breaches.push((
                index + 1,
                format!("{mark}: finish it, or describe it in an issue"),
            ));
        }
    }
    if !source.text.is_empty() && !source.text.ends_with('\n') {
        breaches.push((0, "no newline at the end of the file".into()));
    }
    breaches
}

fn names(source: &Source, breaches: &mut Vec<(usize, String)>) {
    for part in source.path.iter() {
        let part = part.to_string_lossy();
        let stem = part.split('.').next().unwrap_or_default();
        if BANNED_NAMES.contains(&stem) {
            breaches.push((0, format!("{stem} says nothing: name it for its one idea")));
        }
    }
}

fn rust(source: &Source, breaches: &mut Vec<(usize, String)>) {
    let length = source.production().count();
    if length >= HARD_LINES {
        breaches.push((
            0,
            format!("{length} lines; below {HARD_LINES} would be right: split it"),
        ));
    }
    if !source.text.lines().any(|line| line.starts_with("//!")) {
        breaches.push((0, "no //! that says what this module is".into()));
    }
    for (index, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        // A text that a person reads is easier to find in one piece, and so is an address.
        let is_text = line.contains('"') || line.contains("://");
        if columns > COLUMNS && !is_text {
            breaches.push((
                index + 1,
                format!("{columns} columns; {COLUMNS} would be right"),
            ));
        }
    }
    unsafety(source, breaches);
}

/// Crates that forbid unsafe code say so at their root; the others deny it, and allow it again in
/// the file that cannot do without.
fn unsafety(source: &Source, breaches: &mut Vec<(usize, String)>) {
    let path = source.path.to_string_lossy().replace('\\', "/");
    let home = path.split("/src/").next().unwrap_or_default();
    let is_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    let (forbids, denies) = (
        source.text.contains("#![forbid(unsafe_code)]"),
        source.text.contains("#![deny(unsafe_code)]"),
    );
    if is_root && !UNSAFE_CRATES.contains(&home) {
        let partly = PARTLY_UNSAFE_CRATES.contains(&home);
        let guarded = forbids || (partly && denies);
        if !guarded {
            let wanted = if partly { "deny" } else { "forbid" };
            breaches.push((0, format!("#![{wanted}(unsafe_code)] is missing")));
        }
    }
}

const SOFT_LINES: usize = 500;
const HARD_LINES: usize = 1000;
const COLUMNS: usize = 100;

const UNSAFE_CRATES: [&str; 2] = ["crates/sys", "crates/ring"];
const PARTLY_UNSAFE_CRATES: [&str; 4] = ["crates/vmpi", "crates/client", "crates/netdev", "fuzz"];

const BANNED_NAMES: [&str; 8] = [
    "util", "utils", "common", "manager", "helper", "helpers", "misc", "data",
];

// Put together here, so that this file does not find itself.
const MARKS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
];

/// Relative links of a page must lead somewhere.
fn links(source: &Source, root: &Path, breaches: &mut Vec<(usize, String)>) {
    let here = source.path.parent().unwrap_or(Path::new(""));
    for (index, line) in source.text.lines().enumerate() {
        for target in line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let file = target.split('#').next().unwrap_or_default();
            let outside = target.contains("://") || target.starts_with("mailto:");
            if !file.is_empty() && !outside && !root.join(here).join(file).exists() {
                breaches.push((index + 1, format!("the link to {file} leads nowhere")));
            }
        }
    }
}

/// Files and directories that the map of the code names must be there. A name may go on from
/// where the one before it on its line is.
fn places(source: &Source, root: &Path, breaches: &mut Vec<(usize, String)>) {
    let mut is_drawing = false;
    for (index, line) in source.text.lines().enumerate() {
        is_drawing ^= line.starts_with("```");
        if is_drawing {
            continue;
        }
        let mut bases = vec![root.to_path_buf(), root.join("crates")];
        for name in line.split('`').skip(1).step_by(2).flat_map(alternatives) {
            let is_place = (name.contains('/') || name.ends_with(".rs")) && !name.contains(' ');
            match bases
                .iter()
                .rev()
                .map(|base| base.join(&name))
                .find(|at| at.exists())
            {
                Some(at) => bases.extend([at.parent().unwrap_or(root).to_path_buf(), at]),
                None if is_place => breaches.push((index + 1, format!("there is no {name}"))),
                None => {}
            }
        }
    }
}

/// `a/{b,c}` is `a/b` and `a/c`.
fn alternatives(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else {
        return vec![name.to_owned()];
    };
    let (names, after) = rest.split_once('}').unwrap_or((rest, ""));
    let one = |name: &str| format!("{before}{name}{after}");
    names.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_names_what_is_there() {
        let map = "| `xtask/src/tidy.rs`, `main.rs` | `{tidy,gone}.rs` | `no place` `word` |\n\
                   ```\n`drawn/away.rs`\n```\n`main.rs` of `xtask`\n";
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let source = Source {
            path: "ARCHITECTURE.md".into(),
            text: map.to_owned(),
        };
        let mut breaches = Vec::new();
        places(&source, &root, &mut breaches);
        let expected = [(1, "there is no gone.rs"), (5, "there is no main.rs")];
        assert_eq!(
            breaches,
            expected.map(|(line, what)| (line, what.to_owned()))
        );
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
    fn clean_file_has_no_breach() {
        assert_eq!(found("crates/a/src/b.rs", "//! B.\nfn b() {}\n"), [""; 0]);
        assert_eq!(found("crates/sys/src/lib.rs", "//! Sys.\n"), [""; 0]);
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
            "common says nothing",
            "2 white space",
            "3 ",
            "4 101 columns",
            "no newline",
        ] {
            assert!(all.contains(want), "{want} is not in\n{all}");
        }
    }

    #[test]
    fn crate_root_must_forbid_unsafe_code() {
        assert_eq!(found("crates/a/src/lib.rs", "//! A.\n").len(), 1);
        assert_eq!(
            found("crates/vmpi/src/lib.rs", "//! A.\n#![deny(unsafe_code)]\n").len(),
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
    fn overlong_file_and_dead_link_are_breaches() {
        let long = format!("//! A.\n{}", "fn a() {}\n".repeat(HARD_LINES));
        assert_eq!(found("crates/a/src/b.rs", &long).len(), 1);
        let page = "[a](gone.md) [b](https://example.org) [c](#here)\n";
        assert_eq!(
            found("docs/a.md", page),
            ["1 the link to gone.md leads nowhere"]
        );
    }
}
