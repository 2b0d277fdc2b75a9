//! Sending: one message or many, and messages that were interrupted halfway.

use carina_client::{Error, FlowSender};
use pyo3::prelude::*;

use crate::error::{raised, timed_out};
use crate::half::Half;
use crate::wait::Deadline;

/// The sending direction of a flow.
pub(crate) struct Sending {
    pub(crate) half: Half<Sender>,
}

/// A sender, with a message that the flow has accepted but that is in the ring only in part.
pub(crate) struct Sender {
    sender: FlowSender,
    unfinished: Option<Vec<u8>>,
}

impl Sender {
    /// Sends what is left of an unfinished message; returns whether none is left.
    pub(crate) fn flush(&mut self) -> Result<bool, Error> {
        let Some(message) = &self.unfinished else {
            return Ok(true);
        };
        if !self.sender.try_send(message)? {
            return Ok(false);
        }
        self.unfinished = None;
        Ok(true)
    }

    /// Accepts as many of `messages` as there is space for. The last one may be unfinished.
    fn accept(&mut self, messages: &[&[u8]]) -> Result<usize, Error> {
        if !self.flush()? {
            return Ok(0);
        }
        let mut sent = 0;
        while sent < messages.len() {
            let burst = self.sender.try_send_burst(&messages[sent..]);
            // Messages that were sent count, whatever happened to the next one.
            match burst {
                Ok(0) => break,
                Ok(some) => sent += some,
                Err(_) if sent > 0 => return Ok(sent),
                Err(error) => return Err(error),
            }
        }
        if sent < messages.len() && self.sender.unfinished().is_some() {
            self.unfinished = Some(messages[sent].to_vec());
            sent += 1;
        }
        Ok(sent)
    }

    /// Bytes for which the next attempt needs space.
    fn wanted(&self, next: usize) -> usize {
        self.unfinished.as_ref().map_or(next, Vec::len)
    }
}

impl Sending {
    pub(crate) fn new(sender: FlowSender) -> Sending {
        Sending {
            half: Half::new(
                "the sending direction of the flow",
                Sender {
                    sender,
                    unfinished: None,
                },
            ),
        }
    }

    /// Sends all messages, and waits for space. After an error the exception does not say how many
    /// were sent; [`Self::attempt`] does.
    pub(crate) fn send(
        &self,
        py: Python<'_>,
        messages: &[&[u8]],
        deadline: Deadline,
    ) -> PyResult<()> {
        let mut sent = 0;
        loop {
            let mut held = self.half.hold(py)?;
            let sender: &mut Sender = &mut held;
            let some = sender.accept(&messages[sent..]);
            sent += some.map_err(|error| raised(py, &error))?;
            if sent == messages.len() && sender.unfinished.is_none() {
                return Ok(());
            }
            let until = deadline.slice();
            let next = messages.get(sent).copied().unwrap_or_default();
            let waited = py.detach(|| match sender.unfinished.take() {
                Some(message) => {
                    let done = sender.sender.send_until(&message, until);
                    if let Ok(false) = done {
                        sender.unfinished = Some(message);
                    }
                    done.map(|_| false)
                }
                None => {
                    let done = sender.sender.send_until(next, until)?;
                    if !done && sender.sender.unfinished().is_some() {
                        sender.unfinished = Some(next.to_vec());
                        return Ok(true);
                    }
                    Ok(done)
                }
            });
            sent += usize::from(waited.map_err(|error| raised(py, &error))?);
            let is_done = sent == messages.len() && sender.unfinished.is_none();
            drop(held);
            if is_done {
                return Ok(());
            }
            py.check_signals()?;
            if deadline.has_passed() {
                return Err(timed_out(py, "the flow had no space within the time limit"));
            }
        }
    }

    /// Accepts as many messages as there is space for, without waiting, and returns how many. If
    /// not all, the descriptor for space is armed.
    pub(crate) fn attempt(&self, py: Python<'_>, messages: &[&[u8]]) -> PyResult<usize> {
        let mut held = self.half.hold(py)?;
        let mut sent = 0;
        loop {
            match held.accept(&messages[sent..]) {
                Ok(some) => sent += some,
                // The next call raises the error.
                Err(_) if sent > 0 => return Ok(sent),
                Err(error) => return Err(raised(py, &error)),
            }
            let Some(next) = messages.get(sent) else {
                return Ok(sent);
            };
            let wanted = held.wanted(next.len());
            if held
                .sender
                .arm(wanted)
                .map_err(|error| raised(py, &error))?
            {
                return Ok(sent);
            }
        }
    }

    /// Sends what is left of an accepted message, without waiting. Returns `true` when nothing is
    /// left; otherwise the descriptor for space is armed.
    pub(crate) fn flush(&self, py: Python<'_>) -> PyResult<bool> {
        let mut held = self.half.hold(py)?;
        let mut flush = || loop {
            if held.flush()? {
                return Ok(true);
            }
            let wanted = held.wanted(0);
            if held.sender.arm(wanted)? {
                return Ok(false);
            }
        };
        flush().map_err(|error: Error| raised(py, &error))
    }
}

impl std::ops::Deref for Sender {
    type Target = FlowSender;
    fn deref(&self) -> &FlowSender {
        &self.sender
    }
}
