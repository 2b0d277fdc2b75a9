//! Frames that an engine of this host captures.

use std::io;
use std::time::Duration;

use carina_graph::trace::TraceStream;
use carina_vnet_web::FrameSource;

use crate::paths::Hold;

/// The captured frames of an engine of this host, with what holds their link in the engine.
#[derive(Debug)]
pub(crate) struct EngineFrames {
    pub stream: TraceStream,
    pub _hold: Hold,
}

impl FrameSource for EngineFrames {
    fn read(&mut self, bytes: &mut [u8], within: Duration) -> io::Result<Option<usize>> {
        self.stream.read(bytes, within)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.stream.finish()
    }
}
