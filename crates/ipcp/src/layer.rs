//! What every layer management has in common, whatever its dialect.

use alloc::boxed::Box;
use alloc::string::String;

use carina_wire::FlowSpec;
use carina_wire::dif::{Address, Dialect};

use crate::api::{Command, Event, FlowKey};
use crate::config::Config;
use crate::data_transfer::api::{DataTransfer, TransferEvent};
use crate::irati::{self, Irati};
use crate::layer_management::{self, Management};
use crate::policy::{Catalogue, component};
use crate::rlite::{self, Rlite};
use crate::security::Toolbox;
use crate::trace::Tracer;

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

    /// Reports control events to `tracer` from here on.
    fn set_tracer(&mut self, _tracer: Tracer) {}
}

/// The policies that a DIF of this dialect can be configured with, by component; the first of a
/// component is its default.
#[must_use]
pub fn policies_of(dialect: Dialect, toolbox: &dyn Toolbox) -> Catalogue {
    policies_with(dialect, toolbox, Catalogue::empty())
}

/// The same, and those of a catalogue.
pub(crate) fn policies_with(dialect: Dialect, toolbox: &dyn Toolbox, more: Catalogue) -> Catalogue {
    let mut all = Catalogue::standard();
    if dialect != Dialect::Rlite {
        layer_management::describe(&mut all);
    }
    match dialect {
        Dialect::Rlite => rlite::describe(&mut all),
        Dialect::Irati => irati::describe(&mut all),
        _ => {}
    }
    all.extend(more);
    all.describe_toolbox(toolbox);
    all.retain(|policy| {
        let name = policy.name;
        // Members of IRATI's dialect are told nothing of a change.
        policy.is_live &= dialect != Dialect::Irati;
        match (dialect, policy.component) {
            (Dialect::Rlite, component::AUTHENTICATION | component::SDU_PROTECTION) => {
                name == "none"
            }
            (Dialect::Rlite, component::DELIMITING) => name != "standard",
            (Dialect::Rlite, _) => true,
            (Dialect::Irati, component::DELIMITING) => name != "standard",
            (Dialect::Irati, component) => {
                if irati::is_fixed(component) {
                    policy.params.clear();
                }
                irati::has_policy(component, name)
            }
            (_, component::AUTHENTICATION) => name != irati::PASSWORD,
            (_, component::PCI_CHECKSUM) => name == "none",
            _ => true,
        }
    });
    all
}

/// The layer management of the configuration's dialect, for an IPCP that is no member yet.
/// `catalogue` has all policies of the dialect, those of the toolbox too. The same `seed` and the
/// same calls give the same behaviour.
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
