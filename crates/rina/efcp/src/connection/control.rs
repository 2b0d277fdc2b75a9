//! Control PDUs: how they are made, and how received ones are checked.
//!
//! What a control PDU reports (which PDUs arrived, where the right edge is) stays true for ever. So
//! the sender checks it against what it has sent, and only moves edges forward. The number of a
//! control PDU matters only for values that can change in both directions (marks, rate, delay). So
//! neither a repeated nor a forged number can stop a connection.

use carina_time::Instant;
use carina_wire::Payload;
use carina_wire::dif::{Control, PduType, Window};

use super::{Connection, Transmit};
use crate::config::RateControl;
use crate::control_numbers::{JUMP, Place};
use crate::counters::Discard;
use crate::profile::Stall;
use crate::seq;

impl<P: Payload> Connection<P> {
    pub(super) fn on_control(&mut self, now: Instant, control: &Control) -> Result<(), Discard> {
        self.counters.control_received += 1;
        self.sender.answered_at = now;
        let place = self.numbers.place(control.seq);
        let is_newest = matches!(place, Place::Newest { .. });
        if let Place::Newest { missing } = place
            && missing <= JUMP
        {
            self.counters.control_lost += missing;
        }
        let mut is_news = false;
        if let Some(ack) = &control.ack {
            if !self.sender.is_reliable {
                return Err(Discard::UnexpectedControl);
            }
            let counters = &mut self.counters;
            is_news |= self.sender.on_ack(now, ack, is_newest, counters)?;
        }
        if let Some(window) = &control.window {
            is_news |= self.on_window(now, window, is_newest)?;
        }
        match place {
            Place::Newest { .. } => Ok(()),
            Place::Jump => Err(Discard::ControlJump),
            Place::Old { is_far } if is_news => {
                if is_far {
                    // The control PDU has an old number but new contents: the peer has restarted
                    // its numbering.
                    let number = control.seq.wrapping_add(self.numbers.less);
                    self.numbers.last = seq::truncate(number, self.numbers.bits);
                }
                Ok(())
            }
            Place::Old { .. } => Err(Discard::OldControl),
        }
    }

    /// Processes the window of a control PDU. Returns whether the right edge moved.
    fn on_window(
        &mut self,
        now: Instant,
        window: &Window,
        is_newest: bool,
    ) -> Result<bool, Discard> {
        if let Some(bucket) = &mut self.sender.bucket
            && is_newest
            && window.rate > 0
            && window.frame > 0
        {
            bucket.limit(
                now,
                RateControl {
                    pdus: window.rate,
                    frame_ms: window.frame,
                },
            );
        }
        let Some(limits) = self.sender.window else {
            return if self.sender.bucket.is_some() {
                Ok(false)
            } else {
                Err(Discard::UnexpectedControl)
            };
        };
        if !self.sender.is_running {
            return Err(Discard::AbsurdWindow);
        }
        let right = seq::extend(window.right, self.sender.next, self.sender.bits);
        let right = right.ok_or(Discard::AbsurdWindow)?;
        let window_max = u64::from(limits.credit_max.max(limits.initial_credit));
        if right > self.sender.next.saturating_add(window_max) {
            return Err(Discard::AbsurdWindow);
        }
        if right > self.sender.right {
            self.sender.right = right;
            self.sender.watch_window(now);
            return Ok(true);
        }
        if right < self.sender.right && is_newest {
            return Err(Discard::AbsurdWindow);
        }
        Ok(false)
    }

    /// Returns the control PDU that is due now, if any.
    pub(super) fn control(&mut self, now: Instant) -> Option<Transmit<P>> {
        if !self.receiver.is_control_due() {
            return None;
        }
        let (ack, window) = self.receiver.report(now)?;
        if self.receiver.takes_new_run() {
            self.numbers.on_other_run();
        }
        self.counters.control_sent += 1;
        let control = self.number(Control {
            ack,
            window: Some(window),
            ..Control::default()
        });
        Some(Transmit::without_data(PduType::Control, control))
    }

    /// Returns a rendezvous PDU if one is due. It tells the peer how far data was sent. With
    /// [`Stall::Repeat`] it is a repeated data PDU.
    pub(super) fn rendezvous(&mut self, now: Instant) -> Option<Transmit<P>> {
        if !self.sender.takes_rendezvous(now) {
            return None;
        }
        if self.profile.stall == Stall::Repeat {
            let (number, udf) = self.sender.repeat()?;
            self.counters.rendezvous_sent += 1;
            let drf = self.sender.has_flag(number);
            let wire = seq::truncate(number, self.sender.bits);
            return Some(Transmit::of_data(wire, drf, udf));
        }
        self.counters.rendezvous_sent += 1;
        let window = if self.profile.selective {
            Window::default()
        } else {
            Window {
                left: self.receiver.left(),
                right: self.receiver.right(),
                ..Window::default()
            }
        };
        let control = self.number(Control {
            window: Some(window),
            ..Control::default()
        });
        Some(Transmit::without_data(PduType::Rendezvous, control))
    }

    /// Adds the fields that every control PDU has, and truncates numbers to their widths on the
    /// wire.
    fn number(&mut self, mut control: Control) -> Control {
        let bits = self.sender.bits;
        let cut = |value| seq::truncate(value, bits);
        control.seq = self.numbers.to_wire(self.numbers.next);
        control.last_seq = self.numbers.to_wire(self.numbers.last);
        self.numbers.next += 1;
        if let Some(window) = &mut control.window {
            window.left = cut(window.left);
            window.right = cut(window.right);
            window.my_left = cut(self.sender.announced_left());
            window.my_right = cut(self.sender.right);
        }
        if let Some(ack) = &mut control.ack {
            let ranges = core::mem::take(&mut ack.sack);
            for &(start, end) in ranges.as_slice() {
                ack.sack.push(cut(start), cut(end));
            }
            ack.next = cut(ack.next);
            ack.cause = cut(ack.cause);
        }
        control
    }
}
