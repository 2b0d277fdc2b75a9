//! The difference between two graphs.

use std::fmt;

use crate::graph::{Graph, LinkName};

/// The changes that turn one graph into another. Apps and links that are equal in both graphs are
/// in no list; they stay untouched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Names of the apps that are added.
    pub added: Vec<String>,
    /// Names of the apps that are removed.
    pub removed: Vec<String>,
    /// Names of the apps that get another configuration while they run.
    pub changed: Vec<String>,
    /// Names of the apps that are recreated: the app ends, and a new app of the same name starts,
    /// on the same worker or another.
    pub replaced: Vec<String>,
    /// Links that are added to the graph.
    pub linked: Vec<LinkName>,
    /// Links that are removed, together with the frames that wait on them.
    pub unlinked: Vec<LinkName>,
}

impl Difference {
    /// Finds the changes that turn `old` into `new`.
    #[must_use]
    pub fn between(old: &Graph, new: &Graph) -> Difference {
        let mut steps = Difference::default();
        for (name, app) in &new.apps {
            let list = match old.apps.get(name) {
                None => &mut steps.added,
                // A running app cannot move to another thread.
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

    /// Whether the old and the new graph are equal, so that there is nothing to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Difference::default()
    }
}

impl fmt::Display for Difference {
    /// One line per step: `+` for an addition, `-` for a removal, `~` for a change.
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
