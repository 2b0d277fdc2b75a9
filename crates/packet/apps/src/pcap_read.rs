//! **pcap_read**: sends the frames of a capture file, pcap or pcapng.
//!
//! - inputs: none
//! - outputs: `output`
//! - configuration: `file`: path of a file of at most 1 GiB; `repeat`: start again at the end
//!   (default: `false`); `pace`: send at the intervals recorded in the file (default: `false`);
//!   `mac`, `source_mac`, `vlan`: destination, source and VLAN of packets whose link type has no
//!   MAC addresses, such as RAW (default: `02:00:00:00:00:02`, `02:00:00:00:00:01`, no VLAN)
//! - counters: `sent`; `drop_long`: frames longer than the pool's; `drop_cut`: packets that were
//!   captured only in part, and the packet within which a truncated file ends;
//!   `drop_not_ethernet`: other packets that are not Ethernet frames; `pool_empty`: bursts that
//!   ended early because the pool had no frame
//! - cost: one copy of the bytes
//!
//! The app reads the file when it is made; later changes have no effect. Packets that cannot be
//! sent are counted once. A file of which no packet can be sent is refused.

use std::any::Any;
use std::path::PathBuf;

use carina_frame::Pool;
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, Notice, Opened, PortList, Ports,
    WhenFull, made,
};
use carina_time::{Duration, Instant};
use carina_wire::capture::{NoFrame, Skipped, Stations};
use carina_wire::ether::VLAN_MAX;
use serde::{Deserialize, Serialize};

use crate::capture_file::{CaptureFileError, CapturedFrames};
use crate::mac_text::MacText;

/// The configuration of the app `pcap_read`, which sends the frames of a capture file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcapReadConfig {
    /// Path of the capture file.
    pub file: PathBuf,
    /// Whether to start again at the end.
    #[serde(default)]
    pub repeat: bool,
    /// Whether to send at the intervals recorded in the file.
    #[serde(default)]
    pub pace: bool,
    /// Destination MAC address of packets that were captured without MAC addresses; `None` means
    /// `02:00:00:00:00:02`.
    #[serde(default)]
    pub mac: Option<MacText>,
    /// Source MAC address of packets that were captured without MAC addresses; `None` means
    /// `02:00:00:00:00:01`.
    #[serde(default)]
    pub source_mac: Option<MacText>,
    /// VLAN of packets that were captured without MAC addresses; `None` sends them without a tag.
    #[serde(default)]
    pub vlan: Option<u16>,
}

/// The running app `pcap_read`: sends the frames of a capture file.
pub struct PcapRead {
    file: CapturedFrames,
    repeat: bool,
    pace: bool,
    next: usize,
    /// With `pace`: when the first frame of the file was sent.
    began: Option<Instant>,
    pool: Pool,
    sent: Counter,
    long: Counter,
    pool_empty: Counter,
    // These counters get their values when the app is made.
    _cut: Counter,
    _not_ethernet: Counter,
}

/// Why the app `pcap_read` cannot be made.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("{file}: {error}")]
    File {
        file: String,
        error: CaptureFileError,
    },
    #[error("{file} has no frame that can be sent: {skipped}")]
    NoFrame { file: String, skipped: Skipped },
    #[error("{file} has no frame, so there is nothing to repeat")]
    Empty { file: String },
    #[error("vlan = {0}: must be 1 to {VLAN_MAX}")]
    Vlan(u16),
}

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
        let stations = self.stations()?;
        let read = CapturedFrames::open(&self.file, stations);
        let read = read.map_err(|error| ReadError::File {
            file: file(),
            error,
        })?;
        let skipped = read.skipped.total();
        if read.frames.is_empty() && skipped > 0 {
            return Err(ReadError::NoFrame {
                file: file(),
                skipped: read.skipped,
            }
            .into());
        }
        if self.repeat && read.frames.is_empty() {
            return Err(ReadError::Empty { file: file() }.into());
        }
        let (cut, not_ethernet) = (
            context.counter("drop_cut"),
            context.counter("drop_not_ethernet"),
        );
        cut.add(read.skipped.of(NoFrame::Cut));
        if let Some(error) = &read.cut {
            cut.add(1);
            context.notices().add(Notice {
                app: context.name().to_owned(),
                text: format!("{}: {error}; the frames before it are sent", file()),
                has_stopped: false,
            });
        }
        not_ethernet.add(skipped - read.skipped.of(NoFrame::Cut));
        Ok(PcapRead {
            file: read,
            repeat: self.repeat,
            pace: self.pace,
            next: 0,
            began: None,
            pool: context.pool().clone(),
            sent: context.counter("sent"),
            long: context.counter("drop_long"),
            pool_empty: context.counter("pool_empty"),
            _cut: cut,
            _not_ethernet: not_ethernet,
        })
    }
}

impl PcapReadConfig {
    fn stations(&self) -> Result<Stations, ReadError> {
        let default = Stations::default();
        if let Some(vlan) = self.vlan.filter(|vlan| !(1..=VLAN_MAX).contains(vlan)) {
            return Err(ReadError::Vlan(vlan));
        }
        Ok(Stations {
            destination: self.mac.map_or(default.destination, |mac| mac.0),
            source: self.source_mac.map_or(default.source, |mac| mac.0),
            vlan: self.vlan,
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
            // A burst also ends after this many frames that are too long.
            for _ in 0..FRAME_BURST {
                if self.due().is_none_or(|due| due > now) {
                    return None;
                }
                let bytes = self.file.frames.get(self.next)?;
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
    /// When to send the next frame; `None` after the last one.
    fn due(&self) -> Option<Instant> {
        let nanos = *self.file.times_ns.get(self.next)?;
        let Some(began) = self.began else {
            return Some(Instant::ZERO);
        };
        let first = self.file.times_ns.first().copied().unwrap_or(0);
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
