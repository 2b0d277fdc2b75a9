//! CEP-ids: allocation, quarantine after use, and lookup of the connection.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use carina_time::Instant;
use carina_wire::dif::CepId;

/// A table of connections by CEP-id. The low bits (`P`) of a CEP-id are an index into the table,
/// the next bits (`G`) a generation that distinguishes successive users of the index, and a fixed
/// bit distinguishes the two tables of an IPCP:
///
/// ```text
/// management channels      1GGGPPPP PPPPPPPP            8 generations,       4,095 indices
/// flows, width 1           GPPPPPPP                      2 generations,         127 indices
/// flows, width 2           0GPPPPPP PPPPPPPP             2 generations,      16,383 indices
/// flows, width 4           1GGGGGGG GGGGPPPP PPPPPPPP PPPPPPPP    2,048,  1,048,575 indices
/// ```
///
/// Index 0 is not used, since CEP-id 0 is invalid. A CEP-id that was freed is quarantined for the
/// time that delta-t requires, unless the width leaves no other CEP-id.
#[derive(Debug)]
pub(super) struct CepIdTable<T> {
    place_bits: u32,
    generations: u32,
    fixed: u32,
    places: Vec<Place<T>>,
    free: VecDeque<u32>,
    /// CEP-ids in quarantine, each with its end; at most [`QUARANTINED_MAX`].
    quarantined: BTreeMap<u32, Instant>,
    /// The quarantined CEP-ids in the order in which they were freed.
    order: VecDeque<(Instant, u32)>,
    in_use: usize,
}

#[derive(Debug)]
struct Place<T> {
    /// CEP-id of the present user, or of the last one.
    cep: u32,
    user: Option<T>,
}

/// Largest number of CEP-ids that are kept in quarantine.
const QUARANTINED_MAX: usize = 65_536;
/// Free indices that are tried before the table grows.
const TRIES: usize = 8;
/// The bit that is set in CEP-ids of management channels and clear in CEP-ids of flows.
const CHANNEL: u32 = 1 << 15;

/// True for the CEP-id of a management channel.
#[inline]
pub(super) fn is_channel(cep: CepId) -> bool {
    cep.0 >> 15 == 1
}

impl<T> CepIdTable<T> {
    /// A table for the flows of a DIF with CEP-ids of `width` bytes: 1, 2 or 4.
    pub(super) fn of_flows(width: u8) -> CepIdTable<T> {
        match width {
            1 => CepIdTable::new(7, 1, 0),
            2 => CepIdTable::new(14, 1, 0),
            _ => CepIdTable::new(20, 11, 1 << 31),
        }
    }

    /// A table for management channels. Their CEP-ids have two bytes in every DIF.
    pub(super) fn of_channels() -> CepIdTable<T> {
        CepIdTable::new(12, 3, CHANNEL)
    }

    fn new(place_bits: u32, generation_bits: u32, fixed: u32) -> CepIdTable<T> {
        CepIdTable {
            place_bits,
            generations: 1 << generation_bits,
            fixed,
            places: alloc::vec![Place { cep: 0, user: None }],
            free: VecDeque::new(),
            quarantined: BTreeMap::new(),
            order: VecDeque::new(),
            in_use: 0,
        }
    }

    /// Number of CEP-ids in use.
    pub(super) fn len(&self) -> usize {
        self.in_use
    }

    /// The user of a CEP-id.
    #[inline]
    pub(super) fn get(&self, cep: CepId) -> Option<&T> {
        let place = self.places.get(self.place_of(cep))?;
        place.user.as_ref().filter(|_| place.cep == cep.0)
    }

    /// The user of a CEP-id.
    #[inline]
    pub(super) fn get_mut(&mut self, cep: CepId) -> Option<&mut T> {
        let at = self.place_of(cep);
        let place = self.places.get_mut(at)?;
        place.user.as_mut().filter(|_| place.cep == cep.0)
    }

    /// All users.
    pub(super) fn iter(&self) -> impl Iterator<Item = (CepId, &T)> {
        self.places
            .iter()
            .filter_map(|place| Some((CepId(place.cep), place.user.as_ref()?)))
    }

