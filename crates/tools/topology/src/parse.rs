//! Parses each line of a topology file independently of the others.

mod links;
mod settings;
mod udp;

use std::collections::BTreeMap;

use carina_api::control::Dialect;
use carina_text::spelling::nearest;
use serde_json::{Map, Value};

use super::address::Address;
use super::netem::Impairment;
use super::token::{Token, error_at, split};
use super::{App, Member, Position, System, TopologyError, Vm};
pub(crate) use settings::{SettingError, put};

/// The parsed lines of a file, with references not yet resolved.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Systems in order of first mention.
    pub(crate) systems: Vec<System>,
    /// Whether there was a line `system`. Then a system that is named by no line `system` or `vm`
    /// is an error.
    pub(crate) is_declared: bool,
    /// Every mention of a system, for that check.
    pub(crate) mentions: Vec<Token>,
    pub(crate) links: Vec<DraftLink>,
    /// DIFs in order of first mention.
    pub(crate) difs: Vec<DraftDif>,
    pub(crate) settings: Vec<Setting>,
    pub(crate) apps: Vec<(App, Position)>,
    pub(crate) notes: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct DraftLink {
    pub(crate) name: String,
    pub(crate) at: Position,
    pub(crate) ends: Vec<String>,
    /// Addresses of the ends, in their order, for a UDP link; empty for an Ethernet link.
    pub(crate) addresses: Vec<Address>,
    pub(crate) vlan: Option<u16>,
    pub(crate) mtu: Option<u32>,
    pub(crate) impairment: Impairment,
    /// Further impairment: of the end at one system, or of all ends if `None`.
    pub(crate) netem: Vec<(Option<String>, Impairment)>,
}

#[derive(Debug)]
pub(crate) struct DraftDif {
    pub(crate) name: String,
    pub(crate) at: Position,
    /// The dialect, if a line gives one.
    pub(crate) dialect: Option<Dialect>,
    /// Members, each with the words that name its N-1 DIFs.
    pub(crate) members: Vec<(Member, Vec<Token>)>,
}

/// A line that concerns the configuration of a DIF.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) dif: Token,
    pub(crate) at: Position,
    pub(crate) what: Set,
}

#[derive(Debug)]
pub(crate) enum Set {
    /// A key of the configuration, with its value.
    Key { path: Vec<String>, value: Value },
    /// A QoS cube.
    Cube(Map<String, Value>),
    /// A policy of a component.
    Policy {
        component: String,
        name: String,
        params: BTreeMap<String, String>,
    },
    /// Authentication, as `KIND:FILE`.
    Auth(String),
}

/// The words with which a line may begin, and the syntax of each line.
const FORMS: [(&str, &str); 12] = [
    ("system", "system NAME.."),
    ("vm", "vm NAME on SYSTEM [memory=MiB] [cpus=N]"),
    (
        "eth",
        "eth LINK RATE SYSTEM SYSTEM.. [vlan=ID] [mtu=BYTES] [delay=T] [jitter=T] [loss=P%] \
         [duplicate=P%] [reorder=P%] [limit=FRAMES] [seed=N]",
    ),
    (
        "udp4",
        "udp4 LINK SYSTEM:ADDRESS/PREFIX SYSTEM:ADDRESS/PREFIX.. [mtu=BYTES] [rate=R] [delay=T] ..",
    ),
    (
        "netem",
        "netem LINK [SYSTEM] delay T [T] | loss P% | rate R | ...",
    ),
    (
        "dif",
        "dif DIF SYSTEM LOWER.. [dialect=NAME] [address=NUMBER]",
    ),
    (
        "policy",
        "policy DIF [*] COMPONENT POLICY [PARAMETER=VALUE]..",
    ),
    ("set", "set DIF KEY=VALUE.."),
    ("cube", "cube DIF NAME id=N [KEY=VALUE].."),
    ("app", "app SYSTEM [wait=NAME]: COMMAND"),
    ("hostfwd", "hostfwd SYSTEM HOST:GUEST.."),
    ("appmap", "appmap DIF NAME INSTANCE"),
];

/// Parses the lines of a file.
///
/// # Errors
/// The first line that is wrong by itself.
pub(crate) fn parse(text: &str) -> Result<Draft, TopologyError> {
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
            "udp4" => draft.udp4(verb, words)?,
            "netem" => draft.netem(verb, words)?,
            "dif" => draft.dif(verb, words)?,
            "policy" => draft.policy(verb, words)?,
            "set" => draft.set(verb, words)?,
            "cube" => draft.cube(verb, words)?,
            "app" => {
                return Err(verb.error(
                    "`:` before the command is missing; write app SYSTEM: \
             COMMAND",
                ));
            }
            "hostfwd" => draft.notes.push(format!(
                "line {number}: hostfwd is not needed: `carina lab exec SYSTEM` reaches every \
                 system"
            )),
            "appmap" => {
                return Err(verb.error(
                    "the directories of the DIFs locate applications; leave this line out",
                ));
            }
            other => return Err(verb.error(unknown(other))),
        }
    }
    Ok(draft)
}

