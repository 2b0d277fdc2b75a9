//! What has to be done so that one graph becomes another.

use std::fmt;

use crate::frames::graph::{Graph, LinkName};

/// The steps from one graph to another. Apps and links that are in both and the same are in no
/// list: nothing is done to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Apps that are new.
    pub added: Vec<String>,
    /// Apps that go.
    pub removed: Vec<String>,
    /// Apps that take another configuration while they run.
    pub changed: Vec<String>,
    /// Apps in whose place another one comes, on the same worker or another.
    pub replaced: Vec<String>,
    /// Links that are new.
    pub linked: Vec<LinkName>,
    /// Links that go, with the frames on them.
    pub unlinked: Vec<LinkName>,
}

impl Difference {
    /// The steps from `old` to `new`.
    #[must_use]
    pub fn between(old: &Graph, new: &Graph) -> Difference {
        let mut steps = Difference::default();
        for (name, app) in &new.apps {
            let list = match old.apps.get(name) {
                None => &mut steps.added,
                // An app stays on its thread for life.
                Some(old) if app.worker != old.worker => &mut steps.replaced,
                Some(old) if app.config.is_equal(&*old.config) => continue,
                Some(old) if app.config.can_apply_any(&*old.config) => &mut steps.changed,
                Some(_) => &mut steps.replaced,
            };
            list.push(name.clone());
        }
        let gone = old.apps.keys().filter(|name| !new.apps.contains_key(*name));
        steps.removed = gone.cloned().collect();
        steps.linked = new.links.difference(&old.links).cloned().collect();
        steps.unlinked = old.links.difference(&new.links).cloned().collect();
        steps
    }

    /// True when both graphs are the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Difference::default()
    }
}

impl fmt::Display for Difference {
    /// One line per step: `+` what comes, `-` what goes, `~` what changes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let apps = [
            ("-", &self.removed, ""),
            ("+", &self.added, ""),
            ("~", &self.changed, ""),
            ("~", &self.replaced, " (replaced)"),
        ];
        let mut lines = Vec::new();
        for (sign, names, note) in apps {
            lines.extend(names.iter().map(|name| format!("{sign} app {name}{note}")));
        }
        lines.extend(self.unlinked.iter().map(|link| format!("- link {link}")));
        lines.extend(self.linked.iter().map(|link| format!("+ link {link}")));
        f.write_str(&lines.join("\n"))
    }
}
