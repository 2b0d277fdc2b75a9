//! Frames captured by a remote host, for a capture of the page.

use std::io;
use std::time::Duration;

use carina_api::ErrorBody;
use carina_vnet_web::FrameSource;

use crate::inside::copied::Copied;
use crate::inside::{Answer, NodeRequest};

/// A function that sends a request and returns its answer or refusal.
pub(super) type SendRequest = Box<dyn Fn(NodeRequest) -> Result<Answer, ErrorBody> + Send>;

/// The capture of one link.
pub(super) struct RemoteFrames {
    copied: Copied,
    ask: SendRequest,
    /// Position in the capture file of the portion to request next, in bytes.
    next: u64,
    /// Bytes of the capture that have arrived, and that no read has returned yet.
    waiting: Vec<u8>,
    has_ended: bool,
}

impl RemoteFrames {
    /// Starts a capture.
    ///
    /// # Errors
    /// There is no such link, or its host does not answer.
    pub(super) fn begin(copied: Copied, ask: SendRequest) -> Result<RemoteFrames, ErrorBody> {
        let mut frames = RemoteFrames {
            copied,
            ask,
            next: 0,
            waiting: Vec::new(),
            has_ended: false,
        };
        frames.fetch(Duration::ZERO)?;
        Ok(frames)
    }

    fn fetch(&mut self, wait: Duration) -> Result<(), ErrorBody> {
        let answer = (self.ask)(self.copied.ask(self.next, wait))?;
        if let Answer::Copied {
            next,
            bytes,
            has_ended,
        } = answer
        {
            self.next = next;
            self.waiting.extend(bytes);
            self.has_ended = has_ended;
        }
        Ok(())
    }
}

impl FrameSource for RemoteFrames {
    fn read(&mut self, bytes: &mut [u8], within: Duration) -> io::Result<Option<usize>> {
        if self.waiting.is_empty() && !self.has_ended {
            // Each request occupies a connection at every role, so that fewer, longer ones are
            // better.
            let fetched = self.fetch(within.max(WAIT));
            fetched.map_err(|refusal| io::Error::other(refusal.message))?;
        }
        if self.waiting.is_empty() && self.has_ended {
            return Ok(None);
        }
        let count = self.waiting.len().min(bytes.len());
        bytes[..count].copy_from_slice(&self.waiting[..count]);
        self.waiting.drain(..count);
        Ok(Some(count))
    }

    fn finish(&mut self) -> io::Result<()> {
        let done = (self.ask)(self.copied.stop_capture());
        done.map(drop)
            .map_err(|refusal| io::Error::other(refusal.message))
    }
}

const WAIT: Duration = Duration::from_millis(500);
