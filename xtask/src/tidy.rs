//! Style that the compiler, rustfmt and clippy do not check.

use std::path::{Path, PathBuf};

use crate::low_levels;
use crate::modules::{self, Cycle};
use crate::prose;
use crate::shown_files;
use crate::source::{self, Source};

/// Returns one line for each breach; long files are only mentioned.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut breaches = Vec::new();
    let sources = source::all(root);
    breaches.extend(cycles(&modules::cycles(&sources), CYCLES));

    breaches.extend(unreached(&sources));
    breaches.extend(low_levels::check(&sources));
    for source in sources {
        for (line, breach) in breaches_of(&source, root) {
            let place = source.path.display();
            breaches.push(match line {
                0 => format!("{place}: {breach}"),
                line => format!("{place}:{line}: {breach}"),
            });
        }
        let length = source.production().count();
        if source.extension() == "rs" && (SOFT_LINES + 1..HARD_LINES).contains(&length) {
            println!(
                "{}: {length} lines; more than {SOFT_LINES}",
                source.path.display()
            );
        }
    }
    breaches
}

/// Modules that may need one another in a circle: the crate or module above them, and their names.
/// A cycle that is gone goes from the list.
const CYCLES: &[(&str, &str)] = &[];

fn cycles(found: &[Cycle], listed: &[(&str, &str)]) -> Vec<String> {
    let mut breaches = Vec::new();
    let is_listed = |parent: &str, module: &str| {
        let rows = listed.iter().filter(|(of, _)| *of == parent);
        rows.flat_map(|(_, modules)| modules.split(' '))
            .any(|name| name == module)
    };
    for cycle in found {
        let parent = &cycle.parent;
        if !cycle.modules.iter().all(|module| is_listed(parent, module)) {
            let names = cycle.modules.join(", ");
            breaches.push(format!(
                "{parent}: {names} depend on one another in a cycle"
            ));
            breaches.extend(cycle.because.iter().map(|reason| format!("    {reason}")));
        }
    }
    for (parent, modules) in listed {
        for module in modules.split(' ') {
            let is_left = |cycle: &Cycle| {
                cycle.parent == *parent && cycle.modules.iter().any(|name| name == module)
            };
            if !found.iter().any(is_left) {
                breaches.push(format!(
                    "{parent}: {module} is no longer in a cycle: remove it from CYCLES in \
                     xtask/src/tidy.rs"
                ));
            }
        }
    }
    breaches
}

/// Files of tests that no test program has: with `autotests = false` each is a module of
/// `tests/main.rs`, or has a `[[test]]`.
fn unreached(sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    let text = |path: &Path| {
        let found = sources.iter().find(|source| source.path == path);
        found.map_or("", |source| source.text.as_str())
    };
    for source in sources {
        let tests = source.path.parent().unwrap_or(Path::new(""));
        let stem = source
            .path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy();
        if !tests.ends_with("tests") || source.extension() != "rs" || stem == "main" {
            continue;
        }
        let manifest = text(&tests.with_file_name("Cargo.toml"));
        let is_module = text(&tests.join("main.rs"))
            .lines()
            .any(|line| line.trim_end_matches(';').rsplit(' ').next() == Some(&stem));
        let is_target = manifest.contains(&format!("path = \"tests/{stem}.rs\""));
        if manifest.contains("autotests = false") && !is_module && !is_target {
            let place = source.path.display();
            breaches.push(format!(
                "{place}: no test program includes this file: add it to tests/main.rs"
            ));
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
            breaches.extend(shown_files::breaches(source, root));
            let is_map = MAPS.iter().any(|map| source.path == Path::new(map));
            let is_changelog = source.path == Path::new("CHANGELOG.md");
            if is_map {
                places(source, root, is_of_map, &mut breaches);
            } else if !is_changelog {
                places(source, root, is_of_page, &mut breaches);
            }
        }
        "toml" => lints(source, &mut breaches),
        "h" | "c" | "go" | "sh" | "" => {}
        _ => return breaches,
    }
    names(source, &mut breaches);
    let prose = prose::breaches(source).into_iter();
    breaches.extend(prose.map(|(_, line, breach)| (line, breach)));
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
            breaches.push((
                0,
                format!("the name {stem} is too general: name the file for its one idea"),
            ));
        }
    }
}

fn rust(source: &Source, breaches: &mut Vec<(usize, String)>) {
    let length = source.production().count();
    if length >= HARD_LINES {
        breaches.push((
            0,
            format!("{length} lines; must be below {HARD_LINES}: split the file"),
        ));
    }
    if !source.text.lines().any(|line| line.starts_with("//!")) {
        breaches.push((
            0,
            "the file needs a //! comment that says what the module is".into(),
        ));
    }
    for (index, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        // A text that a person reads is easier to find in one piece, and so is an address.
        let is_text = line.contains('"') || line.contains("://");
        if columns > COLUMNS && !is_text {
            breaches.push((
                index + 1,
                format!("{columns} columns; must be at most {COLUMNS}"),
            ));
        }
    }
    unsafety(source, breaches);
    fuzz_harness(source, breaches);
}

/// Each crate has the lints of the workspace.
fn lints(source: &Source, breaches: &mut Vec<(usize, String)>) {
    let is_crate = source.path.ends_with("Cargo.toml") && source.text.contains("[package]");
    if is_crate && !source.text.contains("[lints]\nworkspace = true\n") {
        breaches.push((0, "[lints] with workspace = true is missing".into()));
    }
}

