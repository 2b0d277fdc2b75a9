//! Which crate may depend on what, and in which of its files, under which licences, without
//! duplicates in the data path, and with a row in the page of dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::source::{self, Source};
use crate::{dependencies_page, licence};

/// Returns one line for each breach of the rules below.
pub(crate) fn check(root: &Path) -> Vec<String> {
    match metadata_of_all(root) {
        Ok(metadata) => {
            let mut breaches = rows(&metadata);
            breaches.extend(licences(&metadata));
            breaches.extend(duplicates(&metadata));
            breaches.extend(strays(&source::all(root)));
            match std::fs::read_to_string(root.join(dependencies_page::PAGE)) {
                Ok(page) => breaches.extend(dependencies_page::breaches(&metadata, &page)),
                Err(error) => breaches.push(format!("{}: {error}", dependencies_page::PAGE)),
            }
            breaches
        }
        Err(error) => vec![format!("cargo metadata: {error}")],
    }
}

/// The metadata of the workspace, with the packages of the bindings and of what they use.
fn metadata_of_all(root: &Path) -> Result<Value, String> {
    let mut all = metadata(root)?;
    for binding in BINDINGS {
        let directory = root.join(binding);
        let of_binding = metadata(&directory).map_err(|error| format!("{binding}: {error}"))?;
        let known: BTreeSet<String> = list(&all, "packages")
            .map(|package| text(package, "id").to_owned())
            .collect();
        let new = list(&of_binding, "packages")
            .filter(|package| !known.contains(text(package, "id")))
            .cloned();
        let new: Vec<Value> = new.collect();
        if let Some(packages) = all["packages"].as_array_mut() {
            packages.extend(new);
        }
    }
    Ok(all)
}

fn metadata(root: &Path) -> Result<Value, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

fn rows(metadata: &Value) -> Vec<String> {
    let mut breaches = Vec::new();
    for package in list(metadata, "packages").filter(|package| package["source"].is_null()) {
        let name = text(package, "name");
        let Some((_, allowed)) = ALLOWED.iter().find(|(row, _)| *row == name) else {
            breaches.push(format!("{name} has no row in xtask/src/deps.rs; add one"));
            continue;
        };
        for dependency in list(package, "dependencies") {
            let needed = text(dependency, "name");
            let for_tests = text(dependency, "kind") == "dev";
            let known = allowed.split(' ').any(|word| word == needed);
            let allowed_here = known || (for_tests && test_may_use(needed));
            if !allowed_here {
                breaches.push(format!(
                    "{name} must not depend on {needed}; allowed are: {allowed}"
                ));
            }
        }
    }
    breaches
}

fn test_may_use(name: &str) -> bool {
    TEST_ONLY.contains(&name) || name.starts_with("carina-")
}

fn licences(metadata: &Value) -> Vec<String> {
    list(metadata, "packages")
        .filter(|package| !licence::is_allowed(text(package, "license")))
        .map(|package| {
            let (name, licence) = (text(package, "name"), text(package, "license"));
            format!("{name}: licence {licence:?} is not on the list in xtask/src/licence.rs")
        })
        .collect()
}

/// Files that name a crate outside of the part of their crate that may ([`ONLY_IN`]).
fn strays(files: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    for (needed, within, allowed) in ONLY_IN {
        for file in files.iter().filter(|file| file.extension() == "rs") {
            let Ok(part) = file.path.strip_prefix(within) else {
                continue;
            };
            let part = part.with_extension("");
            let is_allowed = allowed.iter().any(|path| part.starts_with(path));
            if !is_allowed && file.text.contains(needed) {
                breaches.push(format!(
                    "{}: may not name {needed}; below {within}, these may: {}",
                    file.path.display(),
                    allowed.join(", ")
                ));
            }
        }
    }
    breaches
}

