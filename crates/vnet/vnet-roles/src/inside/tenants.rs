//! Limits how many things of one kind a host does at the same time for remote callers. A VNP gets
//! at most half of the places, an operator a quarter, a delegate an eighth.

use std::sync::Arc;

use crate::shares::{Share, Shares};

/// A party already has as many of something as it may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{whose} {} {has} {what} at the node's host, and may have {max} at a time (all users \
     together: {all}): end one of them first",
    if *max == *all { "have" } else { "has" }
)]
pub struct Full {
    /// What the party has too many of, in the plural, such as `consoles`.
    what: &'static str,
    /// A phrase for the party, which does not name it.
    whose: &'static str,
    /// Number of things that the party has now.
    has: usize,
    /// Largest number that the party may have.
    max: usize,
    /// Largest number that all parties together may have.
    all: usize,
}

/// Counts how many places for one kind of work on a host are taken, and by whom.
#[derive(Debug)]
pub struct Places {
    /// The kind of work that takes a place, in the plural.
    what: &'static str,
    max: usize,
    taken: Arc<Shares<Vec<String>>>,
}

/// One place that a party occupies. Dropping it frees the place.
#[derive(Debug)]
pub struct Place {
    /// One share of each party in the chain, and one of all parties together.
    _shares: Vec<Share<Vec<String>>>,
}

impl Places {
    /// Creates `max` free places; `what` names the kind of work in refusals.
    #[must_use]
    pub fn new(what: &'static str, max: usize) -> Places {
        Places {
            what,
            max,
            taken: Arc::default(),
        }
    }

    /// Takes a place for a chain of parties: the operator or delegate, its VNO, the VNP. The last
    /// one is the party that has called this provider, and each party vouches for the one before
    /// it.
    ///
    /// # Errors
    /// A party of the chain has as many places as it may have, or all places are taken. The text
    /// names the limit but no party, because it is shown to the first party of the chain.
    pub fn take(&self, who: &[String]) -> Result<Place, Full> {
        let mut shares = Vec::new();
        // The limit of the first party is checked first, because its text helps most.
        for from in 0..=who.len() {
            let party = &who[from..];
            let (whose, max) = self.limit(party);
            match self.taken.take(&party.to_vec(), max) {
                Ok(share) => shares.push(share),
                Err(has) => {
                    return Err(Full {
                        what: self.what,
                        whose,
                        has,
                        max,
                        all: self.max,
                    });
                }
            }
        }
        Ok(Place { _shares: shares })
    }

    /// A phrase for the party at the start of the chain, and the party's limit.
    fn limit(&self, party: &[String]) -> (&'static str, usize) {
        let part = |of: usize| (self.max / of).max(1);
        match party {
            [] => ("all together", self.max),
            [_] => ("the provider's customer that asks", part(2)),
            [_, _] => ("the VNO that asks", part(4)),
            [first, ..] if first.starts_with("delegate ") => ("the delegate who asks", part(8)),
            _ => ("the operator who asks", part(4)),
        }
    }

    #[cfg(test)]
    pub(crate) fn are_free(&self) -> bool {
        self.taken.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn refusal(places: &Places, names: &[&str]) -> String {
        places.take(&who(names)).unwrap_err().to_string()
    }

    #[test]
    fn one_who_takes_all_it_may_leaves_room_for_the_others() {
        let places = Places::new("consoles", 64);
        let take = |names: &[&str], count: usize| -> Vec<Place> {
            let places = (0..count).map(|_| places.take(&who(names)).unwrap());
            places.collect()
        };
        let eve = ["delegate eve", "vno acme", "vnp net"];
        let acme = ["operator acme", "vno acme", "vnp net"];
        let best = ["operator best", "vno best", "vnp net"];
        let mut taken = take(&eve, 8);
        assert_eq!(
            refusal(&places, &eve),
            "the delegate who asks has 8 consoles at the node's host, and may have 8 at a time \
             (all users together: 64): end one of them first"
        );
        // The VNO's operator may use the rest of the VNO's places.
        taken.extend(take(&acme, 8));
        assert!(refusal(&places, &acme).contains("the VNO that asks has 16 consoles"));
        taken.extend(take(&best, 16));
        let third = ["operator c", "vno c", "vnp net"];
        let words = refusal(&places, &third);
        assert!(words.contains("customer that asks has 32"), "{words}");
        // A VNP gets no more places by inventing names of parties.
        let other = ["operator best", "vno best", "vnp other"];
        taken.extend(take(&other, 16));
        // A place that was given back can be taken again.
        taken.remove(0);
        taken.extend(take(&eve, 1));
        let words = refusal(&places, &eve);
        assert!(!words.contains("eve") && !words.contains("net"), "{words}");
        taken.clear();
        assert!(places.are_free());
    }

    #[test]
    fn a_refusal_takes_nothing() {
        let places = Places::new("traces", 2);
        let net = ["operator acme", "vno acme", "vnp net"];
        let one = places.take(&who(&net)).unwrap();
        refusal(&places, &net);
        drop(one);
        assert!(places.are_free());
        let all = [["vnp a"], ["vnp b"]].map(|vnp| places.take(&who(&vnp)).unwrap());
        assert!(refusal(&places, &["vnp c"]).starts_with("all together have 2 traces"));
        drop(all);
    }
}
