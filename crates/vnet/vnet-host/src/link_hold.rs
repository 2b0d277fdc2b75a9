//! A client's hold of a link in the engine of an agent's network.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use carina_api::control::{Client as Http, ClientError};

/// Holds a link in its network's engine, where its frames can be captured, until this value is
/// dropped or this process ends.
#[derive(Debug)]
pub struct LinkHold {
    is_over: Arc<AtomicBool>,
}

impl LinkHold {
    /// Holds a link by a request for `path`, which the agent answers with lines for as long as the
    /// connection exists. Returns when the engine has the link.
    ///
    /// # Errors
    /// No agent answers, or it refuses.
    pub(crate) fn begin(http: Http, path: String) -> Result<LinkHold, ClientError> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (has_begun, begun) = channel();
        let over = Arc::clone(&is_over);
        std::thread::spawn(move || {
            let ended = http.post_streamed(&path, &(), &mut |_| {
                // The receiver only needs the first line.
                let _ = has_begun.send(Ok(()));
                if over.load(Ordering::Acquire) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            let _ = has_begun.send(ended.map(|_: Option<()>| ()));
        });
        // The thread sends at least once.
        begun.recv().unwrap_or(Ok(()))?;
        Ok(LinkHold { is_over })
    }
}

impl Drop for LinkHold {
    /// The thread closes the connection with the next line, within a second.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}
