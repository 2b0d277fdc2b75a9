//! Cases of a peer that ends, is killed, returns, or is given up.

use super::{Deadline, Fixture, Sides, receive, send};
use crate::hl::Side;
use crate::ll::{DownReason, LinkState};

/// A node that ends or is killed and starts again gets a new link. Records of the old link do not
/// appear on it, and a lease of the old link cannot be released into it.
pub fn peer_that_ends_or_is_killed_comes_back_without_old_records<F: Fixture>(
    make: impl Fn() -> F,
) {
    for (side, is_killed) in [
        (Side::Host, false),
        (Side::Guest, false),
        (Side::Host, true),
        (Side::Guest, true),
    ] {
        let mut sides = Sides::up(make());
        let peer = side.peer();
        for round in 0..3 {
            assert!(send(sides.device(side), b"lost"));
            assert!(send(sides.device(peer), b"lost"));
            for _ in 0..20 {
                let _ = sides.look();
            }
            let old = sides.device(peer).next().expect("the peer is correct");
            let ups = sides.device(peer).stats().ups;
            sides.end(side, is_killed);
            sides.reopen(side);
            let _ = sides.wait_down(peer);
            sides.wait_up();
            assert!(sides.device(peer).stats().ups > ups, "{side:?} {round}");
            if let Some(old) = old {
                sides.device(peer).release_to(old.end());
            }
            sides.exchange(b"new");
            for end in [side, peer] {
                assert_eq!(receive(sides.device(end)), None, "{side:?} {round}");
            }
        }
    }
}

/// The death of a node is noticed by the other side, which then accepts no record.
pub fn killed_peer_is_noticed<F: Fixture>(make: impl Fn() -> F) {
    for side in [Side::Host, Side::Guest] {
        let mut sides = Sides::up(make());
        sides.exchange(b"alive");
        sides.end(side, true);
        let reason = sides.wait_down(side.peer());
        let is_told = matches!(
            reason,
            DownReason::PeerSilent { .. } | DownReason::PeerLeft | DownReason::Detached
        );
        assert!(is_told, "{reason:?}");
        let device = sides.device(side.peer());
        assert!(!send(device, b"refused"), "a link that is down is full");
        assert_eq!(device.free_bytes(), Ok(0));
        assert_eq!(receive(device), None);
    }
}

/// A link that one side gives up goes down on both sides, with the reason at the side that gave it
/// up, and comes up again after the hold-off.
pub fn failed_link_is_held_off_and_comes_back<F: Fixture>(make: impl Fn() -> F) {
    for side in [Side::Host, Side::Guest] {
        let mut sides = Sides::up(make());
        let violation = DownReason::Violation {
            code: "conformance",
            reason: "the suite gives the link up".into(),
        };
        let now_ns = sides.now_ns();
        let reason = sides.device(side).fail(now_ns, violation.clone());
        assert_eq!(reason, violation);
        let state = sides.device(side).link(now_ns);
        assert_eq!(state, LinkState::Down(violation));
        let _ = sides.wait_down(side.peer());
        let deadline = Deadline::new();
        let held_ns = loop {
            if sides.look() == [Some(LinkState::Up), Some(LinkState::Up)] {
                break sides.now_ns() - now_ns;
            }
            deadline.check("the link does not come back");
        };
        assert!(held_ns >= 500_000_000, "held off for {held_ns} ns only");
        assert_eq!(sides.device(side).stats().violations, 1);
        sides.exchange(b"well");
    }
}
