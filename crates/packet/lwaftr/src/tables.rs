//! Two copies of a binding table: one is used, the other one is changed and takes its place.
//!
//! A change then costs what it changes, however many softwires there are, and who looks softwires
//! up never waits: a whole table is used from one packet to the next.

use std::sync::Arc;

use crate::table::{Change, ChangeError, Table};

/// A table that changes.
#[derive(Debug)]
pub struct Tables {
    used: Arc<Table>,
    /// What was used before, and lacks the last change.
    spare: Option<(Arc<Table>, Option<Change>)>,
    as_snabb: bool,
}

impl Tables {
    /// Begins with a table. `as_snabb`: see
    /// [`PortSets::first_port`](crate::table::PortSets::first_port).
    #[must_use]
    pub fn new(used: Arc<Table>, as_snabb: bool) -> Tables {
        Tables {
            used,
            spare: None,
            as_snabb,
        }
    }

    /// The table to be used.
    #[must_use]
    pub fn used(&self) -> &Arc<Table> {
        &self.used
    }

    /// Makes a change; the table to be used is another one then. Where the one that was used before
    /// the last change is still held elsewhere, all of it is copied.
    ///
    /// # Errors
    /// What hinders it; the table stays.
    pub fn change(&mut self, change: &Change) -> Result<(), ChangeError> {
        let mut next = self.take_spare();
        if let Err(error) = next.change(change, self.as_snabb) {
            self.spare = Some((Arc::new(next), None));
            return Err(error);
        }
        let before = std::mem::replace(&mut self.used, Arc::new(next));
        self.spare = Some((before, Some(*change)));
        Ok(())
    }

    /// A table that is the same as the one that is used.
    fn take_spare(&mut self) -> Table {
        if let Some((spare, missing)) = self.spare.take()
            && let Ok(mut table) = Arc::try_unwrap(spare)
        {
            let changed = missing.map(|change| table.change(&change, self.as_snabb));
            // It was possible with the same table already.
            if changed.is_none_or(|result| result.is_ok()) {
                return table;
            }
        }
        (*self.used).clone()
    }
}
