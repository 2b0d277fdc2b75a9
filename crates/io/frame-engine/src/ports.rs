//! Access to the ports of an app during a visit.

use carina_frame::{Frame, Pool};
use carina_time::Instant;

use crate::link::FrameLink;

/// The ports of the app that the engine visits now. Methods name a port by its number.
///
/// # Panics
/// Each method that takes the number of a port panics if the app has no such port.
pub struct Ports<'a> {
    pub(super) links: &'a mut [FrameLink],
    pub(super) inputs: &'a [usize],
    pub(super) outputs: &'a [usize],
    pub(super) now: Instant,
    pub(super) clock: Option<fn() -> Instant>,
}

impl Ports<'_> {
    /// Returns the time at which the breath began.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns a time at or after the arrival of every frame at the inputs. [`Ports::now`] may be
    /// earlier than an arrival: frames may arrive while the breath lasts, and a breath takes longer
    /// while the thread has no processor.
    #[must_use]
    pub fn arrived_by(&self) -> Instant {
        self.clock.map_or(self.now, |clock| clock())
    }

    /// Returns the number of input ports.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Returns the number of output ports.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Returns the number of frames that wait at an input.
    #[must_use]
    #[inline]
    pub fn waiting(&self, input: usize) -> usize {
        self.links[self.inputs[input]].queue.len()
    }

    /// Returns the number of frames that an output accepts now: before it drops, or, if its link
    /// has back-pressure, before the app should wait.
    #[must_use]
    #[inline]
    pub fn room(&self, output: usize) -> usize {
        self.links[self.outputs[output]].room()
    }

    /// Whether frames that stay at an input hold back the port that supplies them, and no other
    /// port.
    #[must_use]
    #[inline]
    pub fn has_back_pressure(&self, input: usize) -> bool {
        self.links[self.inputs[input]].has_back_pressure
    }

    /// Takes the oldest frame that waits at an input; `None` if no frame waits.
    #[inline]
    pub fn receive(&mut self, input: usize) -> Option<Frame> {
        self.links[self.inputs[input]].queue.pop()
    }

    /// Puts a frame on an output. If the link is full, the frame is dropped and counted.
    #[inline]
    pub fn transmit(&mut self, output: usize, frame: Frame) {
        self.links[self.outputs[output]].push(frame);
    }

    /// Returns the frames that wait at an input, oldest first, without taking them.
    pub fn frames(&self, input: usize) -> impl Iterator<Item = &Frame> {
        self.links[self.inputs[input]].queue.iter()
    }

    /// Like [`Ports::frames`], but the caller can change the frames.
    pub fn frames_mut(&mut self, input: usize) -> impl Iterator<Item = &mut Frame> {
        self.links[self.inputs[input]].queue.iter_mut()
    }

    /// Takes all frames that wait at an input and passes each to `take`, oldest first.
    #[inline]
    pub fn drain(&mut self, input: usize, take: impl FnMut(Frame)) {
        self.links[self.inputs[input]].queue.drain(take);
    }

    /// Puts frames on an output until `make` returns `None`, `max` frames were put, or the link is
    /// full. Returns how many.
    #[inline]
    pub fn fill(
        &mut self,
        output: usize,
        max: usize,
        make: impl FnMut() -> Option<Frame>,
    ) -> usize {
        self.links[self.outputs[output]].fill(max, make)
    }

    /// Moves all frames that wait at an input to an output. `edit` is called with each frame; a
    /// frame for which it returns false is dropped, and must be counted by the app. If the output
    /// has back-pressure, frames without room stay at the input.
    #[inline]
    pub fn forward(&mut self, input: usize, output: usize, edit: impl FnMut(&mut Frame) -> bool) {
        let ends = [self.inputs[input], self.outputs[output]];
        let Ok([from, to]) = self.links.get_disjoint_mut(ends) else {
            unreachable!("no link leads from an app to itself");
        };
        let max = if to.has_back_pressure {
            to.room()
        } else {
            usize::MAX
        };
        let moved = from.queue.transfer(max, &mut to.queue, edit);
        to.count(moved);
    }

    /// Puts copies of all frames that wait at an input on an output; the copies use frames from
    /// `pool`, and the originals stay at the input. Returns the number of frames that were not
    /// copied because the pool had none left.
    #[inline]
    pub fn copy_all(&mut self, input: usize, output: usize, pool: &Pool) -> usize {
        let ends = [self.inputs[input], self.outputs[output]];
        let Ok([from, to]) = self.links.get_disjoint_mut(ends) else {
            unreachable!("no link leads from an app to itself");
        };
        let mut missing = 0;
        let mut waiting = from.queue.iter();
        let room = to.queue.room();
        let mut moved = to.queue.fill(room, || {
            waiting.by_ref().find_map(|frame| {
                let copy = pool.copy_of(frame);
                missing += usize::from(copy.is_none());
                copy
            })
        });
        moved.overflowed = waiting.count();
        to.count(moved);
        missing
    }

    /// Takes all frames that wait at an input one by one, and passes each to `take` together with
    /// the ports.
    #[inline]
    pub fn each(&mut self, input: usize, mut take: impl FnMut(Frame, &mut Self)) {
        for _ in 0..self.waiting(input) {
            let Some(frame) = self.receive(input) else {
                return;
            };
            take(frame, self);
        }
    }
}
