//! Reads scripts of `rlite-ctl`: one command on each line, as in `/etc/rina/initscript` (rlite's
//! manual page `rlite-ctl`).

mod flavour;
mod policies;
mod scheduler;

use std::collections::BTreeMap;

use carina_api::control::{ArpDialect, Dialect, DifRole, Framing, IpcpCreate, IpcpType};
use carina_api::{AppName, DifName, LocalName};
use serde_json::{Value, json};

use crate::error::Reason;
use crate::{Draft, Member, nearest};

/// A command of `rlite-ctl`, and its syntax.
struct Verb {
    name: &'static str,
    form: &'static str,
    /// Least number of words after the verb.
    least: usize,
}

const fn verb(name: &'static str, form: &'static str, least: usize) -> Verb {
    Verb { name, form, least }
}

const VERBS: [Verb; 32] = [
    verb("ipcp-create", "NAME TYPE DIF", 3),
    verb("ipcp-destroy", "NAME", 1),
    verb("ipcp-config", "NAME PARAMETER VALUE", 3),
    verb("ipcp-config-get", "NAME [PARAMETER]", 1),
    verb("ipcp-sched-config", "NAME SCHEDULER [PARAMETER VALUE]..", 2),
    verb("ipcp-register", "NAME DIF", 2),
    verb("ipcp-unregister", "NAME DIF", 2),
    verb("ipcp-enroller-enable", "NAME", 1),
    verb("ipcp-enroller-disable", "NAME", 1),
    verb("ipcp-enroll", "NAME DIF LOWER-DIF [NEIGHBOUR]", 3),
    verb("ipcp-enroll-retry", "NAME DIF LOWER-DIF [NEIGHBOUR]", 3),
    verb("ipcp-lower-flow-alloc", "NAME DIF LOWER-DIF [NEIGHBOUR]", 3),
    verb("ipcp-neigh-disconnect", "NAME NEIGHBOUR", 1),
    verb("ipcp-route-add", "NAME DESTINATION NEXT-HOP..", 1),
    verb("ipcp-route-del", "NAME DESTINATION", 1),
    verb("dif-policy-mod", "DIF COMPONENT POLICY", 3),
    verb("dif-policy-param-mod", "DIF COMPONENT PARAMETER VALUE", 4),
    verb("probe", "", 0),
    verb("reset", "", 0),
    verb("terminate", "", 0),
    verb("ipcps-show", "", 0),
    verb("ipcp-stats", "", 0),
    verb("uipcp-stats-show", "", 0),
    verb("dif-rib-show", "", 0),
    verb("dif-routing-show", "", 0),
    verb("dif-rib-paths-show", "", 0),
    verb("dif-policy-list", "", 0),
    verb("dif-policy-param-list", "", 0),
    verb("flows-show", "", 0),
    verb("flow-dump", "", 0),
    verb("regs-show", "", 0),
    verb("memtrack", "", 0),
];

/// Reads a script. `file` is its name in notes.
pub fn read(file: &str, text: &str) -> Draft {
    let mut script = Script {
        file,
        draft: Draft::default(),
        enrollers: Vec::new(),
        addresses: BTreeMap::new(),
    };
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((first, rest)) = words.split_first() else {
            continue;
        };
        // A shell command that runs `rlite-ctl`.
        match (*first, rest) {
            ("rlite-ctl", [verb, rest @ ..]) | ("sudo", ["rlite-ctl", verb, rest @ ..]) => {
                script.line(index + 1, verb, rest);
            }
            _ if first.starts_with('#') => {}
            _ => script.line(index + 1, first, rest),
        }
    }
    script.finish()
}

/// State of reading a script.
struct Script<'a> {
    file: &'a str,
    draft: Draft,
    /// Names of the IPCPs that admit others.
    enrollers: Vec<String>,
    /// For each IPCP with an address: the address, and the line that sets it.
    addresses: BTreeMap<String, (u64, usize)>,
}