    /// All users.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places
            .iter_mut()
            .filter_map(|place| place.user.as_mut())
    }

    /// Allocates a CEP-id and stores what `make` returns for it. `None` when all CEP-ids are in
    /// use.
    pub(super) fn insert(&mut self, now: Instant, make: impl FnOnce(CepId) -> T) -> Option<CepId> {
        self.end_quarantines(now);
        let cep = self
            .reuse(TRIES)
            .or_else(|| self.new_place())
            .or_else(|| self.reuse(usize::MAX))
            .or_else(|| self.reuse_oldest())?;
        let at = self.place_of(CepId(cep));
        let place = &mut self.places[at];
        place.cep = cep;
        place.user = Some(make(CepId(cep)));
        self.in_use += 1;
        Some(CepId(cep))
    }

    /// Frees a CEP-id, quarantined until `until`. Returns its user; `None` when the CEP-id is not
    /// in use.
    pub(super) fn remove(&mut self, cep: CepId, until: Instant) -> Option<T> {
        let at = self.place_of(cep);
        let place = self.places.get_mut(at).filter(|place| place.cep == cep.0)?;
        let user = place.user.take()?;
        self.free.push_back(at as u32);
        if self.quarantined.len() < QUARANTINED_MAX {
            self.quarantined.insert(cep.0, until);
            self.order.push_back((until, cep.0));
        }
        self.in_use -= 1;
        Some(user)
    }

    /// Ends the quarantines that are over.
    fn end_quarantines(&mut self, now: Instant) {
        while let Some(&(until, cep)) = self.order.front()
            && (until <= now || self.order.len() > QUARANTINED_MAX)
        {
            self.order.pop_front();
            if self.quarantined.get(&cep) == Some(&until) {
                self.quarantined.remove(&cep);
            }
        }
    }

    #[inline]
    fn place_of(&self, cep: CepId) -> usize {
        (cep.0 & ((1 << self.place_bits) - 1)) as usize
    }

    /// A CEP-id of a free index that is not in quarantine; tries at most `tries` indices.
    fn reuse(&mut self, tries: usize) -> Option<u32> {
        for _ in 0..self.free.len().min(tries) {
            let at = self.free.pop_front()?;
            if let Some(cep) = self
                .candidates(at)
                .find(|cep| !self.quarantined.contains_key(cep))
            {
                return Some(cep);
            }
            self.free.push_back(at);
        }
        None
    }

    /// A CEP-id of an index that was never used; `None` when the table is full.
    fn new_place(&mut self) -> Option<u32> {
        let at = self.places.len();
        if at >> self.place_bits != 0 {
            return None;
        }
        self.places.push(Place { cep: 0, user: None });
        Some(at as u32 | self.fixed)
    }

    /// The CEP-id longest in quarantine among those of the index that was freed first.
    fn reuse_oldest(&mut self) -> Option<u32> {
        let at = self.free.pop_front()?;
        let cep = self
            .candidates(at)
            .min_by_key(|cep| self.quarantined.get(cep).copied().unwrap_or_default())?;
        self.quarantined.remove(&cep);
        Some(cep)
    }

    /// The CEP-ids of an index, beginning with the generation after the last one used.
    fn candidates(&self, at: u32) -> impl Iterator<Item = u32> + use<T> {
        let (bits, generations, fixed) = (self.place_bits, self.generations, self.fixed);
        let last = (self.places[at as usize].cep & !fixed) >> bits;
        (1..=generations).map(move |step| ((last + step) % generations) << bits | at | fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn a_resting_cep_id_is_not_reused_while_others_are_free() {
        let mut ceps = CepIdTable::of_flows(1);
        let mut given = BTreeSet::new();
        for _ in 0..254 {
            let cep = ceps.insert(Instant::ZERO, |cep| cep).unwrap();
            assert!(cep.0 != 0 && cep.0 < 256);
            assert!(given.insert(cep), "{cep} twice");
            assert_eq!(ceps.remove(cep, Instant::from_nanos(1000)), Some(cep));
        }
        // All 254 are in quarantine now; the one that was freed first is reused.
        assert!(given.contains(&ceps.insert(Instant::ZERO, |cep| cep).unwrap()));
        assert!(ceps.insert(Instant::from_nanos(1001), |cep| cep).is_some());
    }

    #[test]
    fn all_places_can_be_in_use_and_old_ids_find_nothing() {
        let mut ceps = CepIdTable::of_flows(1);
        let all: BTreeSet<_> = (0..127)
            .map(|_| ceps.insert(Instant::ZERO, |cep| cep).unwrap())
            .collect();
        assert_eq!((all.len(), ceps.len()), (127, 127));
        assert_eq!(ceps.insert(Instant::ZERO, |cep| cep), None);
        let old = *all.first().unwrap();
        ceps.remove(old, Instant::from_nanos(10));
        let new = ceps.insert(Instant::ZERO, |cep| cep).unwrap();
        assert_ne!(new, old);
        assert_eq!(ceps.get(old), None);
        assert_eq!(ceps.get(new), Some(&new));
        assert_eq!(ceps.remove(old, Instant::from_nanos(10)), None);
        assert_eq!(ceps.get(CepId(0)), None);
    }

    #[test]
    fn ten_thousand_fit_in_two_bytes() {
        let mut ceps = CepIdTable::of_flows(2);
        for _ in 0..16_383 {
            let cep = ceps.insert(Instant::ZERO, |cep| cep).unwrap();
            assert!(cep.0 < 65_536 && !is_channel(cep));
        }
        assert_eq!(ceps.insert(Instant::ZERO, |cep| cep), None);
    }

    #[test]
    fn channels_and_flows_have_different_ids() {
        let mut channels = CepIdTable::of_channels();
        let mut wide = CepIdTable::of_flows(4);
        for round in 0..20_000 {
            let cep = channels
                .insert(Instant::from_nanos(round), |cep| cep)
                .unwrap();
            assert!(is_channel(cep) && cep.0 < 65_536);
            assert_eq!(
                channels.remove(cep, Instant::from_nanos(round + 100)),
                Some(cep)
            );
            let cep = wide.insert(Instant::from_nanos(round), |cep| cep).unwrap();
            assert!(!is_channel(cep) && cep.0 >= 65_536);
            assert_eq!(
                wide.remove(cep, Instant::from_nanos(round + 100)),
                Some(cep)
            );
        }
        assert!(channels.places.len() < 200);
    }
}
