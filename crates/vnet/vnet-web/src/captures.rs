//! Captures that were begun on the page: a file each, and its packets in words as they come.

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

/// All captures of a page. They end with this value.
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
    /// It is to end, with what is on its way.
    is_enough: AtomicBool,
    /// It is to end at once.
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

/// The link that is to be captured, and at which of its ends.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureWanted {
    /// Its number.
    pub link: u32,
    /// The end, 0 or 1.
    pub side: usize,
}

/// A packet in words.
#[derive(Clone, Debug, Serialize)]
pub struct Captured {
    /// Its number, from 1.
    pub number: u64,
    /// When, ns after the first one.
    pub after_ns: u64,
    /// Which way: `r1:eth0 -> r2:eth0`.
    pub interface: String,
    /// How long it was.
    pub bytes: u32,
    /// What it is.
    pub summary: String,
}

/// How far a capture is, and what is new.
#[derive(Clone, Debug, Serialize)]
pub struct CaptureSeen {
    /// Its number.
    pub id: u64,
    /// Packets so far.
    pub count: u64,
    /// Packets that passed unseen.
    pub missed: u64,
    /// Bytes of the file so far.
    pub file_bytes: usize,
    /// Whether there is no room for more.
    pub is_full: bool,
    /// `ended`, or what went wrong; none while it goes on.
    pub end: Option<String>,
    /// Where to go on asking.
    pub next: u64,
    /// Packets after those that were known; of many, the last.
    pub packets: Vec<Captured>,
}

impl Captures {
    /// Begins a capture of what `open` opens.
    ///
    /// # Errors
    /// There are too many, or it cannot be opened.
    pub fn begin(
        &self,
        open: impl FnOnce() -> Result<Box<dyn FrameSource>, ErrorBody>,
    ) -> Result<CaptureSeen, ErrorBody> {
        {
            let mut all = lock(&self.all);
            all.retain(|_, capture| lock(&capture.state).asked.elapsed() < FORGOTTEN);
            let runs = |capture: &&Arc<Capture>| lock(&capture.state).end.is_none();
            if all.values().filter(runs).count() >= CAPTURES_MAX {
                let what = format!("{CAPTURES_MAX} captures run already; end one first");
                return Err(ErrorBody::new(ErrorCode::LimitReached, what));
            }
            // Of those that have ended, the oldest goes.
            while all.len() >= CAPTURES_MAX {
                let ended = all.iter().find(|(_, it)| lock(&it.state).end.is_some());
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

    /// How far a capture is, as soon as there are packets after number `since`, at the latest after
    /// `wait`.
    ///
    /// # Errors
    /// There is no such capture, as of all below.
    pub fn seen(&self, id: u64, since: u64, wait: Duration) -> Result<CaptureSeen, ErrorBody> {
        Ok(self.find(id)?.seen(id, since, wait))
    }

    /// The file so far, in whole blocks (pcapng).
    ///
    /// # Errors
    /// See [`Captures::seen`].
    pub fn file(&self, id: u64) -> Result<Vec<u8>, ErrorBody> {
        let capture = self.find(id)?;
        let mut state = lock(&capture.state);
        state.asked = Instant::now();
        Ok(state.file.clone())
    }

    /// Ends a capture; its file stays for a time.
    ///
    /// # Errors
    /// See [`Captures::seen`].
    pub fn end(&self, id: u64) -> Result<(), ErrorBody> {
        self.find(id)?.is_enough.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends a capture and forgets it.
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
            let what = format!("there is no capture {id}, or it was forgotten: begin another");
            ErrorBody::new(ErrorCode::NotFound, what)
        })
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        for capture in lock(&self.all).values() {
            capture.is_over.store(true, Ordering::Release);
        }
        // One that waits for an answer from elsewhere is not waited for: it ends when that comes.
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
        // When the file must have come to its end.
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

    /// Takes what is new; says whether it is enough.
    fn take(&self, packets: Vec<Captured>, reader: &Reader) -> bool {
        let mut state = lock(&self.state);
        let whole = reader.whole();
        if state.is_full || state.file.len() + whole.len() > FILE_MAX {
            // A file without one portion would lie about what passed.
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
        let new = state.packets.iter().filter(|it| it.number > since);
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

/// Packets in words.
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
                let summaries: Vec<&str> = layers.iter().map(|it| it.summary.as_str()).collect();
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
    // Every critical section leaves what it holds whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Captures at a time.
const CAPTURES_MAX: usize = 8;
/// Bytes that are kept of a packet of a page's capture.
pub const SNAP: u32 = 2048;
/// Bytes of a file.
const FILE_MAX: usize = 16 << 20;
/// Packets that are kept in words.
const PACKETS_MAX: usize = 500;
/// A capture ends that was not asked for so long: the page has gone.
const LEFT: Duration = Duration::from_secs(30);
/// Its file goes after so long.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// How long captures may take to end with their page.
const ENDS: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 1 << 18;
/// How often it is looked at whether a capture is to end.
const TURN: Duration = Duration::from_millis(100);
/// How long what is on its way may take when a capture is to end.
const LAST: Duration = Duration::from_secs(1);