impl Script<'_> {
    fn note(&mut self, line: usize, what: impl Into<String>, why: impl Into<String>) {
        self.draft.note(self.file, line, what, why);
    }

    fn line(&mut self, line: usize, first: &str, words: &[&str]) {
        let what = [&[first], words].concat().join(" ");
        let Some(known) = VERBS.iter().find(|verb| verb.name == first) else {
            let meant = nearest(first, VERBS.iter().map(|verb| verb.name));
            let meant = meant.map_or_else(String::new, |verb| format!("; was `{verb}` meant?"));
            let why = format!("`{first}` is not a command of rlite-ctl{meant}");
            return self.note(line, what, why);
        };
        if words.len() < known.least {
            return self.note(
                line,
                what,
                format!("write the line as: {first} {}", known.form),
            );
        }
        let done = match first {
            "ipcp-create" => self.create(line, words),
            "ipcp-destroy" => self.destroy(words[0]),
            "ipcp-config" => self.configure(line, words),
            "ipcp-sched-config" => self
                .member(words[0])
                .and_then(|member| scheduler::set(member, words[1], &words[2..])),
            "ipcp-register" => self.stand(words[0], words[1]),
            "ipcp-unregister" => self.unregister(words[0], words[1]),
            "ipcp-enroller-enable" => {
                self.enrollers.push(words[0].to_owned());
                self.member(words[0]).map(drop)
            }
            "ipcp-enroller-disable" => {
                Err("every member admits others; `rule`s and `auth` say who may not".into())
            }
            "ipcp-enroll" | "ipcp-enroll-retry" | "ipcp-lower-flow-alloc" => self.enroll(words),
            "ipcp-route-add" | "ipcp-route-del" => {
                Err("the routing policy of a DIF computes its routes".into())
            }
            "ipcp-neigh-disconnect" => Err("a node that starts has no neighbour to leave".into()),
            "dif-policy-mod" => self.policy(words),
            "dif-policy-param-mod" => self.parameter(words),
            // A node that starts has nothing to reset, and commands that only show something change
            // nothing.
            _ => Ok(()),
        };
        if let Err(why) = done {
            self.note(line, what, why);
        }
    }

    fn member(&mut self, ipcp: &str) -> Result<&mut Member, Reason> {
        let mut members = self.draft.members.iter_mut();
        members
            .find(|member| member.ipcp == ipcp)
            .ok_or_else(|| format!("no line above creates a normal IPCP {ipcp}").into())
    }

    fn shim(&mut self, ipcp: &str) -> Option<&mut IpcpCreate> {
        let mut shims = self.draft.shims.iter_mut();
        shims.find(|shim| shim.name.as_str() == ipcp)
    }

    fn create(&mut self, line: usize, words: &[&str]) -> Result<(), Reason> {
        let [name, kind, dif] = [words[0], words[1], words[2]];
        let local = LocalName::new(name)?;
        let dif_name = DifName::new(dif)?;
        let is_taken = self.shim(name).is_some() || self.member(name).is_ok();
        if is_taken {
            return Err(format!("a line above already creates IPCP {name}").into());
        }
        let shim = |kind| IpcpCreate::new(local.clone(), kind, dif_name.clone());
        let made = match kind {
            "shim-eth" => IpcpCreate {
                arp: Some(ArpDialect::Rlite),
                // In rlite, a DIF whose name is a number has no VLAN of that number.
                vlan: dif.parse::<u16>().is_ok().then_some(0),
                ..shim(IpcpType::Eth)
            },
            "shim-udp4" => IpcpCreate {
                framing: Some(Framing::Rlite),
                ..shim(IpcpType::Udp)
            },
            "shim-tcp4" => IpcpCreate {
                framing: Some(Framing::Rlite),
                ..shim(IpcpType::Tcp)
            },
            "shim-loopback" => shim(IpcpType::Loopback),
            "shim-wifi" => {
                return Err(
                    "there is no shim for wireless networks; an interface that is associated \
                     already serves a shim-eth"
                        .into(),
                );
            }
            _ if kind.starts_with("normal") => {
                let widths = flavour::widths(kind).ok_or_else(|| {
                    format!(
                        "the field widths of flavour {kind} are unknown; use `normal` and set \
                         `widths` in its `config`"
                    )
                })?;
                let mut member = Member::new(name.to_owned(), dif.to_owned(), Dialect::Rlite, line);
                if let Value::Object(widths) = widths {
                    *member.table(&["widths"]) = widths;
                }
                self.draft.members.push(member);
                return Ok(());
            }
            _ => {
                return Err(format!(
                    "{kind} is not a type of IPCP; the types are normal, shim-eth, shim-udp4, \
                     shim-tcp4, shim-loopback"
                )
                .into());
            }
        };
        if matches!(made.kind, IpcpType::Udp | IpcpType::Tcp) {
            let twin = |other: &&IpcpCreate| other.kind == made.kind;
            if let Some(other) = self.draft.shims.iter().find(twin) {
                let why = format!(
                    "{} listens on the same port; give each IPCP its own `listen`",
                    other.name
                );
                self.note(line, format!("ipcp-create {name} {kind} {dif}"), why);
            }
        }
        self.draft.shims.push(made);
        Ok(())
    }

    fn destroy(&mut self, name: &str) -> Result<(), Reason> {
        let before = self.draft.shims.len() + self.draft.members.len();
        self.draft.shims.retain(|shim| shim.name.as_str() != name);
        self.draft.members.retain(|member| member.ipcp != name);
        if before == self.draft.shims.len() + self.draft.members.len() {
            Err(format!("no line above creates an IPCP {name}").into())
        } else {
            Ok(())
        }
    }

    fn configure(&mut self, line: usize, words: &[&str]) -> Result<(), Reason> {
        let [name, key, value] = [words[0], words[1], words[2]];
        // Parameters that every IPCP of rlite has.
        if let Some(why) = without_like(key) {
            number::<u32>(value)?;
            return Err(why.into());
        }
        if let Some(shim) = self.shim(name) {
            return match (shim.kind, key) {
                (IpcpType::Eth, "netdev") => {
                    shim.interface = Some(crate::interface(value)?);
                    Ok(())
                }
                (IpcpType::Eth | IpcpType::Udp, "mss") => {
                    shim.sdu_max = Some(number(value)?);
                    Ok(())
                }
                (IpcpType::Loopback, "queued" | "drop-fract") => Err(
                    "the loopback shim neither queues nor loses; a `fault` of a udp shim over \
                     127.0.0.1 does"
                        .into(),
                ),
                (kind, _) => {
                    let known: &[&str] = match kind {
                        IpcpType::Eth => &["netdev", "mss"],
                        IpcpType::Udp => &["mss"],
                        IpcpType::Loopback => &["queued", "drop-fract"],
                        _ => &[],
                    };
                    Err(crate::no_such_key("such a shim", "parameter", key, known).into())
                }
            };
        }
        self.configure_member(line, name, key, value)
    }

    fn configure_member(
        &mut self,
        line: usize,
        name: &str,
        key: &str,
        value: &str,
    ) -> Result<(), Reason> {
        let member = self.member(name)?;
        match (key, value) {
            ("csum", "none") => Ok(()),
            ("csum", "inet") => {
                let policies = member.table(&["policies"]);
                policies.insert("pci-checksum".to_owned(), json!({ "name": "inet" }));
                Ok(())
            }
            ("ttl", value) => {
                let hops: u8 = number(value)?;
                member
                    .config
                    .insert("hop_limit".to_owned(), Value::from(hops));
                Ok(())
            }
            ("address", value) => {
                let address: u64 = number(value)?;
                let ipcp = member.ipcp.clone();
                self.addresses.insert(ipcp, (address, line));
                Ok(())
            }
            ("mss", value) => {
                let bytes: u32 = number(value)?;
                // An SDU of this size becomes one PDU, which is longer by its headers.
                Err(format!(
                    "the longest PDU of a DIF follows from the DIFs below; `max_pdu` in its \
                     `config` \
                     bounds it, here to {bytes} and the bytes of its headers"
                )
                .into())
            }
            ("csum", other) => {
                Err(format!("csum {other} is unknown; valid values are none and inet").into())
            }
            (key, _) if key.starts_with("sched") => {
                Err("write the line as: ipcp-sched-config NAME SCHEDULER ..".into())
            }
            _ => Err(crate::no_such_key(
                "a normal IPCP",
                "parameter",
                key,
                &[
                    "csum",
                    "ttl",
                    "address",
                    "flow-del-wait-ms",
                    "mss",
                    "rxhdroom",
                    "txhdroom",
                ],
            )
            .into()),
        }
    }

    fn stand(&mut self, ipcp: &str, dif: &str) -> Result<(), Reason> {
        let dif = DifName::new(dif)?;
        self.member(ipcp)?.try_stand_on(dif.as_str())
    }

    fn unregister(&mut self, ipcp: &str, dif: &str) -> Result<(), Reason> {
        self.member(ipcp)?.over.retain(|known| known != dif);
        Ok(())
    }

    fn enroll(&mut self, words: &[&str]) -> Result<(), Reason> {
        let (name, dif, lower) = (words[0], words[1], words[2]);
        DifName::new(lower)?;
        let neighbour = match words.get(3) {
            Some(name) => {
                let name = AppName::new(*name)?;
                Some(name.to_string())
            }
            None => None,
        };
        let member = self.member(name)?;
        if member.dif != dif {
            return Err(format!("{name} is an IPCP of DIF {}, not of {dif}", member.dif).into());
        }
        member.try_stand_on(lower)?;
        match (&member.role, &member.via) {
            (None, _) => {
                member.role = Some(DifRole::Join);
                member.via = neighbour;
                Ok(())
            }
            (Some(_), via) if *via == neighbour => Ok(()),
            (Some(_), via) => Err(format!(
                "a member asks one other ({}) in each of its N-1 DIFs; further members ask it",
                via.as_deref()
                    .unwrap_or("any that answers to the DIF's name")
            )
            .into()),
        }
    }

    /// The members of the DIF `name`, or the member `name`.
    fn of_dif(&mut self, name: &str) -> Result<Vec<&mut Member>, Reason> {
        let members = self.draft.members.iter_mut();
        let found: Vec<&mut Member> = members
            .filter(|member| member.dif == name || member.ipcp == name)
            .collect();
        if found.is_empty() {
            Err(format!("no line above creates a member of DIF {name}").into())
        } else {
            Ok(found)
        }
    }

    fn policy(&mut self, words: &[&str]) -> Result<(), Reason> {
        for member in self.of_dif(words[0])? {
            policies::choose(member, words[1], words[2])?;
        }
        Ok(())
    }

    fn parameter(&mut self, words: &[&str]) -> Result<(), Reason> {
        for member in self.of_dif(words[0])? {
            policies::set(member, words[1], words[2], words[3])?;
        }
        Ok(())
    }

    fn finish(mut self) -> Draft {
        let mut notes = Vec::new();
        for member in &mut self.draft.members {
            let what = format!("{} of DIF {}", member.ipcp, member.dif);
            let is_enroller = self.enrollers.contains(&member.ipcp);
            if member.role.is_none() && !is_enroller {
                let why = "the file does not tell whether it enrolls or is the first member; it \
                     becomes the first member";
                notes.push((member.line, what.clone(), why));
            }
            member.role.get_or_insert(DifRole::Create);
            if let Some((address, line)) = self.addresses.get(&member.ipcp)
                && let Err(why) = policies::set_address(member, *address)
            {
                let what = format!("ipcp-config {} address {address}", member.ipcp);
                notes.push((*line, what, why));
            }
        }
        for (line, what, why) in notes {
            self.note(line, what, why);
        }
        self.drop_unfinished();
        self.draft
    }

    /// Removes IPCPs that a node would refuse: Ethernet shims without interface, and members
    /// without N-1 DIF.
    fn drop_unfinished(&mut self) {
        let mut left_out = Vec::new();
        self.draft.shims.retain(|shim| {
            let is_whole = shim.kind != IpcpType::Eth || shim.interface.is_some();
            if !is_whole {
                left_out.push(shim.name.to_string());
            }
            is_whole
        });
        for name in left_out {
            let why =
                format!("left out: it has no interface; `ipcp-config {name} netdev INTERFACE`");
            self.note(0, name, why);
        }
        let mut without_lower = Vec::new();
        self.draft.members.retain(|member| {
            if member.over.is_empty() {
                without_lower.push((member.line, member.ipcp.clone()));
            }
            !member.over.is_empty()
        });
        for (line, name) in without_lower {
            let why = format!("left out: it has no N-1 DIF; `ipcp-register {name} DIF`");
            self.note(line, name, why);
        }
    }
}

/// For a parameter that every IPCP of rlite has: why it is not translated. `None` for other
/// parameters.
fn without_like(key: &str) -> Option<&'static str> {
    match key {
        "flow-del-wait-ms" => {
            Some("how long a closed flow is kept follows from the timers of EFCP")
        }
        "rxhdroom" | "txhdroom" => {
            Some("the room for headers in front of an SDU follows from the DIFs above and below")
        }
        _ => None,
    }
}

/// Parses a number of any type.
pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, Reason> {
    let wrong = |_| format!("{text:?} is not a number in the allowed range").into();
    text.parse().map_err(wrong)
}
