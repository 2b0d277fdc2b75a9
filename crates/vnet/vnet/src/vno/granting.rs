//! Grants, which the store keeps in the record of their network.

use std::collections::BTreeMap;

use carina_time::Instant;

use super::{Record, Vno, WishError};
use crate::grant::Grant;
use crate::store::Store;

impl<S: Store> Vno<S> {
    /// Gives a person a grant for a network, replacing an earlier one; `None` withdraws the
    /// person's grant. Giving a grant also removes those that have expired.
    ///
    /// # Errors
    /// There is no network of this name, the grant is invalid, there are too many grants, there is
    /// none to withdraw, or the change was not written to the store.
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

    /// The grants for a network, by the names of their holders; `None` if there is no such network.
    #[must_use]
    pub fn grants(&self, name: &str) -> Option<&BTreeMap<String, Grant>> {
        self.find(name).map(|(_, record)| &record.grants)
    }
}

/// Largest number of grants of a network.
const GRANTS_MAX: usize = 256;
