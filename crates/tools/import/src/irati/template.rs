//! Translates DIF templates of IRATI: the settings that all members of a normal DIF share.

use serde_json::{Value, json};

use super::cubes;
use super::shims::{PARAMETERS, names_of};
use crate::json::Node;
use crate::{Draft, Member};

/// Keys of `dataTransferConstants` that are field widths, each with its name in Carina.
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

/// A section of a template that selects the policies of a component.
struct Component {
    section: &'static str,
    words: &'static str,
    keys: &'static [&'static str],
    /// A section within this section that selects further policies; `None` for no such section.
    inner: Option<&'static str>,
    policy: &'static str,
}

const fn component_of(
    section: &'static str,
    words: &'static str,
    keys: &'static [&'static str],
    inner: Option<&'static str>,
    policy: &'static str,
) -> Component {
    Component {
        section,
        words,
        keys,
        inner,
        policy,
    }
}

const COMPONENTS: [Component; 7] = [
    component_of(
        "rmtConfiguration",
        "the RMT",
        &["policySet", "pffConfiguration"],
        Some("pffConfiguration"),
        "default",
    ),
    component_of(
        "enrollmentTaskConfiguration",
        "enrollment",
        &["policySet"],
        None,
        "default",
    ),
    component_of(
        "flowAllocatorConfiguration",
        "flow allocation",
        &["policySet"],
        None,
        "default",
    ),
    component_of(
        "namespaceManagerConfiguration",
        "the assignment of names and addresses",
        &["policySet"],
        None,
        "default",
    ),
    component_of(
        "securityManagerConfiguration",
        "security",
        &["policySet", PROFILES],
        None,
        "default",
    ),
    component_of(
        "resourceAllocatorConfiguration",
        "resource allocation",
        &["policySet", "pduftgConfiguration"],
        Some("pduftgConfiguration"),
        "default",
    ),
    component_of(
        "routingConfiguration",
        "routing",
        &["policySet"],
        None,
        "link-state",
    ),
];

