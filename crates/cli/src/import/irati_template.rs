//! DIF templates of IRATI: what the members of a normal DIF have in common.

use serde_json::{Value, json};

use super::json::Node;
use super::{Draft, Member, irati_cubes};

/// Keys of `dataTransferConstants` that are field widths, and their names here.
const WIDTHS: [(&str, &str); 8] = [
    ("addressLength", "address"),
    ("cepIdLength", "cep"),
    ("qosIdLength", "qos"),
    ("sequenceNumberLength", "seq"),
    ("ctrlSequenceNumberLength", "ctrl_seq"),
    ("lengthLength", "length"),
    ("rateLength", "rate"),
    ("frameLength", "frame"),
];

/// Sections that say by which policies a component works. All but the last key of the path is
/// the section.
const COMPONENTS: [(&str, &str); 8] = [
    ("rmtConfiguration", "RMT"),
    ("enrollmentTaskConfiguration", "enrollment"),
    ("flowAllocatorConfiguration", "flow allocation"),
    ("namespaceManagerConfiguration", "names and addresses"),
    ("securityManagerConfiguration", "security"),
    ("resourceAllocatorConfiguration", "resource allocation"),
    ("routingConfiguration", "routing"),
    ("pffConfiguration", "forwarding"),
];

/// Takes a template into a member.
pub(super) fn take(draft: &mut Draft, file: &str, template: &Node, member: &mut Member) {
    for (key, line, value) in template.fields() {
        match key.as_str() {
            "difType" => {
                if value.text() != Some("normal-ipc") {
                    let what = format!("difType {}", value.text().unwrap_or_default());
                    let why = "the template of a normal DIF has difType normal-ipc";
                    draft.note(file, *line, what, why);
                }
            }
            "dataTransferConstants" => constants(draft, file, value, member),
            "qosCubes" => cubes(draft, file, value, member),
            "knownIPCProcessAddresses" => known_addresses(draft, file, value, member),
            "addressPrefixes" => prefixes(draft, file, value, member),
            "configParameters" => {
                for (key, line, _) in value.fields() {
                    let why = "members of normal DIFs take no such parameter";
                    draft.note(file, *line, format!("configParameters {key}"), why);
                }
            }
            _ => match COMPONENTS.iter().find(|(name, _)| *name == key) {
                Some((_, words)) => component(draft, file, (key, *line), value, words),
                None => {
                    let why = "this is no section of a template";
                    draft.note(file, *line, key.clone(), why);
                }
            },
        }
    }
}

fn constants(draft: &mut Draft, file: &str, from: &Node, member: &mut Member) {
    for (key, line, value) in from.fields() {
        let number: Option<u64> = value.text().and_then(|text| text.parse().ok());
        let width = WIDTHS.iter().find(|(name, _)| *name == key);
        match (width, key.as_str(), number) {
            (Some((_, here)), _, Some(bytes)) => {
                let widths = member.table(&["widths"]);
                widths.insert((*here).to_owned(), bytes.into());
            }
            (_, "maxPduSize", Some(bytes)) => {
                member.config.insert("max_pdu".to_owned(), bytes.into());
            }
            (_, "maxPduLifetime", Some(ms)) => {
                let ms = Value::from(ms);
                member.config.insert("max_pdu_lifetime_ms".to_owned(), ms);
            }
            // Ports have no field in PDUs.
            (_, "portIdLength", _) => {}
            (_, "difFragmentation" | "difConcatenation" | "difIntegrity", _)
                if value.text() == Some("false") => {}
            (_, "difFragmentation", _) if value.text() == Some("true") => {
                let policies = member.table(&["policies"]);
                policies.insert("delimiting".to_owned(), json!({ "name": "flag-byte" }));
            }
            _ => {
                let what = format!("dataTransferConstants {key}");
                draft.note(file, *line, what, "there is no such constant here");
            }
        }
    }
}

fn cubes(draft: &mut Draft, file: &str, from: &Node, member: &mut Member) {
    let mut made = Vec::new();
    for item in from.items() {
        match irati_cubes::cube(item) {
            Ok((cube, notes)) => {
                made.push(cube);
                for (line, what, why) in notes {
                    draft.note(file, line, what, why);
                }
            }
            Err(why) => draft.note(file, item.line, "a QoS cube", why),
        }
    }
    if !made.is_empty() {
        member.config.insert("cubes".to_owned(), Value::Array(made));
    }
}

