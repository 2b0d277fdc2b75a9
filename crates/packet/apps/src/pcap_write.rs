//! **pcap_write**: writes frames to a pcap file, and drops them. To write copies, put a `tee` in
//! front.
//!
//! - inputs: `input`
//! - outputs: none
//! - configuration: `file`: path of the file, which is replaced; `snap`: most bytes of each frame
//!   to write, 1 to 262144 (default: 262144)
//! - counters: `written`; `write_errors`: frames that were not written after a write had failed
//! - cost: one copy of the bytes, and a system call per 64 KiB. The call may wait for the disk, so
//!   do not use this app on a worker that must never stall
//!
//! Frames get the time at which they arrived, or the time in their metadata. Written frames are in
//! the file after at most a second.

use std::any::Any;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FrameApp, Opened, Outside, PortList, Ports, Sole, made,
};
use carina_time::{Duration, Instant};
use carina_wire::pcap::{PACKET_BYTES_MAX, file_header, record};
use serde::{Deserialize, Serialize};

/// The configuration of the app `pcap_write`, which writes frames to a pcap file, and drops them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcapWriteConfig {
    /// Path of the capture file that the app creates.
    pub file: PathBuf,
    /// Largest number of bytes of each frame to write.
    #[serde(default = "all")]
    pub snap: u32,
}

fn all() -> u32 {
    PACKET_BYTES_MAX
}

/// The running app `pcap_write`: writes frames to a pcap file, and drops them.
pub struct PcapWrite {
    /// The file; `None` after a write has failed.
    file: Option<BufWriter<File>>,
    snap: usize,
    /// The system's time at the app's first visit, in nanoseconds since 1970, and the engine's time
    /// then.
    wall_ns: u64,
    began: Option<Instant>,
    written: Counter,
    errors: Counter,
}

/// Why the app `pcap_write` cannot be made.
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
            "two apps would overwrite each other's frames",
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