/// Translates a template into the settings of a member.
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
            // Translated at the end, because it depends on the width of addresses.
            "addressPrefixes" => {}
            PARAMETERS => {
                for (key, line) in names_of(value) {
                    let why = "members of normal DIFs take no such parameter";
                    draft.note(file, line, format!("{PARAMETERS} {key}"), why);
                }
            }
            _ => match COMPONENTS.iter().find(|known| known.section == key) {
                Some(known) => component(draft, file, known, value),
                None => draft.note(file, *line, key.clone(), no_section(key)),
            },
        }
    }
    if let Some(all) = template.get("addressPrefixes") {
        prefixes(draft, file, all, member);
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
        match cubes::cube(item) {
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

/// Translates ranges of addresses. A template gives only the first address of each range. A range
/// ends before the next one begins; the last ends with the highest address.
fn prefixes(draft: &mut Draft, file: &str, from: &Node, member: &mut Member) {
    let prefix = |item: &Node| item.number_of("addressPrefix");
    let mut begins: Vec<u64> = from.items().iter().filter_map(prefix).collect();
    begins.sort_unstable();
    let mut entries = Vec::new();
    for item in from.items() {
        let part = item.text_of("organization").filter(|name| !name.is_empty());
        let (Some(part), Some(begin)) = (part, prefix(item)) else {
            let why = "an entry has `organization` and `addressPrefix`";
            draft.note(file, item.line, "addressPrefixes", why);
            continue;
        };
        // Address 0 is not valid.
        let first = begin.max(1);
        let last = match begins.iter().find(|other| **other > begin) {
            Some(next) => next - 1,
            None => {
                let last = highest_address(member);
                let why = format!(
                    "a template does not say how many addresses a prefix has: this one has those \
                     up to {last}; `prefixes` of policy known-addresses says fewer"
                );
                draft.note(file, item.line, format!("addressPrefixes {part}"), why);
                last
            }
        };
        if first <= last {
            entries.push(format!("{part}={first}-{last}"));
        } else {
            let why = "there is no address in it";
            draft.note(file, item.line, format!("addressPrefixes {part}"), why);
        }
    }
    parameter(member, "prefixes", entries);
}

/// The highest address that the width of a member's DIF allows.
fn highest_address(member: &Member) -> u64 {
    let widths = member.config.get("widths");
    let bytes = widths.and_then(|widths| widths.get("address")?.as_u64());
    match bytes {
        Some(1) => u8::MAX.into(),
        Some(4) => u32::MAX.into(),
        _ => u16::MAX.into(),
    }
}

/// Sets a parameter of the policy that assigns addresses, also to an empty list if the template has
/// no entries: the policy's default would give an address to any member.
fn parameter(member: &mut Member, key: &str, entries: Vec<String>) {
    let spec = member.table(&["policies", "address-assignment"]);
    spec.insert("name".to_owned(), "known-addresses".into());
    let params = member.table(&["policies", "address-assignment", "params"]);
    params.insert(key.to_owned(), entries.join(",").into());
    params.entry("prefixes").or_insert_with(|| "".into());
}

/// Why there is no such section in a template, or in which section it belongs.
fn no_section(key: &str) -> String {
    if let Some(around) = COMPONENTS.iter().find(|known| known.inner == Some(key)) {
        return format!("{key} belongs into {}", around.section);
    }
    let components = COMPONENTS.iter().map(|known| known.section);
    let all: Vec<&str> = OTHER_SECTIONS.into_iter().chain(components).collect();
    crate::no_such_key("a template", "section", key, &all)
}

/// Translates a component. Policy sets that every DIF of the dialect has need no setting, because
/// they are the defaults.
fn component(draft: &mut Draft, file: &str, known: &Component, from: &Node) {
    let Component { section, words, .. } = known;
    for (key, line, _) in from.fields() {
        if !known.keys.contains(&key.as_str()) {
            let why = crate::no_such_key(&format!("`{section}`"), "key", key, known.keys);
            draft.note(file, *line, format!("{section}: {key}"), why);
        }
    }
    let mut sets = Vec::new();
    policy_sets(from, &mut sets);
    for (line, name) in sets {
        if name != known.policy {
            let why = format!("{words} has the policy set {} only", known.policy);
            draft.note(file, line, format!("{section}: policy set {name}"), why);
        }
    }
    for (line, name) in parameters(from) {
        let why = match name.as_str() {
            "useReliableNFlow" => {
                "management takes the N-1 flow that data takes, and what is lost is asked for again"
                    .to_owned()
            }
            _ => format!("{words} has no such parameter here: its times and bounds are fixed"),
        };
        draft.note(file, line, format!("{section}: parameter {name}"), why);
    }
    if let Some(profiles) = from.get(PROFILES) {
        profile_notes(draft, file, profiles);
    }
}

/// Collects the names of the policy sets in a section and in the sections inside it, with their
/// lines.
fn policy_sets(from: &Node, sets: &mut Vec<(usize, String)>) {
    for (key, line, value) in from.fields() {
        if key == "policySet" || key.ends_with("PolicySet") {
            let name = value.text_of("name").or(value.text()).unwrap_or_default();
            sets.push((*line, name.to_owned()));
        } else if key != PROFILES {
            policy_sets(value, sets);
        }
    }
}

/// The parameters of the policy sets in a section, with their lines. Those of the usual routing and
/// enrollment policies are left out: they are times that are fixed in Carina.
fn parameters(from: &Node) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (key, _, value) in from.fields() {
        if key == "parameters" {
            let names = names_of(value).into_iter();
            found.extend(names.map(|(name, line)| (line, name.to_owned())));
        } else if key != PROFILES {
            found.extend(parameters(value));
        }
    }
    found
}

/// Notes the profiles of authentication and SDU protection, which are not translated.
fn profile_notes(draft: &mut Draft, file: &str, profiles: &Node) {
    for (key, line, value) in profiles.fields() {
        let all = match key.as_str() {
            "default" => std::slice::from_ref(value),
            "specific" => value.items(),
            _ => {
                let known = ["default", "specific"];
                let why = crate::no_such_key(&format!("`{PROFILES}`"), "key", key, &known);
                draft.note(file, *line, format!("{PROFILES}: {key}"), why);
                continue;
            }
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
                    ("authPolicy", _) => {
                        "there are PSOC_authentication-none and PSOC_authentication-password"
                    }
                    _ => "PDUs of this dialect are not protected here",
                };
                let what = format!("securityManagerConfiguration: {key}: {what} {name}");
                draft.note(file, *line, what, why);
            }
        }
    }
}

/// Section with the profiles of authentication and SDU protection.
const PROFILES: &str = "authSDUProtProfiles";
/// Sections of a template that are not components.
const OTHER_SECTIONS: [&str; 6] = [
    "difType",
    "dataTransferConstants",
    "qosCubes",
    "knownIPCProcessAddresses",
    "addressPrefixes",
    PARAMETERS,
];
