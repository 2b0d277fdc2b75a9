//! Captures that a page has started: each with a file, and its packets described as they come.

mod routes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_api::{ErrorBody, ErrorCode};
use carina_dissect::{Dissector, Settings};
use carina_wire::pcapng::{Item, Reader};
use serde::{Deserialize, Serialize};

pub use self::routes::routes;
use crate::frame_source::FrameSource;

/// The captures that users of a page have started. Dropping it ends them.
#[derive(Debug, Default)]
pub struct Captures {
    all: Mutex<BTreeMap<u64, Arc<Capture>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    last: Mutex<u64>,
}

#[derive(Debug)]
struct Capture {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether to end after frames in flight have arrived.
    is_enough: AtomicBool,
    /// Whether the capture has to end without waiting for further frames.
    is_over: AtomicBool,
}

#[derive(Debug)]
struct State {
    file: Vec<u8>,
    packets: VecDeque<Captured>,
    count: u64,
    missed: u64,
    is_full: bool,
    end: Option<String>,
    asked: Instant,
}

/// A request of the page to capture at one end of a link.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureWanted {
    /// Number of the link whose frames to capture.
    pub link: u32,
    /// Side of the link, 0 or 1.
    pub side: usize,
}

/// A captured packet as the page lists it: number, time, direction, length and summary.
#[derive(Clone, Debug, Serialize)]
pub struct Captured {
    /// Number of the packet, from 1.
    pub number: u64,
    /// Time after the first packet, ns.
    pub after_ns: u64,
    /// Direction: `r1:eth0 -> r2:eth0`.
    pub interface: String,
    /// Original length of the packet, bytes.
    pub bytes: u32,
    /// Summary of the packet's content.
    pub summary: String,
}

/// The state of a capture, and new packets.
#[derive(Clone, Debug, Serialize)]
pub struct CaptureSeen {
    /// ID of the capture.
    pub id: u64,
    /// Number of packets so far.
    pub count: u64,
    /// Number of packets that passed without being captured.
    pub missed: u64,
    /// Size of the file so far, bytes.
    pub file_bytes: usize,
    /// Whether the file has reached its largest size.
    pub is_full: bool,
    /// `ended`, or the error that ended the capture; `None` while it runs.
    pub end: Option<String>,
    /// The value of `since` for the next request.
    pub next: u64,
    /// The packets after `since`; only the last ones if there are many.
    pub packets: Vec<Captured>,
}

impl Captures {
    /// Starts a capture, whose frames a thread reads from the source that `open` opens. Returns the
    /// state of the new capture at once.
    ///
    /// # Errors
    /// There are too many captures, or the source cannot be opened.
    pub fn begin(
        &self,
        open: impl FnOnce() -> Result<Box<dyn FrameSource>, ErrorBody>,
    ) -> Result<CaptureSeen, ErrorBody> {
        {
            let mut all = lock(&self.all);
            all.retain(|_, capture| lock(&capture.state).asked.elapsed() < FORGOTTEN);
            let runs = |capture: &&Arc<Capture>| lock(&capture.state).end.is_none();
            if all.values().filter(runs).count() >= CAPTURES_MAX {
                let what = format!(
                    "{CAPTURES_MAX} captures are running, which is the limit; end one first"
                );
                return Err(ErrorBody::new(ErrorCode::LimitReached, what));
            }
            // The oldest ended capture is removed.
            while all.len() >= CAPTURES_MAX {
                let ended = all
                    .iter()
                    .find(|(_, capture)| lock(&capture.state).end.is_some());
                let Some(id) = ended.map(|(id, _)| *id) else {
                    break;
                };
                all.remove(&id);
            }
        }
        let source = open()?;
        let capture = Arc::new(Capture {
            state: Mutex::new(State {
                file: Vec::new(),
                packets: VecDeque::new(),
                count: 0,
                missed: 0,
                is_full: false,
                end: None,
                asked: Instant::now(),
            }),
            changed: Condvar::new(),
            is_enough: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let copies = Arc::clone(&capture);
        let thread = std::thread::Builder::new().name("vnet-capture".into());
        let thread = thread
            .spawn(move || copies.run(source))
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, error.to_string()))?;
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        let id = {
            let mut last = lock(&self.last);
            *last += 1;
            *last
        };
        let seen = capture.seen(id, 0, Duration::ZERO);
        lock(&self.all).insert(id, capture);
        Ok(seen)
    }

    /// Returns the state of a capture and its packets after number `since`. If no such packet
    /// exists yet, waits for one for up to `wait`; the result may then have no packets.
    ///
    /// # Errors
    /// There is no such capture. This holds for all methods below.
    pub fn seen(&self, id: u64, since: u64, wait: Duration) -> Result<CaptureSeen, ErrorBody> {
        Ok(self.find(id)?.seen(id, since, wait))
    }

    /// The file so far, in complete blocks (pcapng).
    ///
    /// # Errors
    /// See [`Captures::seen`].
    pub fn file(&self, id: u64) -> Result<Vec<u8>, ErrorBody> {
        let capture = self.find(id)?;
        let mut state = lock(&capture.state);
        state.asked = Instant::now();
        Ok(state.file.clone())
    }

