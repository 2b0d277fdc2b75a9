//! The lines of a topology file, each by itself.

use std::collections::BTreeMap;

use carina_api::control::Dialect;
use serde_json::{Map, Value};

use super::netem::Impairment;
use super::topology::{App, At, Member, System, Vm, Wrong};
use super::words::{Word, nearest, split, wrong};

/// What the lines say, before it is known whether they fit together.
#[derive(Debug, Default)]
pub struct Draft {
    /// Systems in order of first mention.
    pub systems: Vec<System>,
    /// A line `system` was there: what it and the lines `vm` do not name is a mistake.
    pub is_declared: bool,
    /// Mentions of systems, for that check.
    pub mentions: Vec<Word>,
    pub links: Vec<DraftLink>,
    /// DIFs in order of first mention.
    pub difs: Vec<DraftDif>,
    pub settings: Vec<Setting>,
    pub apps: Vec<(App, At)>,
    pub notes: Vec<String>,
}

#[derive(Debug)]
pub struct DraftLink {
    pub name: String,
    pub at: At,
    pub ends: Vec<String>,
    pub vlan: Option<u16>,
    pub mtu: Option<u32>,
    pub impairment: Impairment,
    /// Further impairment of one end, or of all.
    pub netem: Vec<(Option<String>, Impairment)>,
}

#[derive(Debug)]
pub struct DraftDif {
    pub name: String,
    pub at: At,
    /// What it speaks, when a line says so.
    pub dialect: Option<Dialect>,
    /// Members, and the words that name the DIFs below.
    pub members: Vec<(Member, Vec<Word>)>,
}

/// A line that concerns the configuration of a DIF.
#[derive(Debug)]
pub struct Setting {
    pub dif: Word,
    pub at: At,
    pub what: Set,
}

#[derive(Debug)]
pub enum Set {
    /// A key of the configuration.
    Key { path: Vec<String>, value: Value },
    /// A QoS cube.
    Cube(Map<String, Value>),
    /// A policy of a component.
    Policy {
        component: String,
        name: String,
        params: BTreeMap<String, String>,
    },
    /// Authentication.
    Auth(String),
}

/// What a line may begin with, and its form.
const FORMS: [(&str, &str); 12] = [
    ("system", "system NAME.."),
    ("vm", "vm NAME on SYSTEM [memory=MiB] [cpus=N]"),
    (
        "eth",
        "eth LINK RATE SYSTEM SYSTEM.. [vlan=ID] [mtu=BYTES] [delay=T] [jitter=T] [loss=P%] \
         [duplicate=P%] [reorder=P%] [limit=FRAMES] [seed=N]",
    ),
    (
        "netem",
        "netem LINK [SYSTEM] delay T [T] | loss P% | rate R | ...",
    ),
    ("dif", "dif DIF SYSTEM LOWER.. [dialect=NAME]"),
    (
        "policy",
        "policy DIF [*] COMPONENT POLICY [PARAMETER=VALUE]..",
    ),
    ("set", "set DIF KEY=VALUE.."),
    ("cube", "cube DIF NAME id=N [KEY=VALUE].."),
    ("app", "app SYSTEM [wait=NAME]: COMMAND"),
    ("hostfwd", "hostfwd SYSTEM HOST:GUEST.."),
    ("udp4", "udp4 LINK SYSTEM:ADDRESS.."),
    ("appmap", "appmap DIF NAME INSTANCE"),
];

/// Reads the lines of a file.
///
/// # Errors
/// The first line that is not right by itself.
pub fn parse(text: &str) -> Result<Draft, Wrong> {
    let mut draft = Draft::default();
    for (index, text) in text.lines().enumerate() {
        let number = index + 1;
        if let Some(line) = app_line(text) {
            draft.app(number, line, text)?;
            continue;
        }
        let words = split(number, text)?;
        let Some((verb, words)) = words.split_first() else {
            continue;
        };
        match verb.text.as_str() {
            "system" => draft.system(verb, words)?,
            "vm" => draft.vm(verb, words)?,
            "eth" => draft.eth(verb, words)?,
            "netem" => draft.netem(verb, words)?,
            "dif" => draft.dif(verb, words)?,
            "policy" => draft.policy(verb, words)?,
            "set" => draft.set(verb, words)?,
            "cube" => draft.cube(verb, words)?,
            "app" => return Err(verb.wrong("there is no `:` before the command; app SYSTEM: COMMAND")),
            "hostfwd" => draft.notes.push(format!(
                "line {number}: hostfwd is not needed: `carina lab exec SYSTEM` reaches every system"
            )),
            "udp4" => {
                return Err(verb.wrong(
                    "links over UDP are not made by a lab; `eth` makes one that needs no addresses",
                ));
            }
            "appmap" => {
                return Err(verb.wrong(
                    "applications are found by the DIFs' directories; leave this line out",
                ));
            }
            other => return Err(verb.wrong(unknown(other))),
        }
    }
    Ok(draft)
}

