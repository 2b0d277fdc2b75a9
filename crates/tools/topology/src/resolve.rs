//! Resolves the references between the lines of a topology file, and orders what has to be made.

mod policies;

use std::collections::{BTreeMap, BTreeSet};

use carina_api::control::Dialect;
use carina_ipcp::{DifConfig, PolicySpec, QosCube};
use carina_text::spelling::nearest;
use serde_json::{Map, Value};

use self::policies::{component_name, is_usual, known_policy, note_parameters};
use super::check::{self, NodeChecks};
use super::lower::{self, MTU};
use super::parse::{Draft, DraftDif, DraftLink, Set, Setting, SettingError, put};
use super::token::error_at;
use super::{Dif, Link, LinkEnd, Member, Position, Topology, TopologyError, hv_dif};

/// Makes a checked topology from the lines of a file.
///
/// # Errors
/// The first line that contradicts others, or refers to something that does not exist.
pub(crate) fn resolve(draft: Draft, checks: &dyn NodeChecks) -> Result<Topology, TopologyError> {
    check_systems(&draft)?;
    let links = draft
        .links
        .into_iter()
        .enumerate()
        .map(|(index, link)| resolve_link(index, link))
        .collect::<Result<Vec<_>, _>>()?;
    let mut topology = Topology {
        systems: draft.systems,
        links,
        difs: Vec::new(),
        apps: draft.apps.into_iter().map(|(app, _)| app).collect(),
        notes: draft.notes,
    };
    check_machines(&topology)?;
    let mut notes = Vec::new();
    let configs = configure(&draft.difs, draft.settings, &mut notes)?;
    topology.notes.append(&mut notes);
    topology.difs = order_difs(draft.difs, configs, topology.shims())?;
    lower::fit_to_links(&mut topology)?;
    let mut difs = topology.difs.iter();
    difs.try_for_each(|dif| check::check_dif(dif, checks))?;
    check::check_nodes(&topology, checks)?;
    Ok(topology)
}

fn check_systems(draft: &Draft) -> Result<(), TopologyError> {
    for word in &draft.mentions {
        if draft.systems.iter().any(|system| system.name == word.text) {
            continue;
        }
        let names = draft.systems.iter().map(|system| system.name.as_str());
        let meant = nearest(&word.text, names)
            .map_or_else(String::new, |meant| format!("; was `{meant}` meant?"));
        return Err(word.error(format!(
            "no line `system` or `vm` defines {}{meant}",
            word.text
        )));
    }
    if draft.systems.is_empty() {
        let at = Position { line: 1, column: 1 };
        return Err(error_at(
            at,
            "the file defines no system; for example, `system a b` defines two",
        ));
    }
    Ok(())
}

fn check_machines(topology: &Topology) -> Result<(), TopologyError> {
    for (vm, needs) in topology.machines() {
        let host = topology.system(&needs.host);
        if host.is_none_or(|host| host.vm.is_some()) {
            return Err(error_at(
                vm.at,
                format!(
                    "VM {} is on {}, which is itself a VM; nested VMs are not supported",
                    vm.name, needs.host
                ),
            ));
        }
        let on_link = |link: &&Link| link.ends.iter().any(|end| end.system == vm.name);
        if let Some(link) = topology.links.iter().find(on_link) {
            return Err(error_at(
                link.at,
                format!(
                    "{} is a VM, which has no network card; use DIF {} to reach it, and a DIF \
                     over that one and link {} in {} to go further",
                    vm.name,
                    hv_dif(&vm.name),
                    link.name,
                    needs.host
                ),
            ));
        }
    }
    Ok(())
}

fn resolve_link(index: usize, draft: DraftLink) -> Result<Link, TopologyError> {
    let mtu = draft.mtu.unwrap_or(MTU);
    let interface = interface_name(index, &draft.name);
    let mut ends = Vec::new();
    for (number, system) in draft.ends.iter().enumerate() {
        let mut impairment = draft.impairment;
        for (on, more) in &draft.netem {
            if on.as_ref().is_none_or(|on| on == system) {
                impairment = impairment.with(*more);
            }
        }
        let fault = impairment.fault(number, mtu).map_err(|what| {
            error_at(draft.at, format!("link {} at {system}: {what}", draft.name))
        })?;
        ends.push(LinkEnd {
            system: system.clone(),
            interface: interface.clone(),
            address: draft.addresses.get(number).copied(),
            fault,
        });
    }
    Ok(Link {
        name: draft.name,
        vlan: draft.vlan,
        mtu: draft.mtu,
        ends,
        at: draft.at,
    })
}

/// Name of a link's interface: the link's name if the kernel accepts it, else a generated name.
fn interface_name(index: usize, link: &str) -> String {
    let is_taken = matches!(link, "lo" | "all" | "default" | "." | "..");
    if link.len() <= INTERFACE_BYTES_MAX && !is_taken {
        link.to_owned()
    } else {
        format!("link{index}")
    }
}

