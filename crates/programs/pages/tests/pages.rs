//! Tests that every command has a manual page and completions, and that the files of the Debian
//! packages are consistent.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;
use tempfile::TempDir;

/// The generated pages, in a directory that is removed when the value is dropped.
fn pages() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    carina_pages::write(directory.path()).expect("written pages");
    directory
}

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Adds to `found` the page names of `command` and of all commands below it.
fn names(command: &Command, name: &str, found: &mut BTreeSet<String>) {
    found.insert(format!("{name}.1"));
    for inner in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        names(inner, &format!("{name}-{}", inner.get_name()), found);
    }
}

#[test]
fn every_visible_command_has_a_manual_page() {
    let pages = pages();
    let [carina, _, _] = carina_cli::definitions();
    let mut wanted = BTreeSet::from(["carina-guest.1".to_owned(), "carina-tools.1".to_owned()]);
    names(&carina, "carina", &mut wanted);
    let found: BTreeSet<String> = fs::read_dir(pages.path().join("man1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, wanted);
    assert!(found.contains("carina-vm-run.1"), "{found:?}");
}

#[test]
fn pages_name_only_pages_that_exist() {
    let pages = pages();
    for entry in fs::read_dir(pages.path().join("man1")).unwrap() {
        let path = entry.unwrap().path();
        let page = read(&path);
        for line in page.lines().filter_map(|line| line.strip_suffix("(1)")) {
            let named = format!("{}.1", line.replace("\\-", "-"));
            let exists = pages.path().join("man1").join(&named).is_file();
            assert!(exists, "{} names {named}", path.display());
        }
    }
}

#[test]
fn examples_of_help_are_in_the_page() {
    let pages = pages();
    let page = read(pages.path().join("man1/carina-vm-run.1"));
    let notes = page.split(".SH NOTES\n.nf\n").nth(1).unwrap();
    assert!(notes.contains("\n  carina vm run a"), "{notes}");
}

#[test]
fn pages_of_the_other_programs_use_their_own_names() {
    let pages = pages();
    for name in ["carina-guest", "carina-tools"] {
        let page = read(pages.path().join(format!("man1/{name}.1")));
        let roff = name.replace('-', "\\-");
        let synopsis = page.split(".SH SYNOPSIS").nth(1).unwrap();
        assert!(synopsis.lines().nth(1).unwrap().contains(&roff), "{page}");
    }
}

#[test]
fn completions_of_each_shell_know_each_command() {
    let pages = pages();
    for definition in carina_cli::definitions() {
        let name = definition.get_name();
        let files = [
            format!("bash/{name}"),
            format!("zsh/_{name}"),
            format!("fish/{name}.fish"),
        ];
        for file in files {
            let completion = read(pages.path().join(&file));
            for command in definition.get_subcommands().filter(|c| !c.is_hide_set()) {
                assert!(completion.contains(command.get_name()), "{file}: {command}");
            }
        }
    }
}

/// The paragraphs of the file `control`: one for each package.
fn stanzas() -> Vec<String> {
    let control = read(packaging().join("control"));
    control.split("\n\n").map(str::to_owned).collect()
}

fn field<'a>(stanza: &'a str, name: &str) -> Option<&'a str> {
    let prefix = format!("{name}: ");
    stanza.lines().find_map(|line| line.strip_prefix(&prefix))
}

#[test]
fn packages_are_well_formed() {
    let mut files = BTreeSet::new();
    for stanza in stanzas() {
        let package = field(&stanza, "Package").expect("a stanza names its package");
        let summary = field(&stanza, "Description").expect(package);
        assert!(field(&stanza, "Section").is_some(), "{package}");
        assert!(summary.len() < 80 && !summary.ends_with('.'), "{package}");
        for line in stanza.lines() {
            let continues = line.starts_with(' ') && line.len() > 1;
            let has_name = line
                .split_once(": ")
                .is_some_and(|(name, _)| !name.contains(' '));
            let fits = has_name || line.len() <= 80;
            assert!((continues || has_name) && fits, "{package}: {line:?}");
        }
        for file in read(packaging().join(format!("{package}.install"))).lines() {
            assert!(!file.starts_with('/'), "{package}: {file}");
            assert!(files.insert(file.to_owned()), "two packages list {file}");
        }
    }
    assert_eq!(stanzas().len(), 4);
}

#[test]
fn unit_starts_the_node_with_the_installed_configuration() {
    let unit = read(packaging().join("carina.service"));
    let command = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let command = command.unwrap().replace("@PREFIX@", "/usr");
    let words: Vec<&str> = command.split(' ').collect();
    let config = words.last().unwrap().replace("@SYSCONFDIR@", "etc");
    let listed = read(packaging().join("carina.install"));
    assert!(listed.lines().any(|line| line == config), "{config}");
    assert!(listed.lines().any(|line| words[0] == format!("/{line}")));
    let [carina, _, _] = carina_cli::definitions();
    let parsed = carina.try_get_matches_from(["carina"].iter().chain(&words[1..]));
    assert!(parsed.is_ok(), "{parsed:?}");
}

#[test]
fn installed_configuration_is_valid_with_its_examples() {
    let text = read(packaging().join("node.toml"));
    carina_node::config::Config::parse(&text, None).unwrap();
    // An example in the file is a commented line that is valid TOML without its `# `.
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(key) if key.starts_with("[[") || key.contains(" = ") => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let config = carina_node::config::Config::parse(&uncommented, None).unwrap();
    assert_eq!(config.ipcps.len(), 1, "{uncommented}");
}
