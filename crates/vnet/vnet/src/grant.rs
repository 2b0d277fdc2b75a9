//! Grants: what an operator allows other persons to do with one of its networks.
//!
//! A grant is a set of verbs. It may be limited to some nodes, and may expire. A grant belongs to
//! one network and is removed with it: a later network of the same name has no grants. Anything
//! that is not granted is refused.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use carina_time::Instant;
use serde::{Deserialize, Serialize};

/// What one person may do with a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The allowed verbs.
    pub may: BTreeSet<Verb>,
    /// The nodes on which verbs of nodes are allowed; all nodes if the set is empty.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub nodes: BTreeSet<String>,
    /// When the grant expires, in whole seconds since 1970, UTC; `None`: with its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

/// A kind of request about a network, which an operator can grant to another person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// See the document, events, nodes and links.
    See,
    /// Run commands in nodes.
    Exec,
    /// Watch the consoles of nodes.
    Watch,
    /// Watch consoles and type at them.
    Console,
    /// Probe links and run the document's tests.
    Test,
    /// Migrate machines to other hosts.
    Migrate,
    /// Stop, start and restart nodes.
    Restart,
    /// Capture packets at nodes' interfaces.
    Capture,
    /// Impair the frames that nodes send.
    Impair,
    /// Make tokens for end users of access points, and revoke them.
    Token,
    /// Change the network by a new document.
    Apply,
    /// Remove the whole network.
    Remove,
}

/// The error for a word that is not a verb.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be granted; the verbs that can be granted are {all}", all = Verb::list())]
pub struct UnknownVerb(String);

/// Why a grant is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// The grant has no verbs.
    #[error("a grant needs at least one verb: {all}", all = Verb::list())]
    Nothing,
    /// The grant would already have expired.
    #[error("the grant would end in the past: `until` counts seconds since 1970, UTC")]
    Ended,
    /// The grant is limited to some nodes, but has this verb, which concerns the whole network.
    #[error(
        "`{0}` applies to the whole network: a grant of it cannot name nodes; use a separate \
         grant for verbs on nodes"
    )]
    OfNetwork(Verb),
    /// The network has no node of this name.
    #[error("the network has no node {0}")]
    NoNode(String),
}

impl Verb {
    /// All verbs.
    pub const ALL: [Verb; 12] = [
        Verb::See,
        Verb::Exec,
        Verb::Watch,
        Verb::Console,
        Verb::Test,
        Verb::Migrate,
        Verb::Restart,
        Verb::Capture,
        Verb::Impair,
        Verb::Token,
        Verb::Apply,
        Verb::Remove,
    ];

    /// The keyword of this verb.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Verb::See => "see",
            Verb::Exec => "exec",
            Verb::Watch => "watch",
            Verb::Console => "console",
            Verb::Test => "test",
            Verb::Migrate => "migrate",
            Verb::Restart => "restart",
            Verb::Capture => "capture",
            Verb::Impair => "impair",
            Verb::Token => "token",
            Verb::Apply => "apply",
            Verb::Remove => "remove",
        }
    }

    /// Whether the verb concerns a single node, not the whole network.
    #[must_use]
    pub const fn is_of_node(self) -> bool {
        matches!(
            self,
            Verb::Exec
                | Verb::Watch
                | Verb::Console
                | Verb::Migrate
                | Verb::Restart
                | Verb::Capture
                | Verb::Impair
        )
    }

    /// Whether a person with this verb may also do `other`.
    const fn includes(self, other: Verb) -> bool {
        self as u8 == other as u8
            || matches!(
                (self, other),
                (Verb::Console, Verb::Watch)
                    // The commands of these verbs also read the state of the network.
                    | (Verb::Test | Verb::Apply | Verb::Remove, Verb::See)
            )
    }

    fn list() -> String {
        Verb::ALL.map(Verb::word).join(", ")
    }
}

impl Grant {
    /// Whether the grant allows `verb`. If `node` is given and the verb concerns nodes, the grant
    /// must cover that node.
    #[must_use]
    pub fn lets(&self, verb: Verb, node: Option<&str>) -> bool {
        let is_there = match node {
            Some(node) if verb.is_of_node() => self.nodes.is_empty() || self.nodes.contains(node),
            _ => true,
        };
        is_there && self.may.iter().any(|may| may.includes(verb))
    }

    /// Whether the grant has expired. `now` is the time since 1970, as it is in all roles.
    #[must_use]
    pub fn has_ended(&self, now: Instant) -> bool {
        self.until
            .is_some_and(|until| now.since(Instant::ZERO).as_secs() >= until)
    }

