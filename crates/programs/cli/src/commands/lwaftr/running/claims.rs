//! Which frames an AFTR claims: those of its interfaces that others can open as well.

use std::path::Path;

use carina_lwaftr::claim::{Claim, ClaimError, Place};
use carina_lwaftr::config::Config;

use super::RunArgs;
use crate::failure::{Failure, usage};
use crate::report::progress;

impl RunArgs {
    /// The places of a configuration.
    ///
    /// # Errors
    /// Both sides have the same one.
    pub(super) fn places(&self, config: &Config) -> Result<Vec<Place>, Failure> {
        let mut places: Vec<(&str, Place)> = Vec::new();
        for (side, port) in self.ports()? {
            let Some((interface, netns)) = port.shared_interface() else {
                continue;
            };
            for queue in config.queues() {
                let (external, internal) = (queue.external.vlan, queue.internal.vlan);
                let vlans = match side {
                    "external" => vec![external],
                    "internal" => vec![internal],
                    _ => vec![external, internal],
                };
                let place = |vlan| Place {
                    interface: interface.to_owned(),
                    netns: netns.map(Path::to_owned),
                    vlan,
                };
                places.extend(vlans.into_iter().map(|vlan| (side, place(vlan))));
            }
        }
        let twice = places.iter().find(|(side, place)| {
            let mut others = places.iter();
            others.any(|(other, same)| other != side && same == place)
        });
        if let Some((_, place)) = twice {
            let interface = &place.interface;
            return Err(usage(format!(
                "--v4 and --v6: both are {place}; --on-a-stick {interface} has both sides on one \
                 interface"
            )));
        }
        Ok(places.into_iter().map(|(_, place)| place).collect())
    }
}

/// Claims a place. `None` when a process has its name that cannot be an AFTR; that is reported.
///
/// # Errors
/// Another AFTR has it.
pub(super) fn claim(place: &Place) -> Result<Option<Claim>, ClaimError> {
    match Claim::take(place) {
        Err(error @ ClaimError::Squatted { .. }) => {
            progress(format!("{error}; the AFTR runs without a claim"));
            Ok(None)
        }
        taken => taken.map(Some),
    }
}
