//! Links of a network that are impaired while it runs.

use carina_vnet::host_part::HostPart;

use super::{Vnet, lock};
use crate::error::{Error, Result};
use crate::impairment::{self, Impairments, LinkImpairment};

impl Vnet {
    /// A link that comes later with the number of one that has gone is another link.
    pub(super) fn forget_impairments(&self, part: &HostPart) -> Result<()> {
        let mut all = lock(&self.impairments);
        let before = all.len();
        all.retain(|number, _| part.links.iter().any(|link| link.number == *number));
        match all.len() == before {
            true => Ok(()),
            false => impairment::write(&self.dir, &all),
        }
    }

    /// The links that are impaired.
    pub fn impairments(&self) -> Impairments {
        lock(&self.impairments).clone()
    }

    /// Impairs a link, or no longer does.
    ///
    /// # Errors
    /// There is no such link, or it cannot be impaired so.
    pub fn impair(&self, number: u32, wanted: LinkImpairment) -> Result<()> {
        // Held until the graph has changed: no other change comes between.
        let part = lock(&self.part);
        if part.links.iter().all(|link| link.number != number) {
            return Err(Error::NoLink {
                vnet: self.dir.name(),
                link: number,
            });
        }
        for side in [wanted.there, wanted.back].iter().flatten() {
            side.check()?;
        }
        {
            let mut all = lock(&self.impairments);
            match wanted.is_none() {
                true => all.remove(&number),
                false => all.insert(number, wanted),
            };
            impairment::write(&self.dir, &all)?;
        }
        self.plane.become_graph(self.graph(&part)?)?;
        let verb = match wanted.is_none() {
            true => "is no longer impaired",
            false => "is impaired",
        };
        self.progress.tell(format!("link {number} {verb}"));
        Ok(())
    }
}