fn unknown(verb: &str) -> String {
    let verbs = FORMS.iter().map(|(verb, _)| *verb);
    let meant = nearest(verb, verbs.clone());
    let meant = meant.map_or_else(String::new, |meant| format!("; was `{meant}` meant?"));
    let known: Vec<&str> = verbs.take(10).collect();
    format!(
        "a line cannot begin with `{verb}`{meant} (it can begin with: {})",
        known.join(", ")
    )
}

/// The number in an option `address=NUMBER`.
fn address_of(option: &Token) -> Result<u64, TopologyError> {
    let text = option.pair().map(|(_, value)| value.text);
    let address = text.as_deref().and_then(|text| text.parse().ok());
    address.ok_or_else(|| option.error(format!("`{}` has no number", option.text)))
}

fn form(verb: &Token) -> TopologyError {
    let form = FORMS.iter().find(|(name, _)| *name == verb.text);
    verb.error(format!(
        "write the line as: {}",
        form.map_or("", |(_, form)| form)
    ))
}

/// Offset in bytes at which the command of a line `app` begins; `None` for other lines.
fn app_line(text: &str) -> Option<usize> {
    let rest = text.trim_start().strip_prefix("app")?;
    rest.starts_with(char::is_whitespace).then_some(())?;
    // An awaited name may contain colons. The colon before the command is followed by white space.
    let colon = text.match_indices(':').map(|(at, _)| at + 1);
    colon
        .into_iter()
        .find(|at| text[*at..].starts_with([' ', '\t']) || *at == text.len())
}

impl DraftDif {
    /// Reads an option of a line `dif`.
    fn take(&mut self, option: &Token) -> Result<(), TopologyError> {
        let Some(("dialect", value)) = option.pair() else {
            return Err(option.error(format!(
                "`{}` is not an option of a DIF; the options are dialect=NAME and address=NUMBER; \
                 use lines `set` for other parameters",
                option.text
            )));
        };
        let dialect: Dialect = value.text.parse().map_err(|what| value.error(what))?;
        match self.dialect.replace(dialect) {
            Some(other) if other != dialect => Err(option.error(format!(
                "DIF {} has dialect {} on a line above; all members of a DIF need the same dialect",
                self.name,
                other.name()
            ))),
            _ => Ok(()),
        }
    }
}

impl Draft {
    fn mention(&mut self, word: &Token) -> Result<String, TopologyError> {
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

    fn system(&mut self, verb: &Token, words: &[Token]) -> Result<(), TopologyError> {
        if words.is_empty() {
            return Err(form(verb));
        }
        if !self.is_declared {
            // Systems that were mentioned earlier must be declared too.
            self.is_declared = true;
            self.systems.retain(|system| system.vm.is_some());
        }
        for word in words {
            let name = word.name("system")?;
            if self.systems.iter().any(|system| system.name == name) {
                return Err(word.error(format!("system {name} already exists")));
            }
            self.systems.push(System {
                name,
                vm: None,
                at: word.at,
            });
        }
        Ok(())
    }

    fn vm(&mut self, verb: &Token, words: &[Token]) -> Result<(), TopologyError> {
        let [name, on, host, options @ ..] = words else {
            return Err(form(verb));
        };
        if on.text != "on" {
            return Err(on.error("`on` is expected: vm NAME on SYSTEM"));
        }
        let at = name.at;
        let name = name.name("VM")?;
        if let Some(other) = self.systems.iter().find(|system| system.name == name) {
            return Err(error_at(
                at,
                format!(
                    "{name} is already a system, of line {}; write the line of a VM before its \
                     first use",
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
                    return Err(word.error(format!(
                        "`{}` is not an option of a VM; the options are memory=MiB and cpus=N",
                        word.text
                    )));
                }
            }
        }
        let vm = Some(vm);
        self.systems.push(System { name, vm, at });
        Ok(())
    }

    fn dif(&mut self, verb: &Token, words: &[Token]) -> Result<(), TopologyError> {
        let (options, words): (Vec<Token>, Vec<Token>) = words
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
        let (addresses, options): (Vec<Token>, Vec<Token>) = options
            .into_iter()
            .partition(|word| word.pair().is_some_and(|(key, _)| key == "address"));
        let member = Member {
            system: self.mention(system)?,
            over: Vec::new(),
            beside: Vec::new(),
            via: None,
            address: addresses.first().map(address_of).transpose()?,
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
            return Err(system.error(format!(
                "{} is already a member of DIF {dif}",
                member.system
            )));
        }
        members.push((member, lowers.to_vec()));
        Ok(())
    }

    fn app(&mut self, number: usize, command_at: usize, text: &str) -> Result<(), TopologyError> {
        let head = split(number, &text[..command_at - 1])?;
        let Some((verb, [system, options @ ..])) = head.split_first() else {
            return Err(error_at(
                Position {
                    line: number,
                    column: 1,
                },
                FORMS[9].1,
            ));
        };
        let at = system.at;
        let system = self.mention(system)?;
        let command = text[command_at..].trim().to_owned();
        if command.is_empty() {
            return Err(verb.error("the command after `:` is missing"));
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
                    return Err(word.error(format!(
                        "`{}` is not an option of an application; the only option is wait=NAME",
                        word.text
                    )));
                }
            }
        }
        self.apps.push((app, at));
        Ok(())
    }
}

/// Default memory of a VM, in MiB.
const MEMORY_MIB: u32 = 256;
