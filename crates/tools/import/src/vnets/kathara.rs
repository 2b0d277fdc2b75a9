//! Reads `lab.conf` of Kathará: a line `DEVICE[N]="DOMAIN"` for each interface,
//! `DEVICE[OPTION]="VALUE"` for each option, and `LAB_NAME="…"` (Kathará, man page
//! `kathara-lab.conf(5)`).

use std::collections::BTreeMap;

use carina_vnet::document::{Kind, limits};

use super::draft::{Draft, DraftEnd, DraftLink, beginning};
use super::{Imported, Source};
use crate::error::ImportError;

/// The interfaces in a collision domain, and the line of the first one.
#[derive(Default)]
struct Domain {
    line: usize,
    ends: Vec<(String, String)>,
}

pub(super) fn read(source: Source<'_>) -> Result<Imported, ImportError> {
    let mut draft = Draft::new(source, Kind::Namespace);
    let mut domains: BTreeMap<String, Domain> = BTreeMap::new();
    for (index, text) in source.text.lines().enumerate() {
        let line = index + 1;
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let Some((left, value)) = text.split_once('=') else {
            draft.note(line, beginning(text), "it is no line DEVICE[…]=VALUE");
            continue;
        };
        let left = left.trim();
        let Some(value) = unquoted(value) else {
            draft.note(line, beginning(text), "text follows the value");
            continue;
        };
        match left.strip_suffix(']').and_then(|left| left.split_once('[')) {
            None if left == "LAB_NAME" => draft.name(value),
            None if left.starts_with("LAB_") => {}
            None => draft.note(line, beginning(left), "it is no line DEVICE[…]=VALUE"),
            Some((device, number)) if number.parse::<u32>().is_ok() => {
                draft.node(device, line);
                // A MAC address may follow the name of the domain.
                let (domain, mac) = value.split_once('/').unwrap_or((value, ""));
                if !mac.is_empty() {
                    let what = format!("the MAC address of {}", beginning(left));
                    draft.note(line, what, "those of links are made of their numbers");
                }
                let domain = domains.entry(domain.to_owned()).or_default();
                if domain.ends.is_empty() {
                    domain.line = line;
                }
                domain
                    .ends
                    .push((device.to_owned(), format!("eth{number}")));
            }
            Some((device, option)) => read_option(&mut draft, device, (option, value), line),
        }
    }
    let startup = "the files DEVICE.startup";
    draft.note(
        0,
        startup,
        "they are not read; add their commands to `exec` of a node",
    );
    for (name, domain) in &domains {
        let ends = domain.ends.iter().map(|(device, interface)| DraftEnd {
            node: device,
            interface: Some(interface),
        });
        let ends: Vec<DraftEnd<'_>> = ends.collect();
        draft.join(name, &ends, DraftLink::default(), domain.line);
    }
    draft.finish()
}

fn read_option(draft: &mut Draft, device: &str, (option, value): (&str, &str), line: usize) {
    let node = draft.node(device, line);
    match option {
        "mem" => match mebibytes(value).filter(|mib| limits::MEMORY_MIB.contains(mib)) {
            Some(mib) => node.memory = Some(mib),
            None => draft.note(
                line,
                format!("mem = {:?}", beginning(value)),
                "no memory of a node",
            ),
        },
        "cpus" => match value
            .parse()
            .ok()
            .filter(|cpus| (1..=limits::CPUS_MAX).contains(cpus))
        {
            Some(cpus) => node.cpus = Some(cpus),
            None => {
                let what = format!("cpus = {:?}", beginning(value));
                draft.note(line, what, "a node has whole processors");
            }
        },
        "exec" => draft.exec(device, value, line),
        "env" => match value.split_once('=') {
            Some(variable) => draft.variable(device, variable, line),
            None => draft.note(
                line,
                format!("env of {}", beginning(device)),
                reason(option),
            ),
        },
        _ => {
            let what = format!("{} of {}", beginning(option), beginning(device));
            draft.note(line, what, reason(option));
        }
    }
}

/// The reason why an option of a device is not translated.
fn reason(option: &str) -> &'static str {
    match option {
        "image" => "a namespace has no image",
        "bridged" | "port" => "a namespace has only the links of the document",
        "shell" | "env" | "entrypoint" | "args" | "sysctl" | "ulimit" => {
            "it belongs to the image; `exec` of a node starts programs"
        }
        "ipv6" => "nodes have IPv6 as their kernel has it",
        _ => "a document has no equivalent",
    }
}

/// The value without its quotes, and without the comment behind it; `None` if other text follows
/// the closing quote.
fn unquoted(value: &str) -> Option<&str> {
    let value = value.trim();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let Some(quote) = quote else {
        let (value, _) = value.split_once('#').unwrap_or((value, ""));
        return Some(value.trim_end());
    };
    let (inner, after) = value[1..].split_once(quote)?;
    let after = after.trim_start();
    (after.is_empty() || after.starts_with('#')).then_some(inner.trim())
}

/// Parses a size of memory such as `512m`, `1G` or `65536k`, in MiB.
fn mebibytes(value: &str) -> Option<u64> {
    let end = value.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = value[..end].parse().ok()?;
    match value[end..].to_ascii_lowercase().as_str() {
        "k" => Some(number / 1024),
        "m" => Some(number),
        "g" => number.checked_mul(1024),
        _ => None,
    }
}
