//! The attach handshake and the heartbeat, which decide when both nodes may use the rings.
//!
//! ```text
//!            +------------------------- hold-off over --------------------------+
//!            v                                                                  |
//!  Apart: epoch shown, waits ------------ peer.seen == mine.epoch ----> Up      |
//!    ^       |                            and mine.seen == peer.epoch   |  |    |
//!    |       | a peer epoch not seen before:                            |  |    |
//!    |       | zero own ring fields, show seen = peer epoch             |  |    |
//!    |       +---> (stays Apart)                                        |  |    |
//!    |                                                                  |  |    |
//!    +------ peer epoch changed, peer left, peer silent too long -------+  |    |
//!                                                                          v    |
//!                                              fail(): epoch 0 is shown  Held --+
//! ```
//!
//! The handshake is symmetric and needs no messages; either side may restart at any time. An epoch
//! is a random number other than 0. A node draws a new epoch when it starts and whenever it gives
//! up a link.

use std::sync::atomic::{Ordering, fence};

use super::DownReason;
use super::processor_wait::ProcessorWait;
use super::station::{Board, Half, VERSION};

/// Time between two heartbeats in nanoseconds.
pub const HEARTBEAT_NS: u64 = 50_000_000;

/// Time without a change of the peer's heartbeat after which the peer counts as dead, in
/// nanoseconds. Only time in which this side was looking counts.
pub const SILENCE_NS_MAX: u64 = 600_000_000;

/// Like [`SILENCE_NS_MAX`], where the end of the peer's process is reported at once, and for a VM
/// that waits for a processor of the host, in nanoseconds.
pub(super) const SILENCE_PATIENT_NS_MAX: u64 = 5_000_000_000;

/// A silent node is alive only if its VM has waited for a processor for all but this part of the
/// silence: in so much time a living node shows several heartbeats.
const AWAKE_NS_MIN: u64 = SILENCE_NS_MAX / 2;

/// When the peer's heartbeat has not changed for this long, this side begins to measure how long
/// the peer's VM waits for a processor.
const SUSPECT_NS: u64 = 2 * HEARTBEAT_NS;

/// Largest part of the gap between two looks that counts as silence of the peer. During a longer
/// gap this side did not run, and a peer on the same processors probably did not either.
const LOOK_NS_MAX: u64 = 100_000_000;

/// First hold-off after a failed link. It doubles with each further failure.
const HOLD_NS_MIN: u64 = 500_000_000;
const HOLD_NS_MAX: u64 = 16_000_000_000;
/// A link that was up for this long resets the hold-off to [`HOLD_NS_MIN`].
const GOOD_NS: u64 = 30_000_000_000;

/// The handshake's state on one side.
#[derive(Debug)]
pub(super) struct Attach {
    mine: Half,
    /// The peer's epoch that this side has acknowledged in `seen`; 0 if none.
    peer_epoch: u32,
    peer_heartbeat: u32,
    /// The peer's half of the station, as it was at the last step.
    peer: Half,
    state: State,
    reason: DownReason,
    next_beat_ns: u64,
    looked_ns: u64,
    /// Time at which the peer's heartbeat last changed, in ns.
    heard_ns: u64,
    /// How long the peer's heartbeat has not changed, counting only time in which this side was
    /// looking.
    silent_ns: u64,
    /// How long the peer's heartbeat may stay unchanged before this side ends the link, in
    /// nanoseconds. A peer whose VM waits for a processor has up to [`SILENCE_PATIENT_NS_MAX`].
    silence_ns_max: u64,
    /// How long the peer's VM waits for a processor, since shortly after its heartbeat stopped.
    vm_wait: Option<ProcessorWait>,
    hold_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Apart,
    Up { since_ns: u64 },
    Held { until_ns: u64 },
}

/// The change of the link that [`Attach::step`] reports to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing changed.
    Stay,
    /// The link came up: the rings can be used, from index 0.
    Up,
    /// The link went down: the rings must not be used.
    Down,
}

