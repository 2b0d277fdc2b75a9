//! The web page of an agent, while it is served.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use carina_vnet_host::{Agent, server};
use carina_vnet_web::PageServer;

use crate::report::progress;

/// The web page, served on a thread that ends when this value is dropped.
pub(super) struct Page {
    stop: Option<server::Stop>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Page {
    /// Begins to serve the page, and prints its URL.
    pub(super) fn serve(page_server: PageServer, agent: &Arc<Agent>) -> Page {
        progress(format!("open {} in a browser", page_server.url()));
        let (stop, stopped) = server::stop_handle();
        let agent = Arc::clone(agent);
        Page {
            stop: Some(stop),
            thread: Some(std::thread::spawn(move || {
                carina_vnet_host::web::serve(page_server, agent, stopped)
            })),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            progress(format!("serving the page: {error}"));
        }
    }
}
