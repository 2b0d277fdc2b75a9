//! What every layer management has in common, whatever its dialect.

use alloc::boxed::Box;
use alloc::string::String;

use carina_wire::FlowSpec;
use carina_wire::dif::{Address, Dialect};

use crate::api::{Command, Event, FlowKey};
use crate::config::Config;
use crate::irati::{self, Irati};
use crate::manage::Management;
use crate::policy::Catalogue;
use crate::rlite::{self, Rlite};
use crate::seal::Toolbox;
use crate::seam::{DataTransfer, TransferEvent};

/// Layer management of one IPC process: enrollment, neighbours, directory, routing, flow
/// allocation, and the RIB that shows all of it.
///
/// After each call drain [`LayerManagement::poll_event`] and read
/// [`LayerManagement::poll_timeout`] again.
pub trait LayerManagement {
    /// Acts on an order.
    fn handle(&mut self, now: u64, command: Command, dt: &mut dyn DataTransfer);

    /// Asks for a flow from application `local` to application `remote`. The result follows as
    /// [`Event::Allocated`].
    ///
    /// # Errors
    /// Why there is not even a request: no member, no cube for the specification, too many flows.
    fn allocate(
        &mut self,
        now: u64,
        local: &str,
        remote: &str,
        spec: FlowSpec,
        dt: &mut dyn DataTransfer,
    ) -> Result<FlowKey, String>;

    /// Acts on what data transfer tells. To be called with everything that
    /// [`DataTransfer::poll`] gives.
    fn on_transfer(&mut self, now: u64, event: TransferEvent, dt: &mut dyn DataTransfer);

    /// To be called at the time that [`LayerManagement::poll_timeout`] gave, or later.
    fn handle_timeout(&mut self, now: u64, dt: &mut dyn DataTransfer);

    /// When [`LayerManagement::handle_timeout`] is due, in nanoseconds; may lie in the past. May
    /// change after every other call.
    #[must_use]
    fn poll_timeout(&self) -> Option<u64>;

    /// What has happened, in order. May change after every other call.
    #[must_use]
    fn poll_event(&mut self) -> Option<Event>;

    /// The address of this member; `None` when it is none.
    #[must_use]
    fn address(&self) -> Option<Address>;
}

/// Adds to a catalogue the policies that layer management of a dialect has besides the native
/// ones.
pub(crate) fn describe(dialect: Dialect, catalogue: &mut Catalogue) {
    match dialect {
        Dialect::Rlite => rlite::describe(catalogue),
        Dialect::Irati => irati::describe(catalogue),
        _ => {}
    }
}

/// The layer management of the configuration's dialect, for an IPCP that is no member yet. The
/// same `seed` and the same calls give the same behaviour.
///
/// # Errors
/// What is wrong with the configuration.
pub(crate) fn management(
    config: Config,
    toolbox: Box<dyn Toolbox>,
    catalogue: Catalogue,
    seed: u64,
) -> Result<Box<dyn LayerManagement>, String> {
    match config.dialect {
        Dialect::Native => Ok(Box::new(Management::new(config, toolbox, catalogue, seed)?)),
        Dialect::Rlite => Ok(Box::new(Rlite::new(config, &catalogue, seed)?)),
        Dialect::Irati => Ok(Box::new(Irati::new(config, toolbox, catalogue, seed)?)),
        dialect => Err(alloc::format!(
            "no layer management for dialect {}",
            dialect.name()
        )),
    }
}
