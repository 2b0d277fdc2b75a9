//! Claims the frames of an AFTR's interfaces, as far as other processes can open them as well.

use std::path::Path;

use carina_lwaftr::claim::{Claim, ClaimError, Place};
use carina_lwaftr::config::Config;

use super::RunArgs;
use crate::failure::{Failure, usage};
use crate::report::progress;

impl RunArgs {
    /// The places that an AFTR with this configuration must claim.
    ///
    /// # Errors
    /// Both sides use the same interface and VLAN.
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
                "--v4 and --v6 are both {place}; use --on-a-stick {interface} for both sides on \
                 one interface"
            )));
        }
        Ok(places.into_iter().map(|(_, place)| place).collect())
    }
}

/// Claims a place. If a process that cannot be an AFTR holds the claim's name, reports this and
/// returns `None`.
///
/// # Errors
/// Another AFTR has claimed the place.
pub(super) fn claim(place: &Place) -> Result<Option<Claim>, ClaimError> {
    match Claim::take(place) {
        Err(error @ ClaimError::Squatted { .. }) => {
            progress(format!(
                "{error}; the AFTR runs, but other AFTRs cannot see that it uses \
                its interfaces"
            ));
            Ok(None)
        }
        taken => taken.map(Some),
    }
}