    /// Checks the grant for a network with the given nodes.
    ///
    /// # Errors
    /// The grant has no verbs, has already expired, names a node that the network does not have, or
    /// limits a verb of the whole network to some nodes.
    pub fn check<'a>(
        &self,
        now: Instant,
        nodes: impl Iterator<Item = &'a str>,
    ) -> Result<(), GrantError> {
        if self.may.is_empty() {
            return Err(GrantError::Nothing);
        }
        if self.has_ended(now) {
            return Err(GrantError::Ended);
        }
        if self.nodes.is_empty() {
            return Ok(());
        }
        if let Some(verb) = self.may.iter().find(|verb| !verb.is_of_node()) {
            return Err(GrantError::OfNetwork(*verb));
        }
        let known: BTreeSet<&str> = nodes.collect();
        let unknown = self
            .nodes
            .iter()
            .find(|node| !known.contains(node.as_str()));
        match unknown {
            Some(node) => Err(GrantError::NoNode(node.chars().take(64).collect())),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verbs: Vec<&str> = self.may.iter().map(|verb| verb.word()).collect();
        f.write_str(&verbs.join(", "))?;
        if self.nodes.is_empty() {
            return Ok(());
        }
        let nodes: Vec<&str> = self.nodes.iter().map(String::as_str).collect();
        write!(f, " at {}", nodes.join(", "))
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Verb {
    type Err = UnknownVerb;

    fn from_str(text: &str) -> Result<Verb, UnknownVerb> {
        let found = Verb::ALL.into_iter().find(|verb| verb.word() == text);
        found.ok_or_else(|| UnknownVerb(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(may: &[Verb], nodes: &[&str]) -> Grant {
        Grant {
            may: may.iter().copied().collect(),
            nodes: nodes.iter().map(|&node| node.to_owned()).collect(),
            until: None,
        }
    }

    #[test]
    fn grant_lets_do_what_it_says_and_no_more() {
        let some = grant(&[Verb::Console, Verb::Exec], &["r1"]);
        for verb in Verb::ALL {
            let is_granted = matches!(verb, Verb::Console | Verb::Watch | Verb::Exec);
            assert_eq!(some.lets(verb, Some("r1")), is_granted, "{verb}");
            assert!(!some.lets(verb, Some("r2")), "{verb}");
        }
        let watcher = grant(&[Verb::Watch], &[]);
        assert!(watcher.lets(Verb::Watch, Some("r2")));
        assert!(!watcher.lets(Verb::Console, Some("r2")));
        for verb in [Verb::Test, Verb::Apply, Verb::Remove] {
            assert!(grant(&[verb], &[]).lets(Verb::See, None));
            assert!(!grant(&[Verb::See], &[]).lets(verb, None));
        }
        assert!(!grant(&[Verb::Test], &[]).lets(Verb::Exec, Some("r1")));
    }

    #[test]
    fn grants_that_cannot_be_get_words() {
        for (grant, words) in [
            (grant(&[], &[]), "at least one verb"),
            (
                grant(&[Verb::Exec, Verb::Apply], &["r1"]),
                "`apply` applies to the whole",
            ),
            (grant(&[Verb::Exec], &["r9"]), "no node r9"),
        ] {
            let error = grant
                .check(Instant::ZERO, ["r1", "r2"].into_iter())
                .unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
        let error = "king".parse::<Verb>().unwrap_err().to_string();
        assert!(
            error.contains("`king`") && error.contains("exec"),
            "{error}"
        );
    }

    #[test]
    fn grant_ends_at_its_second() {
        let mut some = grant(&[Verb::Exec], &[]);
        let end = Instant::from_secs(100);
        let before = Instant::from_millis(99_999);
        assert!(!some.has_ended(end), "without an end");
        some.until = Some(100);
        assert!(!some.has_ended(before) && some.has_ended(end));
        assert_eq!(some.check(before, [].into_iter()), Ok(()));
        assert_eq!(some.check(end, [].into_iter()), Err(GrantError::Ended));
    }

    #[test]
    fn verbs_are_read_as_they_are_written() {
        for verb in Verb::ALL {
            assert_eq!(verb.word().parse(), Ok(verb));
            let json = serde_json::to_string(&verb).unwrap();
            assert_eq!(json, format!("\"{verb}\""));
        }
        let text = grant(&[Verb::Exec, Verb::Console], &["r1", "r2"]).to_string();
        assert_eq!(text, "exec, console at r1, r2");
    }
}
