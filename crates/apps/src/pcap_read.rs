//! **pcap_read**: sends the frames of a pcap file.
//!
//! - inputs: no port
//! - outputs: `output`
//! - configuration: `file`: of Ethernet frames, at most 1 GiB; `repeat`: begin again at the end;
//!   `pace`: send at the distances in time that the file has; both false where nothing is said
//! - counters: `sent`; `drop_long`: frames longer than the pool's; `pool_empty`: bursts cut short
//!   because the pool had no frame
//! - cost: one copy of the bytes
//!
//! The file is read when the app is made, and may change afterwards.

use std::any::Any;
use std::path::PathBuf;

use carina_engine::counter_file::Counter;
use carina_engine::frames::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, Opened, PortList, Ports, WhenFull, made,
};
use carina_frame::Pool;
use carina_time::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::pcap_file::{PcapError, PcapFrames, read_pcap};

/// The configuration of the app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcapReadConfig {
    /// The file.
    pub file: PathBuf,
    /// Begin again at the end.
    #[serde(default)]
    pub repeat: bool,
    /// Send at the distances in time that the file has.
    #[serde(default)]
    pub pace: bool,
}

/// The app.
pub struct PcapRead {
    bytes: Vec<u8>,
    file: PcapFrames,
    repeat: bool,
    pace: bool,
    next: usize,
    /// When the file began, with `pace`.
    began: Option<Instant>,
    pool: Pool,
    sent: Counter,
    long: Counter,
    pool_empty: Counter,
}

/// Why there is no such app.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("{file}: {error}")]
    System { file: String, error: std::io::Error },
    #[error("{file}: {error}")]
    Format { file: String, error: PcapError },
    #[error("{file} has {bytes} bytes: at most {FILE_BYTES_MAX} are possible")]
    Large { file: String, bytes: u64 },
    #[error("{file} has no whole frame to repeat")]
    Empty { file: String },
}

const FILE_BYTES_MAX: u64 = 1 << 30;

impl AppConfig for PcapReadConfig {
    const KIND: &'static str = "pcap_read";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    const WHEN_FULL: WhenFull = WhenFull::PullsNoMore;
    const OPENS: bool = true;

    type App = PcapRead;

    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        made(self, context)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<PcapRead, AppError> {
        let file = || self.file.display().to_string();
        let system = |error| ReadError::System {
            file: file(),
            error,
        };
        let bytes = std::fs::metadata(&self.file).map_err(system)?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(ReadError::Large {
                file: file(),
                bytes,
            }
            .into());
        }
        let bytes = std::fs::read(&self.file).map_err(system)?;
        let read = read_pcap(&bytes).map_err(|error| ReadError::Format {
            file: file(),
            error,
        })?;
        if self.repeat && read.frames.is_empty() {
            return Err(ReadError::Empty { file: file() }.into());
        }
        Ok(PcapRead {
            bytes,
            file: read,
            repeat: self.repeat,
            pace: self.pace,
            next: 0,
            began: None,
            pool: context.pool().clone(),
            sent: context.counter("sent"),
            long: context.counter("drop_long"),
            pool_empty: context.counter("pool_empty"),
        })
    }
}

impl FrameApp for PcapRead {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn pull(&mut self, ports: &mut Ports<'_>) {
        let now = ports.now();
        if self.pace {
            self.began.get_or_insert(now);
        }
        let (mut sent, mut long, mut is_empty) = (0, 0, false);
        ports.fill(0, FRAME_BURST, || {
            // A burst of frames that are too long ends as well.
            for _ in 0..FRAME_BURST {
                if self.due().is_none_or(|due| due > now) {
                    return None;
                }
                let (_, place) = self.file.frames.get(self.next)?;
                let bytes = &self.bytes[place.clone()];
                if bytes.len() > self.pool.frame_bytes() {
                    long += 1;
                    self.advance(now);
                    continue;
                }
                let frame = self.pool.frame_of(bytes);
                match &frame {
                    Some(_) => {
                        sent += 1;
                        self.advance(now);
                    }
                    None => is_empty = true,
                }
                return frame;
            }
            None
        });
        self.sent.add(sent);
        self.long.add(long);
        self.pool_empty.add(u64::from(is_empty));
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.due().filter(|_| self.pace)
    }

    fn arm(&mut self) -> bool {
        self.pace || self.next >= self.file.frames.len()
    }
}

impl PcapRead {
    /// When the next frame is to be sent; `None` behind the last one.
    fn due(&self) -> Option<Instant> {
        let (nanos, _) = self.file.frames.get(self.next)?;
        let Some(began) = self.began else {
            return Some(Instant::ZERO);
        };
        let first = self.file.frames.first().map_or(0, |(nanos, _)| *nanos);
        Some(began + Duration::from_nanos(nanos.saturating_sub(first)))
    }

    fn advance(&mut self, now: Instant) {
        self.next += 1;
        if self.repeat && self.next >= self.file.frames.len() {
            self.next = 0;
            self.began = self.pace.then_some(now);
        }
    }
}
