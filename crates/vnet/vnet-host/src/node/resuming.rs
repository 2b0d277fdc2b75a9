//! Resumes machines: from their saved state, or where they were paused.

use std::path::Path;

use carina_vm::{NicId, Record, Running};
use carina_vnet::host_part::NodePart;

use crate::confinement::Confinement;
use crate::error::{Attempt, Result};
use crate::node::Site;
use crate::node::bare::{BOOT, Cards, bare, nics};
use crate::saved::SavedNode;

/// Starts a machine from its saved state, and resumes it. Returns it with its confinement and its
/// cards.
pub(super) fn restored(
    site: &Site<'_>,
    part: &NodePart,
    saved: &SavedNode,
    file: &Path,
) -> Result<((Running, Confinement), Cards)> {
    let what = || format!("restoring VM {}", part.name);
    let cards = part.interfaces.iter();
    let cards = cards.filter_map(|card| Some((card.mac.0, NicId(*saved.cards.get(&card.name)?))));
    let cards: Cards = cards.collect();
    let (machine, bare) = bare(site, part, &site.dir.machines())?;
    let nics = nics(site, part, &cards);
    let running = machine.await_guest(&bare.cache, &saved.hardware, &nics);
    let (running, confinement) = bare.hold(site, part, running.attempt(what())?);
    running.take_from(file).attempt(what())?;
    running.resume().attempt(what())?;
    // The guest's clock has not advanced since it was saved.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let set = format!("date -s @{}", now.unwrap_or_default().as_secs());
    running.run_within(&set, BOOT).attempt(what())?;
    Ok(((running, confinement), cards))
}

/// Resumes a paused guest; does nothing if the guest runs. Ends a copy of its disk that was not
/// completed.
pub(super) fn go_on(record: &Record) -> Result<()> {
    let what = || format!("resuming VM {}", record.name);
    if record.from_disk {
        carina_vm::end_disk_copy(record).attempt(what())?;
    }
    let state = carina_vm::guest_state(record).attempt(what())?;
    if state.running {
        Ok(())
    } else {
        carina_vm::resume_guest(record).attempt(what())
    }
}
