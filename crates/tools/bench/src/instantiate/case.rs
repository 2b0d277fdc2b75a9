//! A network to make, and how it is made.

use std::fmt;
use std::str::FromStr;

use carina_vnet::document::{Boot, Document, Form};
use carina_vnet::pip::inventory::Discovery;

use crate::error::{Attempt, Result};

/// A case of `carina vnet bench instantiate`: a network to make, and how to make it. As text:
/// `DISCOVERY/BOOT/NODES/PROVIDERS`, such as `pip/clone/6/1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// How much each provider (PIP) discloses to VNPs about its hosts and links.
    pub discovery: Discovery,
    /// How VMs are started.
    pub boot: Boot,
    /// Number of nodes of the network, which form a ring. The range is [`NODES`].
    pub nodes: usize,
    /// Number of providers; each makes a part of the network. The range is [`PROVIDERS`].
    pub providers: usize,
}

/// Why a text such as `pip/clone/6/1` cannot be parsed as a [`Case`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The text does not have four parts separated by `/`.
    #[error("`{0}`: a case must be DISCOVERY/BOOT/NODES/PROVIDERS, for example pip/clone/6/1")]
    Form(String),
    /// The first part is not a kind of discovery, or the second is not a way to start VMs.
    #[error("`{case}`: `{word}` is not one of {known}")]
    Word {
        /// The text that was to be parsed as a case.
        case: String,
        /// The part that is not known.
        word: String,
        /// The valid values for that part.
        known: String,
    },
    /// The number of nodes or of providers is too small or too large.
    #[error("`{case}`: {what}; must be {min} to {max}")]
    Number {
        /// The text that was to be parsed as a case.
        case: String,
        /// The number that is out of range (`nodes` or `providers`), or the rule that it breaks.
        what: &'static str,
        /// The smallest number that is allowed.
        min: usize,
        /// The largest number that is allowed.
        max: usize,
    },
}

/// How many nodes a measured network can have.
pub const NODES: std::ops::RangeInclusive<usize> = 3..=200;
/// How many providers can make a measured network.
pub const PROVIDERS: std::ops::RangeInclusive<usize> = 1..=8;

/// Kinds of discovery that are measured by default.
pub const DISCOVERIES: [Discovery; 3] = [Discovery::Pip, Discovery::Vnp, Discovery::Abstract];
/// Ways to start VMs that are measured by default.
pub const BOOTS: [Boot; 3] = [Boot::Cold, Boot::Clone, Boot::Pool];
/// How many nodes the networks have that are measured by default.
pub const DEFAULT_NODES: [usize; 3] = [3, 6, 12];
/// How many providers make the networks that are measured by default.
pub const DEFAULT_PROVIDERS: [usize; 2] = [1, 3];

impl Case {
    /// The document of a ring of nodes. With several providers, each has a row of the ring, and
    /// each row is linked to the next provider's.
    ///
    /// # Errors
    /// No error is known: the documents made here are valid.
    pub(super) fn document(self) -> Result<Document> {
        let boot = boot_name(self.boot);
        let mut text = format!(
            "[vnet]\nname = \"bench\"\non_insufficient = \"queue 2m\"\n\
             [defaults]\nkind = \"vm\"\nmemory = {MEMORY_MIB}\nboot = \"{boot}\"\n"
        );
        for node in 0..self.nodes {
            let place = location(node * self.providers / self.nodes);
            text.push_str(&format!("[node.n{node}]\nlocation = [\"{place}\"]\n"));
        }
        for node in 0..self.nodes {
            let next = (node + 1) % self.nodes;
            text.push_str(&format!(
                "[[link]]\nends = [\"n{node}\", \"n{next}\"]\nrate = \"100Mbps\"\n"
            ));
        }
        Document::read(&text, Form::Toml).attempt(format!("the document of {self}"))
    }

    /// Largest number of nodes that one provider has.
    pub(super) fn nodes_of_one(self) -> usize {
        self.nodes.div_ceil(self.providers)
    }
}

/// Location of the only host of a provider.
pub(super) fn location(provider: usize) -> String {
    format!("place{}", provider + 1)
}

/// The name of a kind of discovery, as in inventories.
#[must_use]
pub fn discovery_name(discovery: Discovery) -> &'static str {
    match discovery {
        Discovery::Pip => "pip",
        Discovery::Vnp => "vnp",
        Discovery::Abstract => "abstract",
    }
}

