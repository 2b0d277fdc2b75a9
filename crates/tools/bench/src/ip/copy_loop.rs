//! A bare loop that copies packets from one TUN interface to another.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use carina_netdev::{Tap, TapResult, VNET_HEADER_BYTES};
use carina_sys::{Epoll, EventFd, Interest};

use crate::error::{Attempt, Result};

/// A thread that moves packets between two interfaces until it is dropped.
pub(super) struct CopyLoop {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl CopyLoop {
    /// Starts to move packets between the interfaces, with segments and missing checksums as they
    /// are.
    ///
    /// # Errors
    /// The system refuses a thread or a descriptor.
    pub(super) fn start(taps: [Tap; 2]) -> Result<CopyLoop> {
        let stop = Arc::new(EventFd::new().attempt("making an event descriptor")?);
        let epoll = Epoll::new().attempt("making an epoll set")?;
        let add = |fd: &dyn AsFd, token| epoll.add(fd.as_fd(), token, Interest::Read);
        add(&taps[0], 0)
            .and_then(|()| add(&taps[1], 1))
            .and_then(|()| add(&*stop, STOP))
            .attempt("waiting for packets")?;
        let thread = std::thread::Builder::new().name("copy loop".to_owned());
        let thread = thread
            .spawn(move || copy(taps, &epoll))
            .attempt("starting a thread")?;
        Ok(CopyLoop {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for CopyLoop {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the loop does not panic");
        }
    }
}

fn copy(mut taps: [Tap; 2], epoll: &Epoll) {
    let mut ready = Vec::new();
    let mut headers = vec![[0; VNET_HEADER_BYTES]; BURST];
    let mut packets = vec![0; BURST * PACKET_BYTES];
    while epoll.wait(&mut ready, None).is_ok() {
        if ready.iter().any(|event| event.token == STOP) {
            return;
        }
        for event in &ready {
            let from = event.token as usize;
            let slots = headers
                .iter_mut()
                .zip(packets.chunks_exact_mut(PACKET_BYTES));
            let results: Vec<TapResult> = taps[from].read(slots).collect();
            let arrived = headers
                .iter()
                .zip(packets.chunks_exact(PACKET_BYTES))
                .zip(&results)
                .filter_map(|((header, packet), result)| match result {
                    TapResult::Done(length) => Some((header, &packet[..*length])),
                    _ => None,
                });
            // A packet that the kernel refuses is lost, as on any link.
            taps[1 - from].write(arrived).for_each(drop);
        }
    }
}

const STOP: u64 = 2;
const BURST: usize = 32;
const PACKET_BYTES: usize = 1 << 16;