fn unknown(verb: &str) -> String {
    let verbs = FORMS.iter().map(|(verb, _)| *verb);
    let meant = nearest(verb, verbs.clone());
    let meant = meant.map_or_else(String::new, |meant| format!("; was `{meant}` meant?"));
    let known: Vec<&str> = verbs.take(9).collect();
    format!(
        "`{verb}` is not what a line begins with{meant} (there are: {})",
        known.join(", ")
    )
}

fn form(verb: &Word) -> Wrong {
    let form = FORMS.iter().find(|(name, _)| *name == verb.text);
    verb.wrong(format!(
        "the form is: {}",
        form.map_or("", |(_, form)| form)
    ))
}

/// The byte at which the command of a line `app` begins.
fn app_line(text: &str) -> Option<usize> {
    let rest = text.trim_start().strip_prefix("app")?;
    rest.starts_with(char::is_whitespace).then_some(())?;
    // A name that is waited for may hold colons; the one that ends the head has a space behind it.
    let colon = text.match_indices(':').map(|(at, _)| at + 1);
    colon
        .into_iter()
        .find(|at| text[*at..].starts_with([' ', '\t']) || *at == text.len())
}

impl DraftDif {
    /// Takes an option of a line `dif`.
    fn take(&mut self, option: &Word) -> Result<(), Wrong> {
        let Some(("dialect", value)) = option.pair() else {
            return Err(option.wrong(format!(
                "`{}` is no option of a DIF here; there is dialect=NAME, and for all else lines \
                 `set`",
                option.text
            )));
        };
        let dialect: Dialect = value.text.parse().map_err(|what| value.wrong(what))?;
        match self.dialect.replace(dialect) {
            Some(other) if other != dialect => Err(option.wrong(format!(
                "DIF {} has dialect {} on a line above; all members speak one",
                self.name,
                other.name()
            ))),
            _ => Ok(()),
        }
    }
}

impl Draft {
    fn mention(&mut self, word: &Word) -> Result<String, Wrong> {
        let name = word.name("system")?;
        self.mentions.push(word.clone());
        let is_known = self.systems.iter().any(|system| system.name == name);
        if !is_known && !self.is_declared {
            self.systems.push(System {
                name: name.clone(),
                vm: None,
                at: word.at,
            });
        }
        Ok(name)
    }

    fn system(&mut self, verb: &Word, words: &[Word]) -> Result<(), Wrong> {
        if words.is_empty() {
            return Err(form(verb));
        }
        if !self.is_declared {
            // Until now others were known by mention only, and must be declared as well.
            self.is_declared = true;
            self.systems.retain(|system| system.vm.is_some());
        }
        for word in words {
            let name = word.name("system")?;
            if self.systems.iter().any(|system| system.name == name) {
                return Err(word.wrong(format!("there is a system {name} already")));
            }
            self.systems.push(System {
                name,
                vm: None,
                at: word.at,
            });
        }
        Ok(())
    }

    fn vm(&mut self, verb: &Word, words: &[Word]) -> Result<(), Wrong> {
        let [name, on, host, options @ ..] = words else {
            return Err(form(verb));
        };
        if on.text != "on" {
            return Err(on.wrong("`on` is right here: vm NAME on SYSTEM"));
        }
        let at = name.at;
        let name = name.name("VM")?;
        if let Some(other) = self.systems.iter().find(|system| system.name == name) {
            return Err(wrong(
                at,
                format!(
                    "{name} is a system already, of line {}; a VM comes before its first use",
                    other.at.line
                ),
            ));
        }
        let mut vm = Vm {
            host: host.name("system")?,
            memory_mib: MEMORY_MIB,
            cpus: 1,
        };
        self.mention(host)?;
        for word in options {
            let option = word.pair();
            match option.as_ref().map(|(key, value)| (*key, value)) {
                Some(("memory", value)) => {
                    vm.memory_mib = value.number("memory in MiB", 96, 1 << 20)? as u32;
                }
                Some(("cpus", value)) => vm.cpus = value.number("cpus", 1, 64)? as u32,
                _ => {
                    return Err(word.wrong(format!(
                        "`{}` is no option of a VM; there are memory=MiB and cpus=N",
                        word.text
                    )));
                }
            }
        }
        let vm = Some(vm);
        self.systems.push(System { name, vm, at });
        Ok(())
    }