/// The name of a way to start VMs, as in documents.
#[must_use]
pub fn boot_name(boot: Boot) -> &'static str {
    match boot {
        Boot::Cold => "cold",
        Boot::Clone => "clone",
        Boot::Pool => "pool",
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (discovery, boot) = (discovery_name(self.discovery), boot_name(self.boot));
        write!(f, "{discovery}/{boot}/{}/{}", self.nodes, self.providers)
    }
}

impl FromStr for Case {
    type Err = CaseError;

    fn from_str(text: &str) -> std::result::Result<Case, CaseError> {
        let wrong = || CaseError::Form(text.chars().take(64).collect());
        let words: Vec<&str> = text.split('/').collect();
        let [discovery, boot, nodes, providers] = words[..] else {
            return Err(wrong());
        };
        let number = |word: &str| word.parse::<usize>().map_err(|_| wrong());
        let case = Case {
            discovery: *word_of(text, discovery, &DISCOVERIES, |choice| {
                discovery_name(*choice)
            })?,
            boot: *word_of(text, boot, &BOOTS, |boot| boot_name(*boot))?,
            nodes: number(nodes)?,
            providers: number(providers)?,
        };
        let known = [
            ("nodes", case.nodes, NODES),
            ("providers", case.providers, PROVIDERS),
        ];
        for (what, count, possible) in known {
            if !possible.contains(&count) {
                return Err(CaseError::Number {
                    case: text.to_owned(),
                    what,
                    min: *possible.start(),
                    max: *possible.end(),
                });
            }
        }
        if case.nodes < case.providers {
            return Err(CaseError::Number {
                case: text.to_owned(),
                what: "each provider needs a node",
                min: case.providers,
                max: *NODES.end(),
            });
        }
        Ok(case)
    }
}

fn word_of<'a, T>(
    case: &str,
    word: &str,
    all: &'a [T],
    name: impl Fn(&T) -> &'static str,
) -> std::result::Result<&'a T, CaseError> {
    let found = all.iter().find(|candidate| name(candidate) == word);
    found.ok_or_else(|| CaseError::Word {
        case: case.to_owned(),
        word: word.to_owned(),
        known: all.iter().map(name).collect::<Vec<_>>().join(", "),
    })
}

/// Memory of each VM in MiB.
pub(super) const MEMORY_MIB: u32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_as_they_are_written() {
        for text in ["pip/clone/6/1", "vnp/pool/3/3", "abstract/cold/12/2"] {
            assert_eq!(text.parse::<Case>().unwrap().to_string(), text);
        }
        let words = |text: &str| text.parse::<Case>().unwrap_err().to_string();
        assert!(words("pip/clone/6").contains("pip/clone/6/1"));
        assert!(words("pip/clone/six/1").contains("pip/clone/6/1"));
        assert!(words("pip/warm/6/1").contains("cold, clone, pool"));
        assert!(words("mars/cold/6/1").contains("pip, vnp, abstract"));
        assert!(words("pip/cold/2/1").contains("3 to 200"));
        assert!(words("pip/cold/201/1").contains("3 to 200"));
        assert!(words("pip/cold/6/9").contains("1 to 8"));
        assert!(words("pip/cold/3/4").contains("4 to 200"));
    }

    #[test]
    fn each_provider_has_a_row_of_the_ring() {
        for (nodes, providers) in [(3, 1), (3, 3), (6, 3), (12, 3), (7, 3)] {
            let boot = Boot::Cold;
            let case = Case {
                discovery: Discovery::Pip,
                boot,
                nodes,
                providers,
            };
            let document = case.document().unwrap();
            assert_eq!((document.node.len(), document.link.len()), (nodes, nodes));
            let mut counts = vec![0; providers];
            for name in document.node.keys() {
                let node = document.resolved(name).unwrap();
                assert!(node.boot == boot && node.memory == u64::from(MEMORY_MIB));
                let place =
                    (0..providers).find(|candidate| node.location == [location(*candidate)]);
                counts[place.unwrap()] += 1;
            }
            assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
            let largest = counts.into_iter().max();
            assert_eq!(largest, Some(case.nodes_of_one()));
        }
    }
}
