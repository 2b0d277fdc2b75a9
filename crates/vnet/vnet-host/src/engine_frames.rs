//! Frames that an engine of this host captures.

use std::io;
use std::time::Duration;

use carina_graph::trace::TraceStream;
use carina_vnet_web::FrameSource;

/// The captured frames of an engine of this host.
#[derive(Debug)]
pub(crate) struct EngineFrames(pub(crate) TraceStream);

impl FrameSource for EngineFrames {
    fn read(&mut self, bytes: &mut [u8], within: Duration) -> io::Result<Option<usize>> {
        self.0.read(bytes, within)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.finish()
    }
}
