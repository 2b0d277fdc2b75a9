//! Topologies of containerlab: `name` and `topology` with `nodes` and `links`
//! (containerlab, `docs/manual/topo-def-file.md`).
//!
//! A container becomes a namespace; the system in its image does not run in it. A variable
//! `${NAME:=DEFAULT}` or `${NAME:-DEFAULT}` is replaced by its default. A variable without a
//! default stays as it is, with a note.

use super::draft::{Draft, DraftEnd, DraftLink, beginning};
use super::yaml::Yaml;
use super::{Imported, Source};
use crate::error::ImportError;
use carina_vnet::document::{Kind, limits};

pub(super) fn read(source: Source<'_>) -> Result<Imported, ImportError> {
    let mut draft = Draft::new(source, Kind::Namespace);
    let text = with_defaults(source.text, &mut draft);
    let whole = Yaml::read(&text).map_err(|error| ImportError::Yaml {
        file: source.file.to_owned(),
        source: error,
    })?;
    if let Some(name) = whole.get("name").and_then(Yaml::text) {
        draft.name(name);
    }
    for (key, value) in whole.entries() {
        if !matches!(key.as_str(), "name" | "topology") {
            draft.note(value.line, key, reason(key));
        }
    }
    let topology = whole.get("topology");
    if topology.is_none() {
        let netlab = ["nodes", "links"]
            .iter()
            .any(|key| whole.get(key).is_some());
        let hint = if netlab {
            "; --from netlab reads files of netlab"
        } else {
            ""
        };
        return Err(ImportError::Document {
            file: source.file.to_owned(),
            reason: format!("it has no `topology`, which files of containerlab have{hint}"),
        });
    }
    for (key, value) in topology.map(Yaml::entries).unwrap_or_default() {
        match key.as_str() {
            "nodes" => {}
            "links" => {}
            _ => draft.note(value.line, format!("topology.{key}"), reason(key)),
        }
    }
    let of = |key: &str| topology.and_then(|topology| topology.get(key));
    for (name, node) in of("nodes").map(Yaml::entries).unwrap_or_default() {
        read_node(&mut draft, name, node);
    }
    for link in of("links").map(Yaml::items).unwrap_or_default() {
        read_link(&mut draft, link);
    }
    draft.finish()
}

fn read_node(draft: &mut Draft, name: &str, node: &Yaml) {
    draft.node(name, node.line);
    for (key, value) in node.entries() {
        let what = format!("{key} of {}", beginning(name));
        match (key.as_str(), value.text()) {
            ("kind", Some("linux")) => {}
            ("kind", Some("bridge" | "ovs-bridge")) => {
                draft.node(name, node.line).kind = Some(Kind::Bridge);
            }
            ("kind", Some(kind)) => {
                let why = format!("{} does not run in a namespace", beginning(kind));
                draft.note(value.line, what, why);
            }
            ("cpu", Some(text)) => match processors(text) {
                Some(cpus) => draft.node(name, node.line).cpus = Some(cpus),
                None => draft.note(value.line, what, "a node has whole processors"),
            },
            ("memory", Some(text)) => match memory(text) {
                Some(mib) => draft.node(name, node.line).memory = Some(mib),
                None => draft.note(value.line, what, "a node cannot have this much memory"),
            },
            ("type", _) => draft.note(value.line, what, "a namespace has no type of hardware"),
            ("exec", _) if !value.items().is_empty() => {
                for command in value.items().iter().filter_map(Yaml::text) {
                    draft.exec(name, command, value.line);
                }
            }
            ("env", _) if !value.entries().is_empty() => {
                for (key, value) in value.entries() {
                    let text = value.text().unwrap_or_default();
                    draft.variable(name, (key, text), value.line);
                }
            }
            _ => draft.note(value.line, what, reason(key)),
        }
    }
}