/// Configurations of DIFs, by name.
type Configs = BTreeMap<String, Configured>;

/// The configuration of a DIF, and the positions in the file that it comes from.
#[derive(Default)]
struct Configured {
    config: DifConfig,
    auth: Option<String>,
    places: Vec<(Vec<String>, Position)>,
}

#[expect(clippy::too_many_lines, reason = "one arm for each setting")]
fn configure(
    difs: &[DraftDif],
    settings: Vec<Setting>,
    notes: &mut Vec<String>,
) -> Result<Configs, TopologyError> {
    let mut configs = Configs::new();
    let mut tables: BTreeMap<String, (Map<String, Value>, Position)> = BTreeMap::new();
    for setting in settings {
        let dif = &setting.dif.text;
        if !difs.iter().any(|known| known.name == *dif) {
            let names = difs.iter().map(|known| known.name.as_str());
            let meant = nearest(dif, names)
                .map_or_else(String::new, |meant| format!("; was `{meant}` meant?"));
            return Err(setting
                .dif
                .error(format!("no line `dif` defines a DIF {dif}{meant}")));
        }
        let at = setting.at;
        let of_dif = configs.entry(dif.clone()).or_default();
        let config = &mut of_dif.config;
        let mut place = |path: &[&str]| {
            let path = path.iter().map(|&key| key.to_owned()).collect();
            of_dif.places.push((path, at));
        };
        match setting.what {
            Set::Auth(text) => {
                place(&["auth"]);
                of_dif.auth = Some(text);
            }
            Set::Cube(cube) => {
                place(&["cubes", &config.cubes.len().to_string()]);
                config.cubes.push(cube_of(cube, at)?);
            }
            Set::Policy {
                component,
                name,
                params,
            } => {
                let spec = PolicySpec { name, params };
                let dialect = difs.iter().find(|known| known.name == *dif);
                let dialect = dialect.and_then(|dif| dif.dialect).unwrap_or_default();
                let known = match dialect {
                    Dialect::Native => known_policy(component, spec, at, notes)?,
                    // Every member of an rlite DIF has these default policies.
                    Dialect::Rlite if is_usual(&component, &spec) => {
                        note_parameters(&component, &spec.name, spec.params.keys(), at, notes);
                        None
                    }
                    // The node checks policies of other dialects.
                    _ => Some((component_name(dialect, component), spec)),
                };
                if let Some((component, spec)) = known {
                    place(&["policies", &component]);
                    let before = config.policies.insert(component.clone(), spec.clone());
                    // A file of rlite may repeat a policy for each member.
                    if before.is_some_and(|before| before != spec) {
                        return Err(error_at(
                            at,
                            format!(
                                "DIF {dif} has another policy for {component} on a line above, \
                                 but a policy applies to the whole DIF"
                            ),
                        ));
                    }
                }
            }
            Set::Key { path, value } => {
                of_dif.places.push((path.clone(), at));
                let (table, last) = tables.entry(dif.clone()).or_insert((Map::new(), at));
                put(table, &path, value).map_err(|what| error_at(at, what))?;
                *last = at;
                // The configuration is parsed after each line, so that an error has its position.
                read_config(table).map_err(|what| error_at(at, what))?;
            }
        }
    }
    for (dif, (table, at)) in tables {
        let mut read = read_config(&table).map_err(|what| error_at(at, what))?;
        let config = &mut configs.entry(dif).or_default().config;
        read.cubes = std::mem::take(&mut config.cubes);
        read.policies = std::mem::take(&mut config.policies);
        *config = read;
    }
    Ok(configs)
}

fn read_config(table: &Map<String, Value>) -> Result<DifConfig, SettingError> {
    if let Some(key) = ["cubes", "policies"]
        .iter()
        .find(|key| table.contains_key(**key))
    {
        return Err(SettingError::HasOwnStatements(key));
    }
    Ok(serde_json::from_value(Value::Object(table.clone()))?)
}

fn cube_of(cube: Map<String, Value>, at: Position) -> Result<QosCube, TopologyError> {
    serde_json::from_value(Value::Object(cube)).map_err(|error| error_at(at, error))
}