    fn eth(&mut self, verb: &Word, words: &[Word]) -> Result<(), Wrong> {
        let [name, rate, rest @ ..] = words else {
            return Err(form(verb));
        };
        let at = name.at;
        let mut link = DraftLink {
            name: name.name("link")?,
            at,
            ends: Vec::new(),
            vlan: None,
            mtu: None,
            impairment: Impairment::default(),
            netem: Vec::new(),
        };
        if self.links.iter().any(|other| other.name == link.name) {
            return Err(name.wrong(format!("there is a link {} already", link.name)));
        }
        link.impairment.rate_bps = Some(rate.rate()?).filter(|rate| *rate > 0);
        for word in rest {
            let Some((key, value)) = word.pair() else {
                let system = self.mention(word)?;
                if link.ends.contains(&system) {
                    return Err(word.wrong(format!("{system} is on this link already")));
                }
                link.ends.push(system);
                continue;
            };
            match key {
                "vlan" => link.vlan = Some(value.number("vlan", 1, 4094)? as u16),
                "mtu" => link.mtu = Some(value.number("mtu", 128, 65_535)? as u32),
                _ if key != "rate" && link.impairment.take(key, &value)? => {}
                _ => {
                    return Err(word.wrong(format!(
                        "`{key}` is no option of a link; there are vlan, mtu, delay, jitter, loss, \
                         duplicate, reorder, limit, seed"
                    )));
                }
            }
        }
        if link.ends.len() < 2 {
            return Err(name.wrong("a link has two systems or more"));
        }
        check_vlan(&link, name)?;
        self.links.push(link);
        Ok(())
    }

    fn netem(&mut self, verb: &Word, words: &[Word]) -> Result<(), Wrong> {
        let [name, rest @ ..] = words else {
            return Err(form(verb));
        };
        let Some(link) = self.links.iter_mut().find(|link| link.name == name.text) else {
            return Err(name.wrong(format!(
                "there is no link {}; a line `eth {0} ...` comes before this one",
                name.text
            )));
        };
        let on = rest.first().filter(|word| link.ends.contains(&word.text));
        let rest = if on.is_some() { &rest[1..] } else { rest };
        // A quoted list of words is one word here.
        let mut words = Vec::new();
        for word in rest {
            let mut inner = split(word.at.line, &word.text)?;
            for part in &mut inner {
                part.at.column += word.at.column - 1;
            }
            words.append(&mut inner);
        }
        if words.is_empty() {
            return Err(form(verb));
        }
        let impairment = Impairment::netem(&words, &mut self.notes)?;
        link.netem
            .push((on.map(|word| word.text.clone()), impairment));
        Ok(())
    }

    fn dif(&mut self, verb: &Word, words: &[Word]) -> Result<(), Wrong> {
        let (options, words): (Vec<Word>, Vec<Word>) = words
            .iter()
            .cloned()
            .partition(|word| word.pair().is_some());
        let [name, system, lowers @ ..] = &words[..] else {
            return Err(form(verb));
        };
        if lowers.is_empty() {
            return Err(form(verb));
        }
        let at = name.at;
        let dif = name.name("DIF")?;
        let member = Member {
            system: self.mention(system)?,
            over: Vec::new(),
            beside: Vec::new(),
            at: system.at,
        };
        let index = match self.difs.iter().position(|known| known.name == dif) {
            Some(index) => index,
            None => {
                self.difs.push(DraftDif {
                    name: dif.clone(),
                    at,
                    dialect: None,
                    members: Vec::new(),
                });
                self.difs.len() - 1
            }
        };
        for option in &options {
            self.difs[index].take(option)?;
        }
        let members = &mut self.difs[index].members;
        if members
            .iter()
            .any(|(known, _)| known.system == member.system)
        {
            return Err(system.wrong(format!(
                "{} is a member of DIF {dif} already",
                member.system
            )));
        }
        members.push((member, lowers.to_vec()));
        Ok(())
    }

    fn policy(&mut self, verb: &Word, words: &[Word]) -> Result<(), Wrong> {
        let [dif, rest @ ..] = words else {
            return Err(form(verb));
        };
        // rlite's form names the systems first; ours, as a DIF has one policy, does not.
        let is_list = |word: &Word| {
            word.text == "*"
                || word
                    .text
                    .split(',')
                    .all(|name| self.systems.iter().any(|s| s.name == name))
        };
        let rest = match rest {
            [nodes, rest @ ..] if rest.len() >= 2 && is_list(nodes) => {
                if nodes.text != "*" {
                    self.notes.push(format!(
                        "line {}: a policy holds for the whole DIF, not for {} only",
                        nodes.at.line, nodes.text
                    ));
                }
                rest
            }
            rest => rest,
        };
        let [component, policy, options @ ..] = rest else {
            return Err(form(verb));
        };
        let mut params = BTreeMap::new();
        for word in options {
            let Some((key, value)) = word.pair() else {
                return Err(word.wrong(format!("`{}` is no PARAMETER=VALUE", word.text)));
            };
            params.insert(key.to_owned(), value.text);
        }
        self.settings.push(Setting {
            dif: dif.clone(),
            at: component.at,
            what: Set::Policy {
                component: component.text.clone(),
                name: policy.text.clone(),
                params,
            },
        });
        Ok(())
    }