/// Two versions of a crate in what a data-plane thread is built of.
fn duplicates(metadata: &Value) -> Vec<String> {
    let packages: BTreeMap<&str, (&str, &str)> = list(metadata, "packages")
        .map(|package| {
            (
                text(package, "id"),
                (text(package, "name"), text(package, "version")),
            )
        })
        .collect();
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"], "nodes")
        .map(|node| (text(node, "id"), node))
        .collect();
    let mut todo: Vec<&str> = packages
        .iter()
        .filter(|(_, (name, _))| DATA_PATH.contains(name))
        .map(|(id, _)| *id)
        .collect();
    let mut seen = BTreeSet::new();
    // What runs in the compiler is not in the data path.
    let macros: BTreeSet<&str> = list(metadata, "packages")
        .filter(|package| list(package, "targets").any(is_macro))
        .map(|package| text(package, "id"))
        .collect();
    while let Some(id) = todo.pop() {
        let is_control = packages
            .get(id)
            .is_some_and(|(name, _)| CONTROL.contains(name));
        if macros.contains(id) || is_control || !seen.insert(id) {
            continue;
        }
        let normal = list(nodes[id], "deps")
            .filter(|dependency| list(dependency, "dep_kinds").any(|kind| kind["kind"].is_null()));
        todo.extend(normal.map(|dependency| text(dependency, "pkg")));
    }
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, version) in seen.iter().map(|id| packages[id]) {
        versions.entry(name).or_default().insert(version);
    }
    versions
        .into_iter()
        .filter(|(_, versions)| versions.len() > 1)
        .map(|(name, versions)| format!("{name}: {versions:?} are all in the data path"))
        .collect()
}

