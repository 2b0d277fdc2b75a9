//! Address assignment by the namespace manager.
//!
//! No policy can know every member while the DIF is partitioned, so uniqueness has two parts: a
//! policy that makes conflicts rare, and a rule that ends them: when two members have one address,
//! the one with the lower name keeps it and the other takes a new one, as soon as either sees both.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;

use carina_ipcp::random::Random;

/// What a policy may look at.
#[derive(Debug)]
pub struct View<'a> {
    /// Highest address that fits the DIF's width.
    pub last: u64,
    /// Address of the member that assigns; 0 at bootstrap.
    pub own: u64,
    /// Tells whether an address is in use or promised, as far as this member knows.
    pub taken: &'a BTreeMap<u64, String>,
}

/// A policy of component `address-assignment`.
pub trait AddressAssignment: Send {
    /// A free address, 1 or more; `None` when all are taken. `random` gives any number.
    fn assign(&self, view: &View<'_>, random: &mut dyn FnMut() -> u64) -> Option<u64>;
}

/// Any free address.
#[derive(Debug)]
pub(crate) struct Draw;

/// The lowest free address. Members that assign at the same time may choose the same.
#[derive(Debug)]
pub(crate) struct Sequential;

/// Every member assigns from a block that belongs to its own address alone: `size` addresses from
/// `size` times its address on. So members that cannot talk to one another do not assign the same
/// one. Members beyond the last block draw.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Addresses in a block.
    pub size: u64,
}

impl AddressAssignment for Draw {
    fn assign(&self, view: &View<'_>, random: &mut dyn FnMut() -> u64) -> Option<u64> {
        for _ in 0..64 {
            let address = random() % view.last + 1;
            if !view.taken.contains_key(&address) {
                return Some(address);
            }
        }
        Sequential.assign(view, random)
    }
}

impl AddressAssignment for Sequential {
    fn assign(&self, view: &View<'_>, _random: &mut dyn FnMut() -> u64) -> Option<u64> {
        let mut address = 1;
        for taken in view.taken.keys() {
            if *taken == address {
                address += 1;
            }
        }
        (address <= view.last).then_some(address)
    }
}

impl AddressAssignment for Blocks {
    fn assign(&self, view: &View<'_>, random: &mut dyn FnMut() -> u64) -> Option<u64> {
        if view.own == 0 {
            return Sequential.assign(view, random);
        }
        let block = view.own.checked_mul(self.size);
        let own = block.and_then(|first| {
            (first..first.saturating_add(self.size))
                .find(|address| *address <= view.last && !view.taken.contains_key(address))
        });
        own.or_else(|| Draw.assign(view, random))
    }
}

/// A policy as the catalogue makes it.
pub(super) type BoxedAssignment = Box<dyn AddressAssignment>;

/// Asks the policy, and takes the lowest free address when it gives one that is taken or too wide.
pub(super) fn assign(
    policy: &dyn AddressAssignment,
    view: &View<'_>,
    random: &mut Random,
) -> Option<u64> {
    let mut draw = || random.next_u64();
    let address = policy.assign(view, &mut draw)?;
    let is_good = address != 0 && address <= view.last && !view.taken.contains_key(&address);
    if is_good {
        Some(address)
    } else {
        Sequential.assign(view, &mut draw)
    }
}

/// Highest address of a width in bytes.
pub(super) fn last_address(width: u8) -> u64 {
    match width {
        1 => 0xff,
        2 => 0xffff,
        4 => 0xffff_ffff,
        _ => u64::MAX - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    fn fill(policy: &dyn AddressAssignment, count: usize, last: u64) -> BTreeSet<u64> {
        let mut taken = BTreeMap::new();
        let mut random = Random::new(7);
        let mut given = BTreeSet::new();
        for _ in 0..count {
            // Every third is assigned by another member than the first.
            let own = if given.len() % 3 == 2 {
                2
            } else {
                u64::from(!given.is_empty())
            };
            let view = View {
                last,
                own,
                taken: &taken,
            };
            let Some(address) = assign(policy, &view, &mut random) else {
                break;
            };
            assert!(address >= 1 && address <= last);
            assert!(given.insert(address), "{address} twice");
            taken.insert(address, String::new());
        }
        given
    }

    #[test]
    fn every_policy_uses_the_whole_space_and_nothing_twice() {
        for policy in [
            &Draw as &dyn AddressAssignment,
            &Sequential,
            &Blocks { size: 16 },
        ] {
            assert_eq!(fill(policy, 300, 255).len(), 255);
        }
    }

    #[test]
    fn blocks_of_two_members_are_disjoint() {
        let taken = BTreeMap::new();
        let mut random = Random::new(1);
        let policy = Blocks { size: 16 };
        let mut one = |own| {
            assign(
                &policy,
                &View {
                    last: 0xffff,
                    own,
                    taken: &taken,
                },
                &mut random,
            )
            .unwrap()
        };
        assert_eq!((one(1), one(2), one(17)), (16, 32, 272));
    }
}