    fn set(&mut self, verb: &Word, words: &[Word]) -> Result<(), Wrong> {
        let [dif, options @ ..] = words else {
            return Err(form(verb));
        };
        if options.is_empty() {
            return Err(form(verb));
        }
        for word in options {
            let Some((key, value)) = word.pair() else {
                return Err(word.wrong(format!("`{}` is no KEY=VALUE", word.text)));
            };
            let what = match key {
                "auth" => Set::Auth(value.text),
                _ => Set::Key {
                    path: key.split('.').map(str::to_owned).collect(),
                    value: plain(&value.text),
                },
            };
            let (dif, at) = (dif.clone(), word.at);
            self.settings.push(Setting { dif, at, what });
        }
        Ok(())
    }

    fn cube(&mut self, verb: &Word, words: &[Word]) -> Result<(), Wrong> {
        let [dif, name, options @ ..] = words else {
            return Err(form(verb));
        };
        let mut cube = Map::new();
        cube.insert("name".to_owned(), Value::from(name.text.clone()));
        for word in options {
            let Some((key, value)) = word.pair() else {
                return Err(word.wrong(format!("`{}` is no KEY=VALUE", word.text)));
            };
            let path: Vec<String> = key.split('.').map(str::to_owned).collect();
            put(&mut cube, &path, plain(&value.text)).map_err(|what| word.wrong(what))?;
        }
        self.settings.push(Setting {
            dif: dif.clone(),
            at: name.at,
            what: Set::Cube(cube),
        });
        Ok(())
    }

    fn app(&mut self, number: usize, command_at: usize, text: &str) -> Result<(), Wrong> {
        let head = split(number, &text[..command_at - 1])?;
        let Some((verb, [system, options @ ..])) = head.split_first() else {
            return Err(wrong(
                At {
                    line: number,
                    column: 1,
                },
                FORMS[8].1,
            ));
        };
        let at = system.at;
        let system = self.mention(system)?;
        let command = text[command_at..].trim().to_owned();
        if command.is_empty() {
            return Err(verb.wrong("there is no command behind the `:`"));
        }
        let mut app = App {
            system,
            command,
            wait: None,
        };
        for word in options {
            match word.pair() {
                Some(("wait", value)) => app.wait = Some(value.text),
                _ => {
                    return Err(word.wrong(format!(
                        "`{}` is no option of an application; there is wait=NAME",
                        word.text
                    )));
                }
            }
        }
        self.apps.push((app, at));
        Ok(())
    }
}

/// The shim takes a number as the name of a DIF for a VLAN id.
fn check_vlan(link: &DraftLink, name: &Word) -> Result<(), Wrong> {
    let Ok(number) = link.name.parse::<u64>() else {
        return Ok(());
    };
    if number == 0 || number > 4094 {
        return Err(name.wrong(format!(
            "a link whose name is a number is the VLAN of that id, and {number} is none; 1 to 4094 \
             are possible, or a name with a letter"
        )));
    }
    match link.vlan {
        Some(vlan) if u64::from(vlan) != number => Err(name.wrong(format!(
            "the link is VLAN {number} by its name and {vlan} by vlan=; leave one out"
        ))),
        _ => Ok(()),
    }
}

/// A value as JSON has it: a number or a truth value where it looks like one, else text.
fn plain(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => text
            .parse::<u64>()
            .map_or_else(|_| Value::from(text), Value::from),
    }
}

/// Puts a value into nested tables.
///
/// # Errors
/// Something on the way is no table, or the value is there.
pub fn put(table: &mut Map<String, Value>, path: &[String], value: Value) -> Result<(), String> {
    let Some((key, rest)) = path.split_first() else {
        return Ok(());
    };
    if rest.is_empty() {
        return match table.insert(key.clone(), value) {
            None => Ok(()),
            Some(_) => Err(format!("`{key}` is given twice")),
        };
    }
    let inner = table
        .entry(key.clone())
        .or_insert_with(|| Value::Object(Map::new()));
    match inner {
        Value::Object(inner) => put(inner, rest, value),
        _ => Err(format!("`{key}` has no keys inside")),
    }
}

/// Memory of a VM unless given, in MiB.
const MEMORY_MIB: u32 = 192;
