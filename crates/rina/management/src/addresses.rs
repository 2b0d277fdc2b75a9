//! Address assignment by the namespace manager.
//!
//! A partitioned DIF has no member that knows all addresses in use. So uniqueness has two parts. A
//! policy makes conflicts rare. A rule resolves them: of two members with the same address, the one
//! with the lower name keeps it, and the other takes a new one as soon as it sees both.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;

use carina_ipcp::random::Random;

/// What a policy of address assignment may use to choose an address.
#[derive(Debug)]
pub struct View<'a> {
    /// Highest address that fits into the DIF's address width.
    pub last: u64,
    /// Address of the member that assigns the address; 0 at bootstrap.
    pub own: u64,
    /// Addresses in use or reserved, as far as this member knows, with the names of their owners.
    pub taken: &'a BTreeMap<u64, String>,
}

/// A policy of component `address-assignment`: chooses the address of a new member.
pub trait AddressAssignment: Send {
    /// Returns a free address, 1 or more; `None` when all are taken. `random` returns a uniform
    /// random number.
    fn assign(&self, view: &View<'_>, random: &mut dyn FnMut() -> u64) -> Option<u64>;
}

/// Policy that draws a random free address.
#[derive(Debug)]
pub(crate) struct Draw;

/// Policy that takes the lowest free address. Members that assign at the same time may choose the
/// same address.
#[derive(Debug)]
pub(crate) struct Sequential;

/// Policy that gives each assigning member a block of its own: `size` addresses from `size` times
/// its address on. So members that cannot communicate do not assign the same address. A member
/// whose block is beyond the highest address draws at random.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Number of addresses in a block.
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

/// The type that the catalogue makes for component `address-assignment`.
pub(super) type BoxedAssignment = Box<dyn AddressAssignment>;

/// Asks the policy for an address. Takes the lowest free address if the policy returns one that is
/// taken, 0, or too wide.
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

/// Highest address that fits in `width` bytes.
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
            // The first member assigns two of three addresses, member 2 the third.
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
