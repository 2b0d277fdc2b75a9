//! Impairs links of a running network.

use carina_vnet::host_part::HostPart;

use super::{Vnet, lock};
use crate::error::{Error, Result};
use crate::impairment;
use carina_vnet::host_part::LinkEnd;
use carina_vnet::impairment::{Impairment, Impairments, LinkImpairment};

impl Vnet {
    /// Removes the impairments of links that `part` does not have: a later link of the same number
    /// is another link.
    pub(super) fn forget_impairments(&self, part: &HostPart) -> Result<()> {
        let mut all = lock(&self.impairments);
        let before = all.len();
        all.retain(|number, _| part.links.iter().any(|link| link.number == *number));
        if all.len() == before {
            Ok(())
        } else {
            impairment::write(&self.dir, &all)
        }
    }

    /// The impairments of all links.
    pub(crate) fn impairments(&self) -> Impairments {
        lock(&self.impairments).clone()
    }

    /// Sets the impairments of a link, or removes them.
    ///
    /// # Errors
    /// There is no such link, or an impairment is invalid.
    pub(crate) fn impair(&self, number: u32, wanted: LinkImpairment) -> Result<()> {
        self.impair_as(number, |_| wanted)
    }

    /// Sets or removes the impairment of the frames that one end of a link sends.
    ///
    /// # Errors
    /// Those of [`Vnet::impair`].
    pub(crate) fn impair_end(&self, end: LinkEnd, wanted: Option<Impairment>) -> Result<()> {
        self.impair_as(end.0, |mut both| {
            *[&mut both.there, &mut both.back][end.1] = wanted;
            both
        })
    }

    fn impair_as(
        &self,
        number: u32,
        change: impl FnOnce(LinkImpairment) -> LinkImpairment,
    ) -> Result<()> {
        // Locked until the graph has changed, so that no other change interferes.
        let part = lock(&self.part);
        if part.links.iter().all(|link| link.number != number) {
            return Err(Error::NoLink {
                vnet: self.dir.name(),
                link: number,
            });
        }
        let is_none = {
            let mut all = lock(&self.impairments);
            let wanted = change(all.get(&number).copied().unwrap_or_default());
            for side in [wanted.there, wanted.back].iter().flatten() {
                impairment::check(side)?;
            }
            if wanted.is_none() {
                all.remove(&number)
            } else {
                all.insert(number, wanted)
            };
            impairment::write(&self.dir, &all)?;
            wanted.is_none()
        };
        self.plane.become_graph(self.graph(&part)?)?;
        let verb = if is_none {
            "is no longer impaired"
        } else {
            "is impaired"
        };
        self.progress.tell(format!("link {number} {verb}"));
        Ok(())
    }
}
