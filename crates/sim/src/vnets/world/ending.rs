//! How networks ended.

use carina_time::Instant;
use carina_vnet::store::{KeyRange, Store};
use carina_vnet::vno::Seen;

use super::{Broken, Who, World};

impl World<'_> {
    /// When all has been calm for a while: looks at what has come of each network, and removes it.
    pub(super) fn remove_all(&mut self, now: Instant) -> Result<(), Broken> {
        for number in 0..self.operators.len() {
            let Some(machine) = self.vnos[number].machine.as_mut() else {
                return Err(Broken(format!("operator {number} did not come back")));
            };
            let names: Vec<String> = machine.names().map(str::to_owned).collect();
            let mut seen = Vec::new();
            for name in &names {
                seen.extend(machine.seen(name));
                let removed = machine.remove(now, name);
                removed.map_err(|error| Broken(format!("{name} cannot be removed: {error}")))?;
            }
            for network in seen {
                self.judge(&network)?;
            }
            self.flush(now, Who::Vno(number))?;
        }
        Ok(())
    }

    fn judge(&mut self, seen: &Seen) -> Result<(), Broken> {
        let standing = &seen.standing;
        let nodes = self
            .hosts
            .iter()
            .filter_map(|host| host.parts.get(&seen.vnet));
        let nodes: usize = nodes.map(|(part, _)| part.nodes.len()).sum();
        self.note(|| format!("{seen:?}, {nodes} nodes"));
        if standing.is_ready() {
            self.outcome.ready += 1;
            return match nodes {
                0 => Err(Broken(format!("{} is ready and has no node", seen.name))),
                _ => Ok(()),
            };
        }
        let reason = standing
            .reason
            .as_ref()
            .map_or("", |reason| &reason.message);
        if standing.is_refused && !reason.is_empty() {
            self.outcome.refused += 1;
            return Ok(());
        }
        Err(Broken(format!(
            "{} is neither ready nor refused: {standing:?}",
            seen.name
        )))
    }

    pub(super) fn check_nothing_left(&mut self) -> Result<(), Broken> {
        if let Some(host) = self.hosts.iter().find(|host| !host.parts.is_empty()) {
            let parts: Vec<String> = host.parts.keys().map(ToString::to_string).collect();
            return Err(Broken(format!("host {} still has {parts:?}", host.name)));
        }
        let now = self.now();
        let all = KeyRange {
            from: "!".to_owned(),
            to: "~".to_owned(),
        };
        let stores = [&self.pip_stores, &self.vnp_stores, &self.vno_stores];
        for store in stores.into_iter().flatten() {
            let snapshot = store.borrow_mut().range(now, &all);
            let snapshot = snapshot.map_err(|error| Broken(error.to_string()))?;
            let mut keys = snapshot.entries.iter().map(|entry| &entry.key);
            if let Some(key) = keys.find(|key| !key.ends_with("/promises")) {
                return Err(Broken(format!("a store still has {key}")));
            }
        }
        Ok(())
    }
}
