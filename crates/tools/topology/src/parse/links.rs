//! Parses lines `eth` and `netem`: links, and their impairment.

use super::{Draft, DraftLink, form};
use crate::TopologyError;
use crate::netem::Impairment;
use crate::token::{Token, split};

impl Draft {
    pub(super) fn eth(&mut self, verb: &Token, words: &[Token]) -> Result<(), TopologyError> {
        let [name, rate, rest @ ..] = words else {
            return Err(form(verb));
        };
        let mut link = self.draft_link(name)?;
        link.impairment.rate_bps = Some(rate.rate()?).filter(|rate| *rate > 0);
        for word in rest {
            let Some((key, value)) = word.pair() else {
                let system = self.mention(word)?;
                if link.ends.contains(&system) {
                    return Err(word.error(format!("{system} is already on this link")));
                }
                link.ends.push(system);
                continue;
            };
            match key {
                "vlan" => link.vlan = Some(value.number("vlan", 1, 4094)? as u16),
                "mtu" => link.mtu = Some(value.number("mtu", 128, 65_535)? as u32),
                _ if key != "rate" && link.impairment.take(key, &value)? => {}
                _ => {
                    return Err(word.error(format!(
                        "`{key}` is not an option of a link; the options are vlan, mtu, delay, \
                         jitter, loss, duplicate, reorder, limit, seed"
                    )));
                }
            }
        }
        if link.ends.len() < 2 {
            return Err(name.error("a link needs two systems or more"));
        }
        check_vlan(&link, name)?;
        self.links.push(link);
        Ok(())
    }

    /// A new link with this name and no other properties. Refuses a name that is in use.
    pub(super) fn draft_link(&self, name: &Token) -> Result<DraftLink, TopologyError> {
        let link = DraftLink {
            name: name.name("link")?,
            at: name.at,
            ends: Vec::new(),
            addresses: Vec::new(),
            vlan: None,
            mtu: None,
            impairment: Impairment::default(),
            netem: Vec::new(),
        };
        if self.links.iter().any(|other| other.name == link.name) {
            return Err(name.error(format!("link {} already exists", link.name)));
        }
        Ok(link)
    }

    pub(super) fn netem(&mut self, verb: &Token, words: &[Token]) -> Result<(), TopologyError> {
        let [name, rest @ ..] = words else {
            return Err(form(verb));
        };
        let Some(link) = self.links.iter_mut().find(|link| link.name == name.text) else {
            return Err(name.error(format!(
                "link {} does not exist; write a line `eth {0} ...` or `udp4 {0} ...` before this \
                 one",
                name.text
            )));
        };
        let on = rest.first().filter(|word| link.ends.contains(&word.text));
        let rest = if on.is_some() { &rest[1..] } else { rest };
        // A quoted list of words is one token here, so it is split again.
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
}

/// Checks a link whose name is a number, because the Ethernet shim uses such a name as VLAN id.
fn check_vlan(link: &DraftLink, name: &Token) -> Result<(), TopologyError> {
    let Ok(number) = link.name.parse::<u64>() else {
        return Ok(());
    };
    if number == 0 || number > 4094 {
        return Err(name.error(format!(
            "a link whose name is a number is the VLAN with that id, but {number} is not a VLAN \
             id; use 1 to 4094, or a name with a letter"
        )));
    }
    match link.vlan {
        Some(vlan) if u64::from(vlan) != number => Err(name.error(format!(
            "the link is VLAN {number} by its name and {vlan} by vlan=; leave one out"
        ))),
        _ => Ok(()),
    }
}