/// The reason why a key is not translated.
fn reason(key: &str) -> &'static str {
    match key {
        "prefix" => "names of nodes have no prefix",
        "mgmt" | "mgmt-ipv4" | "mgmt-ipv6" | "mgmt-net" => {
            "a network has no management network; `carina vnet exec` reaches the nodes"
        }
        "kinds" | "groups" | "defaults" | "group" => "a document has no kinds or groups of nodes",
        "image" | "image-pull-policy" | "runtime" | "auto-remove" | "restart-policy" => {
            "a namespace has no image"
        }
        "binds"
        | "startup-config"
        | "config"
        | "license"
        | "enforce-startup-config"
        | "suppress-startup-config"
        | "certificate" => "files are not read; add `files` and a `filesystem` to the node",
        "exec" | "cmd" | "entrypoint" | "user" | "env" | "env-files" | "stages" | "wait-for"
        | "startup-delay" | "healthcheck" | "sysctls" => {
            "it belongs to the image; `exec` of a node starts programs"
        }
        "ports" | "publish" | "dns" | "network-mode" | "aliases" => {
            "a namespace has only the links of the document"
        }
        "labels" | "vars" | "position" => "a document has no labels",
        "mtu" => "it is no number of bytes",
        "type" => "only links of type veth have two nodes as their ends",
        _ => "a document has no equivalent",
    }
}

fn processors(text: &str) -> Option<u32> {
    let cpus = text.parse().ok()?;
    (1..=limits::CPUS_MAX).contains(&cpus).then_some(cpus)
}

/// Parses a size of memory: `512`, in bytes, or `512MB`, `1Gb`, `512 mib` (containerlab, "memory").
fn memory(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    let mib = match text[end..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => number >> 20,
        "k" | "kb" | "kib" => number >> 10,
        "m" | "mb" | "mib" => number,
        "g" | "gb" | "gib" => number.checked_mul(1024)?,
        _ => return None,
    };
    limits::MEMORY_MIB.contains(&mib).then_some(mib)
}

/// The text with its variables replaced by their defaults.
fn with_defaults(text: &str, draft: &mut Draft) -> String {
    let mut whole = String::with_capacity(text.len());
    for (index, line) in text.lines().enumerate() {
        let mut rest = line;
        while let Some((before, (name, variable, after))) = rest
            .split_once("${")
            .and_then(|(before, after)| Some((before, variable(after)?)))
        {
            whole.push_str(before);
            match variable {
                Some(default) => whole.push_str(default),
                None => {
                    let what = format!("the variable {}", beginning(name));
                    draft.note(index + 1, what, "variables of the environment are not read");
                    whole.push_str(name);
                }
            }
            rest = after;
        }
        whole.push_str(rest);
        whole.push('\n');
    }
    whole
}

/// Parses `NAME:=DEFAULT}`: returns the name, the default, and the text behind the brace.
fn variable(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let (inside, after) = text.split_once('}')?;
    let end = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let (name, rest) = inside.split_at(end.unwrap_or(inside.len()));
    let defaults = [":=", ":-", "=", "-"];
    let default = defaults.iter().find_map(|mark| rest.strip_prefix(mark));
    Some((name, default, after))
}

fn read_link(draft: &mut Draft, link: &Yaml) {
    let line = link.line;
    let ends: Vec<Option<(String, Option<String>)>> = link
        .get("endpoints")
        .map(Yaml::items)
        .unwrap_or_default()
        .iter()
        .map(end_of)
        .collect();
    let mut of = DraftLink::default();
    for (key, value) in link.entries() {
        let is_read = match key.as_str() {
            "endpoints" => true,
            "type" => value.text() == Some("veth"),
            "mtu" => {
                of.mtu = value.text().and_then(|text| text.parse().ok());
                of.mtu.is_some()
            }
            _ => false,
        };
        if !is_read {
            draft.note(value.line, format!("{key} of a link"), reason(key));
        }
    }
    let [Some((one, first)), Some((other, second))] = &ends[..] else {
        let what = "a link without two endpoints NODE:INTERFACE";
        return draft.note(line, what, "links are between two nodes");
    };
    for node in [one, other] {
        if !draft.has(node) {
            let what = format!("a link to {:?}", beginning(node));
            let why = "it is no node: the host, its management network or a capture";
            return draft.note(line, what, why);
        }
    }
    let ends = [
        DraftEnd {
            node: one,
            interface: first.as_deref(),
        },
        DraftEnd {
            node: other,
            interface: second.as_deref(),
        },
    ];
    draft.link(ends, of, line);
}

/// Parses the end of a link: `NODE:INTERFACE`, or a mapping with `node` and `interface`.
fn end_of(end: &Yaml) -> Option<(String, Option<String>)> {
    if let Some(text) = end.text() {
        let (node, interface) = text.split_once(':')?;
        return Some((node.to_owned(), Some(interface.to_owned())));
    }
    let node = end.get("node")?.text()?;
    let interface = end.get("interface").and_then(Yaml::text);
    Some((node.to_owned(), interface.map(str::to_owned)))
}
