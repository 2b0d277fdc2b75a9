//! Checks the lines of code per low level of VMPI in `docs/reference/hypervisors.md`.

use std::path::{Path, PathBuf};

use crate::source::Source;

/// Compares the rows `| low level | files | lines |` of the page with the tree. A count may differ
/// from the tree by a tenth. A breach names the count of the tree.
pub(crate) fn check(sources: &[Source]) -> Vec<String> {
    let Some(page) = sources.iter().find(|source| source.path == Path::new(PAGE)) else {
        return vec![format!("{PAGE}: is missing")];
    };
    let rows: Vec<Row> = page.text.lines().filter_map(row).collect();
    if rows.is_empty() {
        return vec![format!("{PAGE}: has no rows of lines of code")];
    }
    rows.iter().filter_map(|row| breach(row, sources)).collect()
}

/// One low level: the files of its code, and the lines that the page states.
struct Row {
    name: String,
    files: Vec<PathBuf>,
    lines: usize,
}

fn row(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    let [name, files, lines, ""] = cells[..] else {
        return None;
    };
    let files = files.strip_prefix('`')?.strip_suffix('`')?.split("`, `");
    Some(Row {
        name: name.to_owned(),
        files: files.map(|file| Path::new(ROOT).join(file)).collect(),
        lines: lines.parse().ok()?,
    })
}

fn breach(row: &Row, sources: &[Source]) -> Option<String> {
    let is_meant = |source: &&Source| row.files.iter().any(|file| source.path.starts_with(file));
    let is_code = |source: &&Source| {
        let mut parts = source.path.iter().map(|part| part.to_string_lossy());
        source.extension() == "rs" && !parts.any(|part| part == "tests" || part == "tests.rs")
    };
    let counted = sources.iter().filter(is_meant).filter(is_code);
    let lines: usize = counted.map(Source::code_lines).sum();
    let name = &row.name;
    if lines == 0 {
        return Some(format!("{PAGE}: the files of {name} have no code"));
    }
    let stated = row.lines;
    (stated.abs_diff(lines) * 10 > lines)
        .then(|| format!("{PAGE}: {name} has {lines} lines of code, the page states {stated}"))
}

const PAGE: &str = "docs/reference/hypervisors.md";
const ROOT: &str = "crates/io";