impl Attach {
    pub(super) fn new() -> Attach {
        Attach {
            mine: Half {
                epoch: random_epoch(),
                ..Half::default()
            },
            peer_epoch: 0,
            peer_heartbeat: 0,
            peer: Half::default(),
            state: State::Apart,
            reason: DownReason::NoPeer,
            next_beat_ns: 0,
            looked_ns: 0,
            heard_ns: 0,
            silent_ns: 0,
            silence_ns_max: SILENCE_NS_MAX,
            vm_wait: None,
            hold_ns: HOLD_NS_MIN,
        }
    }

    /// Sets how long the peer's heartbeat may stay unchanged before this side ends the link, in
    /// nanoseconds (default: [`SILENCE_NS_MAX`]).
    pub(super) fn set_silence_max(&mut self, silence_ns_max: u64) {
        self.silence_ns_max = silence_ns_max;
    }

    /// Whether the peer has just become silent, so that the process of its VM is needed.
    pub(super) fn wants_vm(&self) -> bool {
        self.is_up() && self.silent_ns >= SUSPECT_NS && self.vm_wait.is_none()
    }

    /// Sets the process of the peer's VM. While it waits for a processor nearly all the time, the
    /// peer may be silent for [`SILENCE_PATIENT_NS_MAX`].
    pub(super) fn set_vm(&mut self, pid: i32) {
        self.vm_wait = Some(ProcessorWait::begin(pid, self.looked_ns));
    }

    /// Reads the peer's half of the station and advances the handshake. `zero` zeroes the ring
    /// fields that this side owns.
    pub(super) fn step(&mut self, now_ns: u64, station: &dyn Board, zero: impl FnOnce()) -> Step {
        let gap_ns = now_ns.saturating_sub(self.looked_ns).min(LOOK_NS_MAX);
        self.looked_ns = now_ns;
        if self.reason == DownReason::Detached {
            // The peer's system runs again, but its node has not appeared yet.
            self.reason = DownReason::NoPeer;
        }
        if let State::Held { until_ns } = self.state {
            if now_ns < until_ns {
                self.beat(now_ns, station);
                return Step::Stay;
            }
            self.start_epoch(station);
        }
        self.beat(now_ns, station);
        if !self.is_up() && !self.version_is_right(station) {
            return Step::Stay;
        }
        let peer = station.read_peer();
        self.peer = peer;
        if peer.epoch != self.peer_epoch {
            return self.meet(&peer, station, zero);
        }
        if peer.epoch == 0 {
            return Step::Stay;
        }
        match self.state {
            State::Apart if peer.seen == self.mine.epoch => {
                self.peer_heartbeat = peer.heartbeat;
                self.heard_ns = now_ns;
                self.silent_ns = 0;
                self.state = State::Up { since_ns: now_ns };
                Step::Up
            }
            State::Up { .. } if peer.seen != self.mine.epoch => {
                self.part(DownReason::PeerRestarted, station)
            }
            State::Up { since_ns } => {
                if now_ns - since_ns >= GOOD_NS {
                    self.hold_ns = HOLD_NS_MIN;
                }
                self.listen(now_ns, peer.heartbeat, gap_ns, station)
            }
            State::Apart | State::Held { .. } => Step::Stay,
        }
    }

    /// Gives up the link: shows epoch 0, and takes a new epoch after a hold-off.
    pub(super) fn fail(&mut self, now_ns: u64, reason: DownReason, station: &dyn Board) {
        self.leave(station);
        self.state = State::Held {
            until_ns: now_ns + self.hold_ns,
        };
        self.hold_ns = (self.hold_ns * 2).min(HOLD_NS_MAX);
        self.reason = reason;
    }

    /// Schedules the next look one heartbeat from now, because the peer's system is not running.
    pub(super) fn rest(&mut self, now_ns: u64) {
        self.looked_ns = now_ns;
        self.next_beat_ns = now_ns + HEARTBEAT_NS;
    }

