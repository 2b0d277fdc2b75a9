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

    /// The impairments that operators have set, which override those of the document.
    pub(crate) fn impairments(&self) -> Impairments {
        lock(&self.impairments).clone()
    }

    /// Sets the impairments of a link on top of those of the document: a value that `wanted` does
    /// not set is that of the document.
    ///
    /// # Errors
    /// There is no such link, or an impairment is invalid.
    pub(crate) fn impair(&self, number: u32, wanted: LinkImpairment) -> Result<()> {
        self.impair_as(number, |_| wanted)
    }

    /// Like [`Vnet::impair`], for the frames that one end of a link sends; `None` restores the
    /// document's impairments.
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
        let link = part.link(number);
        let link = link.ok_or_else(|| Error::NoLink {
            vnet: self.dir.name(),
            link: number,
        })?;
        let verb = {
            let mut all = lock(&self.impairments);
            let on_top = change(impairment::of_link(link, &all)).beyond(&link.impairment);
            impairment::check(&on_top.over(&link.impairment))?;
            if on_top.is_none() {
                all.remove(&number)
            } else {
                all.insert(number, on_top)
            };
            impairment::write(&self.dir, &all)?;
            match (on_top.is_none(), link.impairment.is_none()) {
                (false, _) => format!("is impaired: {}", on_top.over(&link.impairment)),
                (true, true) => "is no longer impaired".to_owned(),
                (true, false) => "is impaired as its document says".to_owned(),
            }
        };
        self.run_links(&part)?;
        self.progress.tell(format!("link {number} {verb}"));
        Ok(())
    }
}