/// Orders DIFs so that each comes after its N-1 DIFs, and members so that each can enroll with an
/// earlier one.
fn order_difs(
    drafts: Vec<DraftDif>,
    mut configs: Configs,
    mut inside: BTreeMap<String, Vec<String>>,
) -> Result<Vec<Dif>, TopologyError> {
    for draft in &drafts {
        if inside.contains_key(&draft.name) {
            return Err(error_at(
                draft.at,
                format!(
                    "{} is already the name of a link or of the DIF of a VM",
                    draft.name
                ),
            ));
        }
    }
    let mut levels: BTreeMap<String, usize> = inside.keys().map(|name| (name.clone(), 0)).collect();
    let names: Vec<String> = drafts.iter().map(|draft| draft.name.clone()).collect();
    for draft in &drafts {
        let systems = draft
            .members
            .iter()
            .map(|(member, _)| member.system.clone());
        inside.insert(draft.name.clone(), systems.collect());
    }
    let mut waiting = drafts;
    let mut difs = Vec::new();
    while !waiting.is_empty() {
        let mut later = Vec::new();
        let before = waiting.len();
        for draft in waiting {
            match level(&draft, &levels, &inside)? {
                Some(level) => {
                    levels.insert(draft.name.clone(), level);
                    let configured = configs.remove(&draft.name).unwrap_or_default();
                    difs.push(resolve_dif(draft, level, configured, &inside)?);
                }
                None => later.push(draft),
            }
        }
        if later.len() == before {
            let stuck = later.first().expect("the loop runs while there are some");
            let all: Vec<&str> = later.iter().map(|draft| draft.name.as_str()).collect();
            return Err(error_at(
                stuck.at,
                format!(
                    "these DIFs lie over one another in a cycle: {}",
                    all.join(", ")
                ),
            ));
        }
        waiting = later;
    }
    // DIFs of the same level stay in the order of the file.
    difs.sort_by_key(|dif| (dif.level, names.iter().position(|name| *name == dif.name)));
    Ok(difs)
}

/// The level of a DIF; `None` while the level of one of its N-1 DIFs is unknown.
fn level(
    draft: &DraftDif,
    levels: &BTreeMap<String, usize>,
    inside: &BTreeMap<String, Vec<String>>,
) -> Result<Option<usize>, TopologyError> {
    let mut highest = Some(0);
    for (member, lowers) in &draft.members {
        let mut seen = BTreeSet::new();
        for lower in lowers {
            let Some(systems) = inside.get(&lower.text) else {
                let meant = nearest(&lower.text, inside.keys().map(String::as_str))
                    .map_or_else(String::new, |meant| format!("; was `{meant}` meant?"));
                return Err(lower.error(format!(
                    "{} is not a link, a DIF or hv.VM{meant}",
                    lower.text
                )));
            };
            if !systems.contains(&member.system) {
                return Err(lower.error(format!(
                    "{} is not in {}; its members are: {}",
                    member.system,
                    lower.text,
                    systems.join(", ")
                )));
            }
            if !seen.insert(&lower.text) {
                return Err(lower.error(format!("{} is given twice", lower.text)));
            }
            highest = highest.zip(levels.get(&lower.text)).map(|(h, l)| h.max(*l));
        }
    }
    Ok(highest.map(|highest| highest + 1))
}

fn resolve_dif(
    draft: DraftDif,
    level: usize,
    configured: Configured,
    inside: &BTreeMap<String, Vec<String>>,
) -> Result<Dif, TopologyError> {
    let mut waiting: Vec<Member> = draft
        .members
        .into_iter()
        .map(|(member, lowers)| Member {
            over: lowers.into_iter().map(|word| word.text).collect(),
            ..member
        })
        .collect();
    for index in 0..waiting.len() {
        let beside = |other: &&Member| {
            let shared = other
                .over
                .iter()
                .filter(|dif| waiting[index].over.contains(dif));
            let mut shared =
                shared.filter(|dif| inside.get(*dif).is_some_and(|all| all.len() == 2));
            other.system != waiting[index].system && shared.next().is_some()
        };
        let beside = waiting
            .iter()
            .filter(beside)
            .map(|m| m.system.clone())
            .collect();
        waiting[index].beside = beside;
    }
    let mut members = vec![waiting.remove(0)];
    while !waiting.is_empty() {
        let meets = |member: &Member| {
            let mut met = members.iter().flat_map(|known| &known.over);
            met.any(|dif| member.over.contains(dif))
        };
        let Some(next) = waiting.iter().position(meets) else {
            let lost = &waiting[0];
            return Err(error_at(
                lost.at,
                format!(
                    "{} shares no DIF below {} with {}, so no member could admit it",
                    lost.system,
                    draft.name,
                    members
                        .iter()
                        .map(|m| m.system.as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            ));
        };
        members.push(waiting.remove(next));
    }
    Ok(Dif {
        name: draft.name,
        level,
        dialect: draft.dialect.unwrap_or_default(),
        config: configured.config,
        auth: configured.auth,
        members,
        at: draft.at,
        places: configured.places,
    })
}

/// Longest name of an interface (`IFNAMSIZ` without the terminator).
const INTERFACE_BYTES_MAX: usize = 15;