    /// Ends the link. This side takes a new epoch immediately, without the usual hold-off time.
    pub(super) fn part(&mut self, reason: DownReason, station: &dyn Board) -> Step {
        self.reason = reason;
        self.start_epoch(station);
        Step::Down
    }

    /// Shows epoch 0, by which the peer sees that this side has left.
    pub(super) fn leave(&mut self, station: &dyn Board) {
        self.mine.epoch = 0;
        self.mine.seen = 0;
        self.peer_epoch = 0;
        station.show(&self.mine);
    }

    /// Sets what the peer needs to wake this side, and shows it if it has changed.
    pub(super) fn set_doorbells(
        &mut self,
        doorbell: u32,
        flags: u32,
        vector: u32,
        station: &dyn Board,
    ) {
        let mine = Half {
            doorbell,
            flags,
            vector,
            ..self.mine
        };
        if self.mine != mine {
            self.mine = mine;
            station.show(&self.mine);
        }
    }

    /// The peer's half of the station, as it was at the last step.
    pub(super) fn peer(&self) -> Half {
        self.peer
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Whether a message from the peer of `epoch` to this side's epoch `seen` belongs to the link
    /// that is up, or that comes up at the next step.
    pub(super) fn takes(&self, epoch: u32, seen: u32) -> bool {
        epoch != 0 && epoch == self.peer_epoch && seen == self.mine.epoch
    }

    /// Whether the peer now shows another epoch than the one of this link, or no longer
    /// acknowledges this side's epoch.
    pub(super) fn has_peer_changed(&self, station: &dyn Board) -> bool {
        let peer = station.read_peer();
        peer.epoch != self.peer_epoch || peer.seen != self.mine.epoch
    }

    /// Why the link is down.
    pub(super) fn reason(&self) -> &DownReason {
        &self.reason
    }

    pub(super) fn next_deadline_ns(&self) -> u64 {
        match self.state {
            State::Held { until_ns } => self.next_beat_ns.min(until_ns),
            _ => self.next_beat_ns,
        }
    }

    fn meet(&mut self, peer: &Half, station: &dyn Board, zero: impl FnOnce()) -> Step {
        let was_up = self.is_up();
        self.peer_epoch = peer.epoch;
        self.state = State::Apart;
        if peer.epoch != 0 {
            // The peer also starts from index 0, and does not touch the rings before it has read
            // `seen`. The fence makes this side's new epoch visible before the zeroes; a peer that
            // still reads the ring would otherwise take the zeroes for corruption.
            fence(Ordering::SeqCst);
            zero();
        }
        self.mine.seen = peer.epoch;
        station.show(&self.mine);
        if was_up {
            self.reason = if peer.epoch == 0 {
                DownReason::PeerLeft
            } else {
                DownReason::PeerRestarted
            };
            return Step::Down;
        }
        Step::Stay
    }

    fn listen(&mut self, now_ns: u64, heartbeat: u32, gap_ns: u64, station: &dyn Board) -> Step {
        if heartbeat != self.peer_heartbeat {
            self.peer_heartbeat = heartbeat;
            self.heard_ns = now_ns;
            self.silent_ns = 0;
            self.vm_wait = None;
            return Step::Stay;
        }
        self.silent_ns += gap_ns;
        if let Some(wait) = &mut self.vm_wait {
            wait.look(now_ns);
        }
        if self.silent_ns < self.silence_ns_max || self.is_vm_waiting(now_ns) {
            return Step::Stay;
        }
        let silent_ms = now_ns.saturating_sub(self.heard_ns) / 1_000_000;
        self.part(DownReason::PeerSilent { silent_ms }, station)
    }

    /// Whether the peer's VM has waited for a processor for so much of the silence that its node
    /// may be alive.
    fn is_vm_waiting(&self, now_ns: u64) -> bool {
        let Some(wait) = &self.vm_wait else {
            return false;
        };
        self.silent_ns < SILENCE_PATIENT_NS_MAX
            && self.silent_ns.saturating_sub(wait.longest_ns(now_ns)) < AWAKE_NS_MIN
    }

    fn start_epoch(&mut self, station: &dyn Board) {
        self.state = State::Apart;
        self.mine.seen = 0;
        self.mine.epoch = random_epoch();
        // With a new epoch, this side must acknowledge the peer's epoch again.
        self.peer_epoch = 0;
        self.silent_ns = 0;
        self.vm_wait = None;
        station.show(&self.mine);
    }

    /// Increments the heartbeat and shows all fields again. If the peer has overwritten this half,
    /// it thus gets the right values.
    fn beat(&mut self, now_ns: u64, station: &dyn Board) {
        if now_ns >= self.next_beat_ns {
            self.next_beat_ns = now_ns + HEARTBEAT_NS;
            self.mine.heartbeat = self.mine.heartbeat.wrapping_add(1);
            station.show(&self.mine);
        }
    }

    fn version_is_right(&mut self, station: &dyn Board) -> bool {
        self.reason = match station.version() {
            Some(VERSION) => return true,
            Some(peer) => DownReason::WrongVersion { peer },
            None => DownReason::NoPeer,
        };
        false
    }
}

fn random_epoch() -> u32 {
    loop {
        let mut bytes = [0; 4];
        // If there is no random source, the clock still gives another number after each restart.
        let read = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::NONBLOCK);
        let epoch = match read {
            Ok(4) => u32::from_ne_bytes(bytes),
            _ => carina_sys::monotonic_ns() as u32 ^ std::process::id().rotate_left(16),
        };
        if epoch != 0 {
            return epoch;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that has shown its half once, and never again.
    struct Stopped(Half);

    impl Board for Stopped {
        fn show(&self, _half: &Half) {}

        fn read_peer(&self) -> Half {
            self.0
        }

        fn version(&self) -> Option<u32> {
            Some(VERSION)
        }
    }

    /// Looks every 50 ms until the link is down. The VM waits for a processor for `waits_percent`
    /// of the time. Returns the milliseconds after which the link was down.
    fn silence_ms(name: &str, waits_percent: u64) -> u64 {
        let own = std::process::id();
        let thread = std::env::temp_dir().join(format!("carina-wait-{own}-{name}"));
        std::fs::create_dir(&thread).unwrap();
        let wait = |ns: u64| {
            std::fs::write(thread.join("schedstat"), format!("5 {ns} 1\n")).unwrap();
        };
        let mut attach = Attach::new();
        let peer = Stopped(Half {
            epoch: 7,
            seen: attach.mine.epoch,
            ..Half::default()
        });
        let mut now_ns = 1_000_000_000;
        while attach.step(now_ns, &peer, || {}) != Step::Up {}
        let start_ns = now_ns;
        loop {
            now_ns += HEARTBEAT_NS;
            wait((now_ns - start_ns) * waits_percent / 100);
            if attach.wants_vm() {
                let thread = std::iter::once(thread.clone());
                attach.vm_wait = Some(ProcessorWait::of(thread, now_ns));
            }
            if attach.step(now_ns, &peer, || {}) == Step::Down {
                std::fs::remove_dir_all(&thread).unwrap();
                return (now_ns - start_ns) / 1_000_000;
            }
        }
    }

    #[test]
    fn node_is_not_dead_while_its_vm_only_waits_for_a_processor() {
        assert_eq!(silence_ms("never", 0), 600);
        assert_eq!(silence_ms("half", 50), 600);
        let mostly_ms = silence_ms("mostly", 80);
        assert!((800..1000).contains(&mostly_ms), "{mostly_ms}");
        assert_eq!(silence_ms("always", 100), 5000);
    }
}
