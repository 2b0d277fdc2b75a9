//! Watches this host's ports for a trace over several hosts.

use carina_frame_engine::counter_file::{self, Reading};
use carina_vnet::host_part::{HostPart, LinkEnd};
use carina_vnet::trace::{
    Act, AskedFor, Dropped, EndDropped, EndSighting, PieceSeen, Refusals, Sought, Spot, end_of,
    spot_of,
};

use super::dropped::dropped_between;
use super::watching::Watch;
use crate::directory::VnetDir;
use crate::error::Result;
use crate::vnet::Vnet;

/// A watch over the ports that this host has of a network.
#[derive(Debug)]
pub struct PieceWatch {
    watch: Watch,
    sought: Sought,
    part: HostPart,
    dir: VnetDir,
    before: Vec<Reading>,
}

impl PieceWatch {
    pub(crate) fn begin(
        vnet: &Vnet,
        part: HostPart,
        dir: VnetDir,
        sought: &Sought,
    ) -> Result<PieceWatch> {
        let ends = sought.ends.iter().filter_map(|end| spot_of(&part, end));
        let acts =
            |(link, side): LinkEnd| [Act::Sends, Act::Receives].map(|act| Spot { link, side, act });
        let some: Vec<Spot> = ends.flat_map(acts).collect();
        let watch = Watch::begin((vnet, &part), &dir.counters(), &some)?;
        Ok(PieceWatch {
            watch,
            before: readings(&dir),
            sought: sought.clone(),
            part,
            dir,
        })
    }

    /// Ends the watch and returns the frames that it saw.
    ///
    /// # Errors
    /// The engine has ended meanwhile.
    pub fn end(self) -> Result<PieceSeen> {
        let (part, sought) = (&self.part, &self.sought);
        let sightings = self.watch.end(&sought.own, sought.to)?;
        let counters = (&*self.before, &*readings(&self.dir));
        let has_asking = part.node(&sought.from).is_some();
        let sights = sightings.all().filter_map(|(direction, spot, sighting)| {
            Some(EndSighting {
                direction,
                end: end_of(part, spot)?,
                act: spot.act,
                frames: sighting.frames,
                after_us: sighting.after_us.filter(|_| has_asking),
            })
        });
        let refusals = sightings.errors.iter();
        let asked_for = sightings
            .asked_for
            .iter()
            .filter_map(|((spot, address), count)| {
                Some(AskedFor {
                    end: end_of(part, *spot)?,
                    address: *address,
                    count: *count,
                })
            });
        let mut dropped = Vec::new();
        for link in &part.links {
            for (side, end) in link.ends().enumerate() {
                let (near, far) = ((link.number, side), (link.number, 1 - side));
                let seen = EndDropped {
                    end: end.to_string(),
                    sent: dropped_between(near, far, counters),
                    received: match link.ends().count() {
                        // The drops are already counted at the other end, as those of frames that
                        // it sent.
                        2 => Dropped::default(),
                        _ => dropped_between(far, near, counters),
                    },
                };
                if seen.sent != Dropped::default() || seen.received != Dropped::default() {
                    dropped.push(seen);
                }
            }
        }
        Ok(PieceSeen {
            sights: sights.collect(),
            refusals: refusals
                .map(|((kind, router), count)| Refusals {
                    kind: *kind,
                    router: *router,
                    count: *count,
                })
                .collect(),
            asked_for: asked_for.collect(),
            dropped,
        })
    }
}

fn readings(dir: &VnetDir) -> Vec<Reading> {
    // Without the counter file, only the reasons of drops are unknown.
    counter_file::read(&dir.counters()).unwrap_or_default()
}