/// The harness of a crate is compiled for its tests and for fuzz targets only.
fn fuzz_harness(source: &Source, breaches: &mut Vec<(usize, String)>) {
    let mut before = "";
    for (index, line) in source.text.lines().enumerate() {
        if line.trim_end() == "pub mod fuzz;" && !before.contains(FUZZ_FEATURE) {
            let right = format!("#[cfg(any(test, {FUZZ_FEATURE}))]");
            breaches.push((index + 1, format!("write {right} before it")));
        }
        before = line;
    }
}

/// Crates that forbid unsafe code say so at their root; the others deny it, and allow it again in
/// the file that cannot do without.
fn unsafety(source: &Source, breaches: &mut Vec<(usize, String)>) {
    let path = source.path.to_string_lossy().replace('\\', "/");
    let crate_dir = path.split("/src/").next().unwrap_or_default();
    let name = crate_dir.rsplit('/').next().unwrap_or_default();
    let is_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    let (forbids, denies) = (
        source.text.contains("#![forbid(unsafe_code)]"),
        source.text.contains("#![deny(unsafe_code)]"),
    );
    if is_root && !UNSAFE_CRATES.contains(&name) {
        let partly = PARTLY_UNSAFE_CRATES.contains(&name);
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

const UNSAFE_CRATES: [&str; 7] = ["sys", "seccomp", "ring", "vring", "frame", "preload", "nss"];
const PARTLY_UNSAFE_CRATES: [&str; 8] = [
    "guest", "nic", "client", "netdev", "lua", "fuzz", "python", "tokio",
];

const FUZZ_FEATURE: &str = "feature = \"fuzzing\"";

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
            let (file, section) = target.split_once('#').unwrap_or((target, ""));
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let page = root.join(here).join(file);
            if !file.is_empty() && !page.exists() {
                breaches.push((
                    index + 1,
                    format!("the link to {file}: the file does not exist"),
                ));
            } else if !section.is_empty() && !has_section(source, &page, file, section) {
                let what = format!("the link to {target}: the page has no section #{section}");
                breaches.push((index + 1, what));
            }
        }
    }
}

/// Whether the page that a link names, or this page if `file` is empty, has such a section.
fn has_section(source: &Source, page: &Path, file: &str, section: &str) -> bool {
    let read = if file.is_empty() {
        Ok(source.text.clone())
    } else {
        std::fs::read_to_string(page)
    };
    // Sections of other files, such as lines of code, are not checked.
    let is_page = file.is_empty() || file.ends_with(".md");
    !is_page || read.is_ok_and(|text| sections(&text).any(|name| name == section))
}

/// The names by which links reach the headings of a page: lower case, without punctuation, with
/// `-` for a space.
fn sections(page: &str) -> impl Iterator<Item = String> {
    let mut is_drawing = false;
    let headings = page.lines().filter(move |line| {
        is_drawing ^= line.starts_with("```");
        !is_drawing && line.starts_with('#')
    });
    headings.map(|line| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    })
}

/// Whether the map of the code means a file or directory of this repository by `name`.
fn is_of_map(name: &str, _root: &Path) -> bool {
    (name.contains('/') || name.ends_with(".rs")) && !name.contains(' ')
}

/// Whether another page does: pages also name RIB objects and files of systems.
fn is_of_page(name: &str, root: &Path) -> bool {
    let (first, is_deep) = match name.split_once('/') {
        Some((first, _)) => (first, true),
        None => (name, false),
    };
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(c);
    let is_kept = !first.is_empty() && first != "target" && name.chars().all(is_word);
    let is_here = || bases(root).iter().any(|base| base.join(first).is_dir());
    is_kept && (name.ends_with(".rs") || (is_deep && is_here()))
}

/// Files and directories that a page names must be there; `is_place` tells such names from others.
/// A name may go on from where the one before it on its line is.
fn places(
    source: &Source,
    root: &Path,
    is_place: fn(&str, &Path) -> bool,
    breaches: &mut Vec<(usize, String)>,
) {
    let mut is_drawing = false;
    for (index, line) in source.text.lines().enumerate() {
        is_drawing ^= line.starts_with("```");
        if is_drawing {
            continue;
        }
        let mut bases = bases(root);
        for name in line.split('`').skip(1).step_by(2).flat_map(alternatives) {
            match bases
                .iter()
                .rev()
                .map(|base| base.join(&name))
                .find(|at| at.exists())
            {
                Some(at) => bases.extend([at.parent().unwrap_or(root).to_path_buf(), at]),
                None if is_place(&name, root) => {
                    breaches.push((index + 1, format!("there is no {name}")))
                }
                None => {}
            }
        }
    }
}

/// Where the names of pages begin: the root, and each folder of crates.
fn bases(root: &Path) -> Vec<PathBuf> {
    let crates = root.join("crates");
    let folders = std::fs::read_dir(&crates).into_iter().flatten().flatten();
    let folders = folders.map(|entry| entry.path());
    [root.to_path_buf(), crates.clone()]
        .into_iter()
        .chain(folders.filter(|path| path.is_dir()))
        .collect()
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

/// Pages in which every name that looks like a path is one.
const MAPS: [&str; 3] = [
    "ARCHITECTURE.md",
    "docs/explanation/where-is.md",
    "docs/explanation/internals.md",
];

#[cfg(test)]
mod tests;