fn is_macro(target: &Value) -> bool {
    list(target, "kind").any(|kind| kind == "proc-macro")
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// One row a crate, arrows pointing down only. A name here is a decision;
/// docs/reference/dependencies.md gives its reason.
const ALLOWED: &[(&str, &str)] = &[
    ("carina-time", ""),
    ("carina-text", "serde serde_json strsim thiserror toml"),
    ("carina-random", "rand_xoshiro"),
    ("carina-wire", "crc32fast"),
    ("carina-sys", "libc rustix"),
    (
        "carina-api",
        "carina-wire carina-sys serde serde_json thiserror",
    ),
    ("carina-seccomp", "carina-sys libc rustix"),
    ("carina-ring", "carina-sys rustix thiserror"),
    ("carina-ring-model", "carina-sys thiserror loom"),
    ("carina-vring", "carina-ring carina-sys thiserror"),
    (
        "carina-vhost-user",
        "carina-sys carina-vring rustix thiserror tracing vhost",
    ),
    (
        "carina-vsock",
        "carina-sys carina-vring carina-vhost-user rustix thiserror",
    ),
    (
        "carina-nic",
        "carina-ring carina-sys carina-vring rustix thiserror",
    ),
    (
        "carina-vmpi",
        "carina-time carina-wire carina-sys carina-nic carina-ring carina-vring carina-vhost-user \
         rustix socket2 \
         thiserror",
    ),
    ("carina-cdap", "prost"),
    ("carina-efcp", "carina-random carina-time carina-wire"),
    ("carina-routing", "carina-time"),
    (
        "carina-ipcp",
        "carina-random carina-time carina-wire carina-efcp carina-routing serde",
    ),
    (
        "carina-management",
        "carina-time carina-wire carina-cdap carina-ipcp carina-routing prost",
    ),
    (
        "carina-dialects",
        "carina-time carina-wire carina-cdap carina-ipcp carina-management carina-routing prost",
    ),
    (
        "carina-policy-example",
        "carina-time carina-efcp carina-ipcp",
    ),
    (
        "carina-protect",
        "carina-time carina-wire carina-ipcp aws-lc-rs base64 crc32fast lz4_flex thiserror",
    ),
    (
        "carina-netdev",
        "carina-random carina-sys rustix libc thiserror",
    ),
    (
        "carina-sim",
        "carina-random carina-time carina-wire carina-dialects carina-ipcp carina-protect \
         carina-vnet serde serde_json",
    ),
    ("carina-frame", "carina-sys carina-time thiserror"),
    (
        "carina-frame-engine",
        "carina-time carina-wire carina-sys carina-ring carina-frame thiserror",
    ),
    (
        "carina-engine",
        "carina-time carina-wire carina-sys carina-ring carina-frame-engine",
    ),
    ("carina-filter", "thiserror"),
    ("carina-embed", "carina-random carina-time thiserror"),
    (
        "carina-apps",
        "carina-time carina-wire carina-sys carina-frame carina-frame-engine carina-filter \
         carina-netdev carina-random \
         aws-lc-rs serde thiserror",
    ),
    (
        "carina-graph",
        "carina-text carina-time carina-wire carina-sys carina-frame carina-frame-engine \
         carina-apps serde thiserror toml",
    ),
    (
        "carina-lua",
        "carina-time carina-sys carina-frame carina-frame-engine carina-graph mlua serde \
         thiserror toml",
    ),
    (
        "carina-ports",
        "carina-time carina-wire carina-sys carina-frame carina-frame-engine carina-apps \
         carina-graph carina-netdev \
         carina-nic carina-vhost-user carina-vring serde thiserror",
    ),
    (
        "carina-vnet",
        "carina-text carina-api carina-embed carina-random carina-time carina-wire base64 \
         quick-xml serde serde_json thiserror toml",
    ),
    (
        "carina-vnet-roles",
        "carina-api carina-client carina-random carina-sys carina-text carina-time carina-vnet \
         carina-vnet-web axum base64 rcgen rusqlite \
         rustix rustls rustls-webpki serde serde_json thiserror tokio tokio-rustls toml",
    ),
    (
        "carina-lwaftr",
        "carina-time carina-wire carina-sys carina-frame carina-frame-engine carina-filter \
         carina-apps crc32fast rustix serde serde_json \
         thiserror",
    ),
    (
        "carina-nfv",
        "carina-text carina-api carina-time carina-wire carina-sys carina-frame \
         carina-frame-engine carina-filter carina-apps carina-graph carina-netdev carina-nic \
         carina-ports \
         carina-measure serde thiserror toml",
    ),
    (
        "carina-dataplane",
        "carina-wire carina-api carina-sys carina-ring carina-ipcp carina-engine \
         carina-frame-engine \
         carina-time rustix thiserror tracing",
    ),
    (
        "carina-shims",
        "carina-wire carina-api carina-sys carina-ring carina-vmpi carina-netdev carina-engine \
         carina-frame-engine \
         carina-frame carina-ipcp carina-dataplane carina-time rustix slab thiserror tracing",
    ),
    (
        "carina-node",
        "carina-text carina-time carina-wire carina-api carina-sys carina-ring carina-vmpi \
         carina-dialects carina-ipcp \
         carina-protect \
         carina-netdev carina-engine carina-frame-engine carina-dataplane carina-gateway \
         carina-ip \
         carina-shims carina-graph carina-ports rustix serde serde_json toml thiserror tracing \
         tokio axum wildmatch",
    ),
    (
        "carina-client",
        "carina-api carina-sys carina-ring libc rustix serde serde_json thiserror",
    ),
    (
        "carina-wrap",
        "carina-api carina-seccomp carina-sys libc rustix serde serde_json thiserror wildmatch",
    ),
    ("carina-nss", "carina-api carina-wrap libc"),
    ("carina-preload", "carina-wrap libc rustix"),
    (
        "carina-gateway",
        "carina-api carina-client carina-sys carina-wrap rustix serde thiserror tracing",
    ),
    (
        "carina-ip",
        "carina-api carina-apps carina-client carina-netdev carina-sys carina-wire serde serde_json \
         thiserror tracing",
    ),
    ("carina-guest", ""),
    ("carina-namespaces", "carina-sys rustix serde thiserror"),
    ("carina-scratch", "rustix thiserror"),
    (
        "carina-vm",
        "carina-api carina-netdev carina-sys rustix serde serde_json thiserror base64 xxhash-rust",
    ),
    (
        "carina-dissect",
        "carina-cdap carina-wire serde_json thiserror",
    ),
    (
        "carina-import",
        "carina-text carina-api carina-ipcp carina-time carina-topology carina-vnet carina-wire \
         saphyr-parser serde serde_json thiserror",
    ),
    (
        "carina-measure",
        "carina-text carina-random carina-api carina-sys carina-ring carina-client rustix serde \
         serde_json socket2 thiserror \
         plotters",
    ),
    (
        "carina-topology",
        "carina-api carina-ipcp carina-management carina-text serde serde_json thiserror",
    ),
    (
        "carina-lab",
        "carina-text carina-api carina-namespaces carina-node carina-scratch carina-sys carina-topology carina-vm carina-vsock rustix serde serde_json thiserror",
    ),
    (
        "carina-vnet-access",
        "carina-apps carina-frame-engine carina-frame carina-netdev carina-ports carina-sys \
         carina-time \
         carina-vnet carina-wire aws-lc-rs base64 boringtun rustix serde serde_json thiserror",
    ),
    (
        "carina-vnet-web",
        "carina-api carina-dissect carina-sys carina-vnet carina-wire axum http-body serde \
         serde_json thiserror tokio",
    ),
    (
        "carina-vnet-images",
        "carina-namespaces carina-sys carina-vm carina-vnet aws-lc-rs serde serde_json thiserror",
    ),
    (
        "carina-vnet-host",
        "carina-api carina-apps carina-client carina-embed carina-frame-engine carina-frame \
         carina-graph \
         carina-namespaces carina-netdev carina-ports carina-sys carina-time carina-vm carina-vnet \
         carina-vnet-access carina-vnet-images carina-vnet-web carina-wire axum base64 rustix serde serde_json thiserror tokio tracing",
    ),
    (
        "carina-vnet-agent",
        "carina-api carina-sys carina-vnet carina-vnet-access carina-vnet-host carina-vnet-roles \
         carina-vnet-web \
         rustls serde serde_json thiserror",
    ),
    (
        "carina-bench",
        "carina-text carina-api carina-apps carina-client carina-embed carina-engine carina-frame-engine carina-frame carina-ip carina-lab carina-lua carina-lwaftr carina-measure carina-namespaces carina-netdev carina-ports carina-scratch \
         carina-sys carina-time carina-topology carina-vm carina-vnet carina-vnet-host \
         carina-vnet-roles carina-wire carina-wrap plotters rustix serde serde_json thiserror",
    ),
    (
        "carina-cli",
        "carina-text carina-apps carina-graph carina-lua carina-lwaftr carina-nfv carina-ports carina-vnet carina-vnet-access carina-vnet-agent carina-vnet-host carina-vnet-images carina-vnet-roles carina-vnet-web carina-bench carina-dissect carina-embed carina-import carina-lab carina-measure carina-namespaces carina-scratch carina-topology carina-api carina-sys carina-ring carina-time carina-frame carina-engine carina-frame-engine carina-client carina-gateway carina-ip carina-node carina-vm carina-vsock carina-wrap \
         carina-wire carina-netdev carina-nic carina-sim rustix serde serde_json thiserror tracing tracing-subscriber clap ratatui plotters",
    ),
    ("carina-pages", "carina-cli clap clap_complete clap_mangen"),
    (
        "carina-fuzz",
        "carina-time carina-wire carina-api carina-sys carina-ring carina-vring carina-vhost-user \
         carina-vmpi carina-vsock carina-node carina-cdap \
         carina-efcp carina-routing carina-ipcp carina-management carina-dialects \
         carina-protect carina-netdev carina-sim \
         carina-shims carina-dissect carina-gateway carina-ip carina-import carina-lab carina-apps carina-graph carina-lua carina-lwaftr carina-nfv carina-nic carina-vnet carina-vnet-access carina-vnet-host carina-filter carina-frame-engine carina-frame carina-wrap libfuzzer-sys tempfile",
    ),
    ("xtask", "rustix serde_json"),
    (
        "carina-tokio",
        "carina-client bytes futures-core futures-sink futures-util http-body-util hyper hyper-util \
         prost rustix tokio tonic tower",
    ),
    ("carina-python", "carina-client pyo3 rustix"),
];

/// Workspaces of bindings, which `cargo metadata` of the main workspace leaves out.
const BINDINGS: [&str; 2] = ["bindings/tokio", "bindings/python"];

/// A crate, a directory, and the only paths below it whose files may name the crate. The parts that
/// are not for `carina lab` itself use the crates of `crates/host`, as `lab` does. `carina vnet
/// import` reads the topologies of labs, too.
const ONLY_IN: &[(&str, &str, &[&str])] = &[(
    "carina_lab",
    "crates/programs/cli/src",
    &["commands/lab", "commands/vnet/import"],
)];

const TEST_ONLY: [&str; 7] = [
    "proptest",
    "tempfile",
    "loom",
    "rustix",
    "libc",
    "etherparse",
    "toml",
];

const DATA_PATH: [&str; 11] = [
    "carina-wire",
    "carina-sys",
    "carina-ring",
    "carina-vring",
    "carina-vmpi",
    "carina-frame",
    "carina-frame-engine",
    "carina-engine",
    "carina-dataplane",
    "carina-shims",
    "carina-client",
];

/// What a crate of the data path calls from its control threads only: `vhost` handles messages of
/// vhost-user's sockets.
const CONTROL: [&str; 1] = ["vhost"];

#[cfg(test)]
mod tests;
