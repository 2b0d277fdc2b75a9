//! What a host does at a time for those who ask from elsewhere, of each kind so much: a VNP leaves
//! half of it to the others, an operator three quarters, a delegate seven eighths.

use std::sync::Arc;

use crate::shares::{Share, Shares};

/// Someone has as much of something at a time as they may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{whose} {} {has} {what} at the node's host, of which it may have {most} at a time ({all} \
     are there for all): end one of them first",
    if *most == *all { "have" } else { "has" }
)]
pub struct Full {
    /// Of what, in the plural.
    what: &'static str,
    /// Who has it, in words that name no one.
    whose: &'static str,
    /// How much that one has.
    has: usize,
    /// How much it may have.
    most: usize,
    /// How much there is for all.
    all: usize,
}

/// The places for one kind of work on a host.
#[derive(Debug)]
pub struct Places {
    /// What takes a place, in the plural.
    what: &'static str,
    most: usize,
    taken: Arc<Shares<Vec<String>>>,
}

/// A place that is taken, until this is dropped.
#[derive(Debug)]
pub struct Place {
    /// One of each party on whose behalf it is taken, and one of all.
    _shares: Vec<Share<Vec<String>>>,
}

impl Places {
    /// So many places in all.
    #[must_use]
    pub fn new(what: &'static str, most: usize) -> Places {
        Places {
            what,
            most,
            taken: Arc::default(),
        }
    }

    /// A place for those on whose behalf something is asked: the operator or the delegate, its VNO,
    /// the VNP. The last of them is who asked this provider, and each vouches for the one before.
    ///
    /// # Errors
    /// One of them has as many as it may have, or all places are taken. The words name the limit,
    /// and no party: they go to the one who asked first.
    pub fn take(&self, who: &[String]) -> Result<Place, Full> {
        let mut shares = Vec::new();
        // The nearest limit first: what it says helps most.
        for from in 0..=who.len() {
            let party = &who[from..];
            let (whose, most) = self.limit(party);
            match self.taken.take(&party.to_vec(), most) {
                Ok(share) => shares.push(share),
                Err(has) => {
                    return Err(Full {
                        what: self.what,
                        whose,
                        has,
                        most,
                        all: self.most,
                    });
                }
            }
        }
        Ok(Place { _shares: shares })
    }

    /// Who shares the limit of a party with those that come after it, and the limit.
    fn limit(&self, party: &[String]) -> (&'static str, usize) {
        let part = |of: usize| (self.most / of).max(1);
        match party {
            [] => ("all together", self.most),
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
            "the delegate who asks has 8 consoles at the node's host, of which it may have 8 at a \
             time (64 are there for all): end one of them first"
        );
        // Its operator has the rest of what the VNO may have.
        taken.extend(take(&acme, 8));
        assert!(refusal(&places, &acme).contains("the VNO that asks has 16 consoles"));
        taken.extend(take(&best, 16));
        let third = ["operator c", "vno c", "vnp net"];
        let words = refusal(&places, &third);
        assert!(words.contains("customer that asks has 32"), "{words}");
        // Names that a VNP has made up give it no more.
        let other = ["operator best", "vno best", "vnp other"];
        taken.extend(take(&other, 16));
        // What was given back is there again.
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