fn known_addresses(draft: &mut Draft, file: &str, from: &Node, member: &mut Member) {
    let mut entries = Vec::new();
    for item in from.items() {
        let name = item.text_of("apName").filter(|name| !name.is_empty());
        match (name, item.number_of("address")) {
            (Some(name), Some(address)) => match item.text_of("apInstance") {
                Some(instance) if !instance.is_empty() && instance != "1" => {
                    entries.push(format!("{name}|{instance}={address}"));
                }
                _ => entries.push(format!("{name}={address}")),
            },
            _ => draft.note(
                file,
                item.line,
                "knownIPCProcessAddresses",
                "an entry has `apName`, `apInstance` and `address`",
            ),
        }
    }
    parameter(member, "addresses", entries);
}

fn prefixes(draft: &mut Draft, file: &str, from: &Node, member: &mut Member) {
    let mut entries = Vec::new();
    for item in from.items() {
        let part = item.text_of("organization").filter(|name| !name.is_empty());
        match (part, item.number_of("addressPrefix")) {
            (Some(part), Some(prefix)) => {
                // 0 is no address.
                let (first, last) = (prefix.max(1), prefix + PREFIX_ADDRESSES - 1);
                entries.push(format!("{part}={first}-{last}"));
            }
            _ => draft.note(
                file,
                item.line,
                "addressPrefixes",
                "an entry has `organization` and `addressPrefix`",
            ),
        }
    }
    parameter(member, "prefixes", entries);
}

fn parameter(member: &mut Member, key: &str, entries: Vec<String>) {
    if entries.is_empty() {
        return;
    }
    let spec = member.table(&["policies", "address-assignment"]);
    spec.insert("name".to_owned(), "known-addresses".into());
    let params = member.table(&["policies", "address-assignment", "params"]);
    params.insert(key.to_owned(), entries.join(",").into());
}

/// Policy sets that every DIF of the dialect has are carried over by being the defaults.
fn component(draft: &mut Draft, file: &str, (key, line): (&str, usize), from: &Node, words: &str) {
    let mut sets = Vec::new();
    policy_sets(from, &mut sets);
    for (at, name) in sets {
        if !["default", "link-state"].contains(&name.as_str()) {
            let why = format!("{words} has its usual policies only");
            draft.note(file, at, format!("{key}: policy set {name}"), why);
        }
    }
    for inner in parameters(from) {
        let what = format!("{key}: parameter {}", inner.1);
        let why = format!("{words} has no such parameter here");
        draft.note(file, inner.0.max(line), what, why);
    }
    if let Some(profiles) = from.get("authSDUProtProfiles") {
        profile_notes(draft, file, profiles);
    }
}

/// Names of the policy sets in a section, however deep, with their lines.
fn policy_sets(from: &Node, sets: &mut Vec<(usize, String)>) {
    for (key, line, value) in from.fields() {
        if key == "policySet" || key.ends_with("PolicySet") {
            let name = value.text_of("name").or(value.text()).unwrap_or_default();
            sets.push((*line, name.to_owned()));
        } else if key != "authSDUProtProfiles" {
            policy_sets(value, sets);
        }
    }
}

/// Parameters of the policy sets in a section. Those of the usual routing and enrollment policies
/// are times that are fixed here.
fn parameters(from: &Node) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (key, _, value) in from.fields() {
        if key == "parameters" {
            for item in value.items() {
                let name = item.text_of("name").unwrap_or("?");
                found.push((item.line, name.to_owned()));
            }
        } else if key != "authSDUProtProfiles" {
            found.extend(parameters(value));
        }
    }
    found
}

/// Profiles of authentication and SDU protection.
fn profile_notes(draft: &mut Draft, file: &str, profiles: &Node) {
    for (key, line, value) in profiles.fields() {
        let all = match key.as_str() {
            "default" => std::slice::from_ref(value),
            _ => value.items(),
        };
        for profile in all {
            for (what, _, policy) in profile.fields() {
                let name = policy.text_of("name").unwrap_or_default();
                let why = match (what.as_str(), name) {
                    ("authPolicy", "PSOC_authentication-none") | ("underlyingDIF", _) => continue,
                    ("authPolicy", "PSOC_authentication-password") => {
                        "write the password to a file and set `auth = \"password:FILE\"` of the \
                         [[dif]]"
                    }
                    ("authPolicy", _) => "there are none and password",
                    _ => "PDUs of this dialect are not protected here",
                };
                let what = format!("securityManagerConfiguration: {key}: {what} {name}");
                draft.note(file, *line, what, why);
            }
        }
    }
}

/// Addresses that a prefix stands for.
const PREFIX_ADDRESSES: u64 = 16;
