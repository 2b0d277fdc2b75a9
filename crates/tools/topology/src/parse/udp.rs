//! Parses lines `udp4`: links over which DIFs use a shim over UDP.

use super::{Draft, DraftLink, form};
use crate::address::Address;
use crate::token::Token;
use crate::{Position, TopologyError};

impl Draft {
    pub(super) fn udp4(&mut self, verb: &Token, words: &[Token]) -> Result<(), TopologyError> {
        let [name, rest @ ..] = words else {
            return Err(form(verb));
        };
        let mut link = self.draft_link(name)?;
        for word in rest {
            match word.pair() {
                Some((key, value)) => take_option(&mut link, key, &value, word)?,
                None => self.take_end(&mut link, word)?,
            }
        }
        if link.ends.len() < 2 {
            return Err(name.error(
                "a link needs two systems or more; for example udp4 ab a:10.0.0.1/24 b:10.0.0.2/24",
            ));
        }
        self.links.push(link);
        Ok(())
    }

    /// Parses an end of a link: `SYSTEM:ADDRESS/PREFIX`.
    fn take_end(&mut self, link: &mut DraftLink, word: &Token) -> Result<(), TopologyError> {
        let Some((system, text)) = word.text.split_once(':') else {
            return Err(word.error(format!(
                "`{0}` has no address; write `{0}:10.0.0.1/24`",
                word.text
            )));
        };
        let address_at = Position {
            column: word.at.column + system.chars().count() + 1,
            ..word.at
        };
        let system = self.mention(&Token {
            text: system.to_owned(),
            at: word.at,
        })?;
        let address_word = Token {
            text: text.to_owned(),
            at: address_at,
        };
        let Some(address) = Address::parse(text) else {
            return Err(address_word.error(format!(
                "`{text}` is not an IPv4 address with a prefix length of up to 31; write \
                 10.0.0.1/24"
            )));
        };
        if link.ends.contains(&system) {
            return Err(word.error(format!("{system} is already on this link")));
        }
        for (other, known) in link.ends.iter().zip(&link.addresses) {
            if known.ip == address.ip {
                return Err(address_word.error(format!("{} is the address of {other}", known.ip)));
            }
            if known.prefix != address.prefix || !known.meets(&address) {
                return Err(address_word.error(format!(
                    "{address} is in another network than {known} of {other}; all addresses of a \
                     link must be in one network"
                )));
            }
        }
        let others = self
            .links
            .iter()
            .filter(|other| other.ends.contains(&system));
        for other in others {
            if let Some(known) = other.addresses.iter().find(|known| known.meets(&address)) {
                return Err(address_word.error(format!(
                    "{address} is in the network of link {} ({known}), to which {system} belongs \
                     too; each link needs its own network",
                    other.name
                )));
            }
        }
        link.ends.push(system);
        link.addresses.push(address);
        Ok(())
    }
}

fn take_option(
    link: &mut DraftLink,
    key: &str,
    value: &Token,
    word: &Token,
) -> Result<(), TopologyError> {
    match key {
        "mtu" => link.mtu = Some(value.number("mtu", 128, 65_535)? as u32),
        _ if link.impairment.take(key, value)? => {}
        _ => {
            return Err(word.error(format!(
                "`{key}` is not an option of a link over UDP; the options are mtu, rate, delay, \
                 jitter, loss, duplicate, reorder, limit, seed"
            )));
        }
    }
    Ok(())
}
