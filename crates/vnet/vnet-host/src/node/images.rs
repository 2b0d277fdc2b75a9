//! The image that machines boot by default, and the pool of paused machines.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carina_vm::{
    Backend, Boot, Cache, Image, Machine, Model, Nic, Pool, Running, Templates, guest_program,
};
use carina_vnet::host_part::{NodePart, VnetId};
use carina_vnet_images::OWN;

use super::bare::PORTS_FREE;
use crate::confinement::{confined, user_of};
use crate::error::{Attempt, Result};

/// The default images, which are made when the first machine needs one, and the pool of clones, if
/// this agent keeps one.
#[derive(Debug, Default)]
pub(crate) struct Images {
    /// The image without a Carina node in it, and the one with it.
    ready: [Mutex<Option<(Cache, Boot)>>; 2],
    pool: Mutex<Option<Arc<Pool>>>,
}

impl Images {
    /// The kernel and image of `carina`; with the program of a Carina node if `has_node`.
    pub(super) fn obtain(&self, has_node: bool) -> Result<(Cache, Boot)> {
        let mut ready = lock(&self.ready[usize::from(has_node)]);
        if let Some(known) = &*ready {
            return Ok(known.clone());
        }
        let cache = Cache::default_location().attempt("opening the cache")?;
        let mut image = Image::new();
        if has_node {
            let program = std::env::current_exe().attempt("finding this program")?;
            let packed = image.node(&program);
            image = packed.attempt("packing carina")?;
        }
        let boot = Boot::prepare(&cache, &image).attempt("preparing the guest")?;
        *ready = Some((cache.clone(), boot.clone()));
        Ok((cache, boot))
    }

    /// Begins to keep a pool of `size` paused machines, with their files in `directory`. Returns
    /// once the pool's template exists. First ends the pool of an agent that was killed.
    ///
    /// # Errors
    /// There is no guest to boot, or its template cannot be made.
    pub(crate) fn keep_ready(&self, directory: &Path, size: usize) -> Result<()> {
        end_pool(directory)?;
        if size == 0 {
            return Ok(());
        }
        let (cache, boot) = self.obtain(false)?;
        let mut kind = Machine::new("ready", directory)
            .attempt("describing the machines of the pool")?
            .boot(boot)
            .memory_mib(MEMORY_MIB)
            .cpus(CPUS);
        // Each machine has a user ID of its own, whichever node it becomes.
        kind = confined(kind, user_of(VnetId::new(0), &directory.to_string_lossy())).0;
        for _ in 0..CARDS {
            kind = kind.nic(unplugged());
        }
        let kind = kind.ports(PORTS_FREE as u8);
        let templates = Templates::default_location().attempt("opening the templates")?;
        let pool = Pool::new(kind, size, cache, templates).attempt("making a pool of machines")?;
        *lock(&self.pool) = Some(Arc::new(pool));
        Ok(())
    }

    /// Number of machines in the pool.
    pub(crate) fn count_ready(&self) -> usize {
        lock(&self.pool).as_ref().map_or(0, |pool| pool.ready())
    }

    /// How many more cards a machine of the pool has than the node needs; `None` if the pool's
    /// machines do not match the node, or there is no pool.
    pub(super) fn spare_cards(&self, part: &NodePart) -> Option<usize> {
        let is_alike = part.cpus == CPUS
            && part.memory_mib == u64::from(MEMORY_MIB)
            && part.founder.is_none()
            && part.image == OWN;
        let spare = CARDS.checked_sub(part.interfaces.len());
        spare.filter(|_| is_alike && lock(&self.pool).is_some())
    }

    /// Takes a machine from the pool and makes it the described one.
    pub(super) fn take(&self, machine: Machine) -> std::result::Result<Running, carina_vm::Error> {
        let pool = lock(&self.pool).as_ref().map(Arc::clone);
        let pool = pool.expect("whoever takes a machine has seen the pool, and it stays");
        pool.take(machine)
    }
}

/// The least memory of a machine with a Carina node, MiB. The guest holds its program twice, in the
/// initramfs and unpacked.
pub(crate) fn member_mib() -> u64 {
    let program = std::env::current_exe();
    let program = program.and_then(|own| std::fs::metadata(guest_program(&own)));
    let bytes = program.map_or(0, |program| program.len());
    GUEST_MIB + (bytes >> 20) * 5 / 2
}

/// Ends the machines of a pool whose agent was killed.
///
/// # Errors
/// A machine cannot be ended.
pub(crate) fn end_pool(directory: &Path) -> Result<()> {
    for machine in carina_vm::list(directory).attempt("listing machines")? {
        carina_vm::stop(directory, &machine.name, Duration::ZERO)
            .attempt(format!("stopping VM {}", machine.name))?;
    }
    Ok(())
}

/// A card without a link.
pub(super) fn unplugged() -> Nic {
    Nic {
        model: Model::VirtioNet,
        backend: Backend::Unplugged,
        mac: None,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves the value consistent, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory (MiB) and processors of a machine in the pool, as a node has them by default, and the
/// number of its cards.
const MEMORY_MIB: u32 = 128;
const CPUS: u32 = 1;
const CARDS: usize = 4;
/// Memory that a guest without a Carina node needs, MiB.
const GUEST_MIB: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn without_a_pool_no_node_comes_of_it() {
        let (images, part) = (Images::default(), part(&["a b"]));
        assert_eq!(images.spare_cards(part.node("a").unwrap()), None);
        assert_eq!(images.count_ready(), 0);
    }
}
