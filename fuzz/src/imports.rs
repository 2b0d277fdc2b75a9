//! Configurations of other stacks.

use carina_import::vnets::{self, Format, Source};
use carina_import::{Draft, irati, rlite};
use carina_lab::CarinaNode;
use carina_node::Config;
use carina_vnet::document::{Document, Form};

/// Scripts of rlite-ctl: see [`reads_rlite_ctl`].
pub fn import_rlite(data: &[u8]) {
    reads_rlite_ctl(data);
}

/// True for a script that makes a member of a DIF. Of any text comes a configuration that a node
/// takes, and what is left out is named with its line.
///
/// # Panics
/// When that is not so.
pub fn reads_rlite_ctl(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let draft = rlite::read("init", text);
    if let Err(what) = draft.to_toml(Config::check_text) {
        panic!("{what}\n{text}");
    }
    check_notes(&draft, text.lines().count());
    !draft.members.is_empty()
}

/// Networks of other tools: see [`reads_networks`].
pub fn import_vnet(data: &[u8]) {
    reads_networks(data);
}

/// The first byte, a digit, chooses the format. True for a text of which a document comes. It reads
/// again as it is written, and what is left out is named with a line of the text, or with none.
///
/// # Panics
/// When that is not so.
pub fn reads_networks(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let mut chars = text.chars();
    let number = chars.next().and_then(|c| c.to_digit(10)).unwrap_or(0) as usize;
    let format = Format::ALL[number % Format::ALL.len()];
    let text = chars.as_str();
    let rate = "100Mbps".parse().expect("a rate");
    let file = "fuzzed";
    let Ok(imported) = vnets::read(format, Source { file, text, rate }, &CarinaNode) else {
        return false;
    };
    let written = imported.document.write(Form::Toml);
    match Document::read(&written, Form::Toml) {
        Ok(again) => assert_eq!(again, imported.document),
        Err(what) => panic!("{what}\n{written}"),
    }
    let lines = text.lines().count();
    assert!(imported.notes.iter().all(|note| note.line <= lines.max(1)));
    !imported.document.node.is_empty()
}

/// Configurations of IRATI: see [`reads_irati_conf`].
pub fn import_irati(data: &[u8]) {
    reads_irati_conf(data);
}

/// True for a configuration that makes a member of a DIF. Files that it names follow, each after a
/// line `%% NAME`.
///
/// # Panics
/// When a note names no line of a file.
pub fn reads_irati_conf(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let mut files = text.split("\n%% ");
    let first = files.next().unwrap_or_default();
    let others: Vec<(&str, &str)> = files.filter_map(|file| file.split_once('\n')).collect();
    let open = |name: &str| {
        let found = others.iter().find(|(other, _)| *other == name);
        let found = found.map(|(_, text)| (*text).to_owned());
        found.ok_or_else(|| format!("reading {name}: no such file"))
    };
    let Ok(draft) = irati::read("m.conf", first, &open, &[]) else {
        return false;
    };
    check_notes(&draft, text.lines().count());
    draft.to_toml(Config::check_text).is_ok() && !draft.members.is_empty()
}

fn check_notes(draft: &Draft, lines: usize) {
    for note in &draft.notes {
        assert!(note.line <= lines, "{note:?} of {lines} lines");
        assert!(!note.why.is_empty(), "{note:?}");
    }
}