    /// Ends a capture; its file is kept for some time.
    ///
    /// # Errors
    /// See [`Captures::seen`].
    pub fn end(&self, id: u64) -> Result<(), ErrorBody> {
        self.find(id)?.is_enough.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends a capture and removes it.
    ///
    /// # Errors
    /// See [`Captures::seen`].
    pub fn forget(&self, id: u64) -> Result<(), ErrorBody> {
        let capture = self.find(id)?;
        capture.is_over.store(true, Ordering::Release);
        lock(&self.all).remove(&id);
        Ok(())
    }

    fn find(&self, id: u64) -> Result<Arc<Capture>, ErrorBody> {
        let found = lock(&self.all).get(&id).map(Arc::clone);
        found.ok_or_else(|| {
            let what = format!("capture {id} does not exist or has expired; begin another");
            ErrorBody::new(ErrorCode::NotFound, what)
        })
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        for capture in lock(&self.all).values() {
            capture.is_over.store(true, Ordering::Release);
        }
        // A thread that waits for a remote answer is not waited for longer; it ends when the answer
        // comes.
        let deadline = Instant::now() + ENDS;
        let threads = lock(&self.threads);
        while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(ENDS / 100);
        }
    }
}

impl Capture {
    fn run(&self, source: Box<dyn FrameSource>) {
        let end = match self.copy(source) {
            Ok(()) => "ended".to_owned(),
            Err(what) => what,
        };
        lock(&self.state).end = Some(end);
        self.changed.notify_all();
    }

    fn copy(&self, mut source: Box<dyn FrameSource>) -> Result<(), String> {
        let mut reader = Reader::new();
        let mut words = Words::default();
        let mut bytes = vec![0; READ_BYTES];
        // The deadline for the end of the file.
        let mut end: Option<Instant> = None;
        while !self.is_over.load(Ordering::Acquire) {
            let read = source.read(&mut bytes, TURN);
            let Some(read) = read.map_err(|error| error.to_string())? else {
                return Ok(());
            };
            reader.feed(&bytes[..read]);
            let mut packets = Vec::new();
            while let Some(item) = reader.poll().map_err(|error| error.to_string())? {
                packets.extend(words.of(&item)?);
            }
            let is_enough = self.take(packets, &reader);
            match end {
                Some(end) if Instant::now() > end => return Ok(()),
                Some(_) => {}
                None if is_enough => {
                    source.finish().map_err(|error| error.to_string())?;
                    end = Some(Instant::now() + LAST);
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Adds new packets; returns whether the capture must end.
    fn take(&self, packets: Vec<Captured>, reader: &Reader) -> bool {
        let mut state = lock(&self.state);
        let whole = reader.whole();
        if state.is_full || state.file.len() + whole.len() > FILE_MAX {
            // A file with a missing portion would be misleading.
            state.is_full = true
        } else {
            state.file.extend_from_slice(whole)
        }
        state.missed = reader.missed();
        let is_new = !packets.is_empty();
        state.count += packets.len() as u64;
        state.packets.extend(packets);
        let excess = state.packets.len().saturating_sub(PACKETS_MAX);
        state.packets.drain(..excess);
        let is_left = state.asked.elapsed() > LEFT;
        let is_enough = self.is_enough.load(Ordering::Acquire) || state.is_full || is_left;
        drop(state);
        if is_new {
            self.changed.notify_all();
        }
        is_enough
    }

    fn seen(&self, id: u64, since: u64, wait: Duration) -> CaptureSeen {
        let mut state = lock(&self.state);
        state.asked = Instant::now();
        let waits = |state: &mut State| state.count <= since && state.end.is_none();
        let waited = self.changed.wait_timeout_while(state, wait, waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.asked = Instant::now();
        let new = state.packets.iter().filter(|packet| packet.number > since);
        CaptureSeen {
            id,
            count: state.count,
            missed: state.missed,
            file_bytes: state.file.len(),
            is_full: state.is_full,
            end: state.end.clone(),
            next: state.count,
            packets: new.cloned().collect(),
        }
    }
}

/// Describes the packets of a capture as text.
struct Words {
    dissector: Dissector,
    interfaces: Vec<String>,
    began_ns: Option<u64>,
    count: u64,
}

impl Default for Words {
    fn default() -> Words {
        Words {
            dissector: Dissector::new(Settings::default()),
            interfaces: Vec::new(),
            began_ns: None,
            count: 0,
        }
    }
}

impl Words {
    fn of(&mut self, item: &Item<'_>) -> Result<Option<Captured>, String> {
        match item {
            Item::Section => {
                self.interfaces.clear();
                self.dissector.begin_section();
                Ok(None)
            }
            Item::Interface(interface) => {
                self.interfaces.push(interface.name.clone());
                let added = self.dissector.add_interface(interface);
                added.map_err(|error| format!("{}: {error}", interface.name))?;
                Ok(None)
            }
            Item::Packet(packet) => {
                let layers = self.dissector.dissect(packet);
                let summaries: Vec<&str> =
                    layers.iter().map(|layer| layer.summary.as_str()).collect();
                let interface = self.interfaces.get(packet.interface as usize);
                let began = *self.began_ns.get_or_insert(packet.time_ns);
                self.count += 1;
                Ok(Some(Captured {
                    number: self.count,
                    after_ns: packet.time_ns.saturating_sub(began),
                    interface: interface.cloned().unwrap_or_default(),
                    bytes: packet.original_bytes,
                    summary: summaries.join(" | "),
                }))
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves the value consistent, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Largest number of captures at a time.
const CAPTURES_MAX: usize = 8;
/// Bytes of each packet that a page's capture keeps.
pub const SNAP: u32 = 2048;
/// Largest size of a file, bytes.
const FILE_MAX: usize = 16 << 20;
/// Largest number of packet descriptions that are kept.
const PACKETS_MAX: usize = 500;
/// Time without a request after which a capture ends, because the page is closed.
const LEFT: Duration = Duration::from_secs(30);
/// Time after which the file of an ended capture is removed.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Longest time to wait for captures to end with their page.
const ENDS: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 1 << 18;
/// Time between two checks whether a capture must end.
const TURN: Duration = Duration::from_millis(100);
/// How long the page waits for frames in flight when a capture ends.
const LAST: Duration = Duration::from_secs(1);
