//! Access rules: which user may register which name, and allocate flows to which name.
//!
//! Rules are tried in the order of the configuration; the first that matches decides. If none
//! matches, root and the user of the node are allowed, and all others are denied.

use serde::Deserialize;
use thiserror::Error;
use wildmatch::WildMatch;

/// An access rule of the configuration: which user may register or call which name. In its patterns
/// `*` matches any text and `?` any character.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RuleText")]
pub struct Rule {
    user: User,
    action: Action,
    name: WildMatch,
    dif: WildMatch,
    allow: bool,
}

/// Why a rule is incomplete or contradictory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
enum RuleError {
    #[error("a rule names its users by either `uid = N` or `any = true`")]
    User,
    #[error("a rule names its action by either `register = \"GLOB\"` or `allocate = \"GLOB\"`")]
    Action,
}

/// The action that a rule allows or denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Registering a name.
    Register,
    /// Allocating a flow to a name.
    Allocate,
}

/// The rules in force.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    rules: Vec<Rule>,
    node_uid: u32,
}

impl Rules {
    /// The rules of a node that runs as user `node_uid`.
    pub(crate) fn new(rules: Vec<Rule>, node_uid: u32) -> Self {
        Self { rules, node_uid }
    }

    /// Number of rules.
    pub(crate) fn count(&self) -> usize {
        self.rules.len()
    }

    /// True when the user may perform the action with this name in this DIF.
    pub(crate) fn allow(&self, uid: u32, action: Action, name: &str, dif: &str) -> bool {
        let fits = |rule: &&Rule| {
            rule.action == action
                && (rule.user == User::Any || rule.user == User::Uid(uid))
                && rule.name.matches(name)
                && rule.dif.matches(dif)
        };
        match self.rules.iter().find(fits) {
            Some(rule) => rule.allow,
            None => uid == 0 || uid == self.node_uid,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    Any,
    Uid(u32),
}

/// A rule as written in the configuration, before its fields are checked together.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    uid: Option<u32>,
    any: Option<bool>,
    register: Option<String>,
    allocate: Option<String>,
    dif: Option<String>,
    allow: bool,
}

impl TryFrom<RuleText> for Rule {
    type Error = RuleError;

    fn try_from(text: RuleText) -> Result<Self, RuleError> {
        let user = match (text.uid, text.any) {
            (Some(uid), None) => User::Uid(uid),
            (None, Some(true)) => User::Any,
            _ => return Err(RuleError::User),
        };
        let (action, name) = match (text.register, text.allocate) {
            (Some(name), None) => (Action::Register, name),
            (None, Some(name)) => (Action::Allocate, name),
            _ => return Err(RuleError::Action),
        };
        let dif = WildMatch::new(text.dif.as_deref().unwrap_or("*"));
        Ok(Self {
            user,
            action,
            name: WildMatch::new(&name),
            dif,
            allow: text.allow,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        #[derive(Deserialize)]
        struct File {
            rule: Vec<Rule>,
        }
        Rules::new(toml::from_str::<File>(text).unwrap().rule, 1000)
    }

    #[test]
    fn first_rule_that_fits_decides() {
        let rules = rules(
            r#"
            rule = [
                { uid = 7, register = "secret.*", allow = false },
                { any = true, register = "*", dif = "local", allow = true },
            ]"#,
        );
        assert!(!rules.allow(7, Action::Register, "secret.a", "local"));
        assert!(rules.allow(7, Action::Register, "public", "local"));
        assert!(rules.allow(8, Action::Register, "secret.a", "local"));
        assert!(!rules.allow(8, Action::Register, "x", "hv.vm1"));
        assert!(!rules.allow(8, Action::Allocate, "x", "local"));
    }

    #[test]
    fn without_a_rule_only_root_and_the_nodes_user_are_allowed() {
        let rules = Rules::new(Vec::new(), 1000);
        for (uid, allowed) in [(0, true), (1000, true), (1001, false)] {
            assert_eq!(
                rules.allow(uid, Action::Allocate, "x", "y"),
                allowed,
                "{uid}"
            );
        }
    }

    #[test]
    fn rules_that_contradict_themselves_are_refused() {
        for bad in [
            "allow = true\nregister = \"x\"",
            "allow = true\nuid = 1\nany = true\nregister = \"x\"",
            "allow = true\nany = false\nregister = \"x\"",
            "allow = true\nuid = 1",
            "allow = true\nuid = 1\nregister = \"x\"\nallocate = \"y\"",
            "uid = 1\nregister = \"x\"",
            "allow = true\nuid = 1\nregister = \"x\"\ncolour = 1",
        ] {
            assert!(toml::from_str::<Rule>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_fit_whole_texts_only() {
        let fits = |pattern: &str, text: &str| WildMatch::new(pattern).matches(text);
        for (pattern, text) in [
            ("*", ""),
            ("a*c", "abbc"),
            ("a?c", "aéc"),
            ("*.vm", "a.b.vm"),
            ("", ""),
            ("a**", "a"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("a*c", "abcd"),
            ("?", ""),
            ("a?c", "ac"),
            ("*x", "xy"),
        ] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = WildMatch::new(&"a*".repeat(100));
        assert!(!pattern.matches(&format!("{}b", "ba".repeat(120))));
    }
}
