//! Grants, which are kept with the network that they are for.

use std::collections::BTreeMap;

use carina_time::Instant;

use super::{Record, Vno, WishError};
use crate::grant::Grant;
use crate::store::Store;

impl<S: Store> Vno<S> {
    /// Lets someone do what a grant says with a network, in place of an earlier grant; without a
    /// grant, nothing any more. Grants that have ended go when another one is made.
    ///
    /// # Errors
    /// No network has this name, the grant cannot be, there are too many, or it was not written
    /// down.
    pub fn grant(
        &mut self,
        now: Instant,
        name: &str,
        to: &str,
        grant: Option<Grant>,
    ) -> Result<(), WishError> {
        self.refresh(now)?;
        let Some((vnet, record)) = self.find(name) else {
            return Err(WishError::Unknown(name.to_owned()));
        };
        let mut record: Record = record.clone();
        match grant {
            Some(grant) => {
                let whole = record.document.extended();
                grant.check(now, whole.node.keys().map(String::as_str))?;
                record.grants.retain(|_, known| !known.has_ended(now));
                record.grants.insert(to.to_owned(), grant);
            }
            None if record.grants.remove(to).is_none() => {
                return Err(WishError::NotGranted(to.to_owned()));
            }
            None => {}
        }
        if record.grants.len() > GRANTS_MAX {
            return Err(WishError::Grants(GRANTS_MAX));
        }
        self.write(now, vnet, &record)
    }

    /// The grants for a network, by the names of those who have them; none if there is no such
    /// network.
    #[must_use]
    pub fn grants(&self, name: &str) -> Option<&BTreeMap<String, Grant>> {
        self.find(name).map(|(_, record)| &record.grants)
    }
}

/// Grants of a network.
const GRANTS_MAX: usize = 256;
