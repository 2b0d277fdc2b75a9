//! Two copies of a binding table. One is in use; a change is made to the other, which then takes
//! its place.
//!
//! The cost of a change therefore does not depend on the number of softwires, and no reader of the
//! table ever waits: each packet uses one whole table.

use std::sync::Arc;

use crate::table::{Change, ChangeError, Table};

/// A binding table that can be changed while workers use it.
#[derive(Debug)]
pub struct Tables {
    used: Arc<Table>,
    /// The table that was in use before, and the last change, which it lacks.
    spare: Option<(Arc<Table>, Option<Change>)>,
    as_snabb: bool,
}

impl Tables {
    /// Starts with the table `used`. `as_snabb`: see
    /// [`PortSets::first_port`](crate::table::PortSets::first_port).
    #[must_use]
    pub fn new(used: Arc<Table>, as_snabb: bool) -> Tables {
        Tables {
            used,
            spare: None,
            as_snabb,
        }
    }

    /// The table that workers should use.
    #[must_use]
    pub fn used(&self) -> &Arc<Table> {
        &self.used
    }

    /// Makes one change, after which [`Tables::used`] returns the new table. If a worker still
    /// holds the table that was in use before the last change, the change copies the whole table.
    ///
    /// # Errors
    /// The change is refused; the table in use stays.
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

    /// Returns a table equal to the one in use.
    fn take_spare(&mut self) -> Table {
        if let Some((spare, missing)) = self.spare.take()
            && let Ok(mut table) = Arc::try_unwrap(spare)
        {
            let changed = missing.map(|change| table.change(&change, self.as_snabb));
            // The change succeeded on an equal table, so it succeeds here too.
            if changed.is_none_or(|result| result.is_ok()) {
                return table;
            }
        }
        (*self.used).clone()
    }
}
