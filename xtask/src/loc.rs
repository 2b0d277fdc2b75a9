//! How much code each side of the hypervisor's device takes, beside the prototype of S. Vrijders
//! and others, *Reducing Complexity of Virtual Machine Networking* (2016), section IV.

use std::path::{Path, PathBuf};

use crate::source::{self, Source};

/// Lines of production code (no comments, no tests, no empty lines) of VMPI-LL over
/// ivshmem. What both sides are built of is counted on both.
pub(crate) fn report(root: &Path) -> String {
    let (sources, mut out) = (source::all(root), String::new());
    let mut say = |line: String| out.push_str(&(line + "\n"));
    say(format!(
        "{:<36} {:>10} {:>12}",
        "VMPI-LL", "this (LoC)", "IRATI (LoC)"
    ));
    for (side, own) in [("guest side", GUEST), ("host side", HOST)] {
        let shared = lines(&sources, SHARED);
        let own_lines = lines(&sources, own);
        say(format!(
            "{side:<36} {:>10} {:>12}",
            own_lines + shared,
            "about 1000"
        ));
        say(format!(
            "  its own: {own_lines}; shared by both sides: {shared}"
        ));
    }
    say(format!(
        "{:<36} {:>10} {:>12}",
        "over Xen, both sides",
        lines(&sources, XEN) + lines(&sources, REGION),
        "about 1000"
    ));
    say(format!(
        "  its own: {}; shared with ivshmem: {}",
        lines(&sources, XEN),
        lines(&sources, REGION)
    ));
    say("\nlines of code of the crates:".to_owned());
    let mut total = 0;
    for crate_dir in crates(&sources) {
        let prefix = crate_dir.join("src");
        let count: usize = sources
            .iter()
            .filter(|source| source.path.starts_with(&prefix) && source.extension() == "rs")
            .filter(|source| !is_test_module(source))
            .map(Source::code_lines)
            .sum();
        total += count;
        say(format!("  {:<34} {count:>10}", crate_dir.display()));
    }
    say(format!("  {:<34} {total:>10}", "together"));
    out
}

fn lines(sources: &[Source], paths: &[&str]) -> usize {
    sources
        .iter()
        .filter(|source| paths.iter().any(|path| source.path == located(path)))
        .map(Source::code_lines)
        .sum()
}

/// The directories of the crates, in the order of their paths.
fn crates(sources: &[Source]) -> Vec<PathBuf> {
    let manifests = sources
        .iter()
        .filter(|source| source.path.ends_with("Cargo.toml") && source.path.starts_with("crates"));
    manifests
        .filter_map(|manifest| Some(manifest.path.parent()?.to_owned()))
        .collect()
}

/// A module of tests in a file of its own.
fn is_test_module(source: &Source) -> bool {
    source.path.file_stem().is_some_and(|stem| stem == "tests")
}

/// The path of a file of VMPI-LL: below its directory, or below the root.
fn located(path: &str) -> PathBuf {
    if path.starts_with("crates/") {
        PathBuf::from(path)
    } else {
        Path::new(LL).join(path)
    }
}

const LL: &str = "crates/io/vmpi/src/ll";
const GUEST: &[&str] = &[
    "interrupts.rs",
    "ivshmem/guest.rs",
    "polling.rs",
    "crates/io/nic/src/pci.rs",
    "crates/io/nic/src/vfio.rs",
];
const HOST: &[&str] = &["ivshmem/host.rs", "ivshmem/server.rs", "qemu.rs"];
const SHARED: &[&str] = &[
    "mod.rs",
    "attach.rs",
    "device.rs",
    "layout.rs",
    "station.rs",
    "ivshmem/mod.rs",
];

/// What every device of shared memory has.
const REGION: &[&str] = &[
    "mod.rs",
    "attach.rs",
    "device.rs",
    "layout.rs",
    "station.rs",
    "polling.rs",
];
const XEN: &[&str] = &[
    "crates/base/sys/src/xen.rs",
    "xen/mod.rs",
    "xen/address.rs",
    "xen/device.rs",
    "xen/guest.rs",
    "xen/host.rs",
    "xen/message.rs",
    "xen/region.rs",
    "xen/store.rs",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_files_exist() {
        let root = crate::root();
        for path in GUEST.iter().chain(HOST).chain(SHARED).chain(XEN) {
            let path = located(path);
            assert!(
                root.join(&path).is_file(),
                "{} is not there",
                path.display()
            );
        }
    }
}
