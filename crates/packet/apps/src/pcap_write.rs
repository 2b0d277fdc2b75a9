//! **pcap_write**: writes frames to a pcap file, and drops them. A `tee` in front gives it copies.
//!
//! - inputs: `input`
//! - outputs: no port
//! - configuration: `file`, which is written anew; `snap`: bytes of each frame that are written, 1
//!   to 262144, all where nothing is said
//! - counters: `written`; `write_errors`: frames after the disk refused one
//! - cost: one copy of the bytes; a system call for each 64 KiB, which may wait for the disk: not
//!   for a worker that must not stop
//!
//! Frames have the time at which they came, or the time of their metadata. What was written is in
//! the file after a second at most.

use std::any::Any;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use carina_engine::counter_file::Counter;
use carina_engine::frames::{
    AppConfig, AppContext, AppError, FrameApp, Opened, Outside, PortList, Ports, Sole, made,
};
use carina_time::{Duration, Instant};
use carina_wire::pcap::{PACKET_BYTES_MAX, file_header, record};
use serde::{Deserialize, Serialize};

/// The configuration of the app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcapWriteConfig {
    /// The file.
    pub file: PathBuf,
    /// Bytes of each frame that are written.
    #[serde(default = "all")]
    pub snap: u32,
}

fn all() -> u32 {
    PACKET_BYTES_MAX
}

/// The app.
pub struct PcapWrite {
    /// Without it the disk has refused a frame.
    file: Option<BufWriter<File>>,
    snap: usize,
    /// Nanoseconds since 1970 at the app's first visit, and its time then.
    wall_ns: u64,
    began: Option<Instant>,
    written: Counter,
    errors: Counter,
}

/// Why there is no such app.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("{file}: {error}")]
    System { file: String, error: std::io::Error },
    #[error("snap = {0}: must be 1 to {PACKET_BYTES_MAX} bytes")]
    Snap(u32),
}

const BUFFER_BYTES: usize = 64 * 1024;

impl AppConfig for PcapWriteConfig {
    const KIND: &'static str = "pcap_write";
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::NO_PORT;
    const TICK: Option<Duration> = Some(Duration::from_secs(1));
    const OPENS: bool = true;

    type App = PcapWrite;

    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        made(self, context)
    }

    fn check(&self) -> Result<(), AppError> {
        if !(1..=PACKET_BYTES_MAX).contains(&self.snap) {
            return Err(WriteError::Snap(self.snap).into());
        }
        Ok(())
    }

    fn outside(&self) -> Outside {
        Outside::Something
    }

    fn sole(&self) -> Vec<Sole> {
        let file = self.file.as_os_str().as_bytes();
        vec![Sole::new(
            "file",
            file,
            "each would overwrite what the other writes",
        )]
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<PcapWrite, AppError> {
        let system = |error| WriteError::System {
            file: self.file.display().to_string(),
            error,
        };
        let file = File::create(&self.file).map_err(system)?;
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
        file.write_all(&file_header(self.snap)).map_err(system)?;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(PcapWrite {
            file: Some(file),
            snap: self.snap as usize,
            wall_ns: wall.map_or(0, |wall| wall.as_nanos() as u64),
            began: None,
            written: context.counter("written"),
            errors: context.counter("write_errors"),
        })
    }
}

impl FrameApp for PcapWrite {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let now = ports.now();
        let began = *self.began.get_or_insert(now);
        let (snap, wall_ns) = (self.snap, self.wall_ns);
        let (mut written, mut errors) = (0, 0);
        ports.drain(0, |frame| {
            let at = frame.time().unwrap_or(now);
            let nanos = wall_ns + at.since(began).as_nanos();
            let bytes = &frame.bytes()[..frame.len().min(snap)];
            let record = record(nanos, bytes.len(), frame.len());
            let write = |file: &mut BufWriter<File>| {
                file.write_all(&record)?;
                file.write_all(bytes)
            };
            match self.file.as_mut().map(write) {
                Some(Ok(())) => written += 1,
                Some(Err(_)) | None => {
                    errors += 1;
                    self.file = None;
                }
            }
        });
        self.written.add(written);
        self.errors.add(errors);
    }

    fn tick(&mut self, _ports: &mut Ports<'_>) {
        if self.file.as_mut().is_some_and(|file| file.flush().is_err()) {
            self.file = None;
        }
    }
}
