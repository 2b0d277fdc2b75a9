//! Network namespaces for tests: threads with their own network, which ends with the thread.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rustix::thread::{UnshareFlags, gettid, unshare_unsafe};

type Work = Box<dyn FnOnce() + Send>;

/// A thread in its own network namespace. The namespace has no name, so the kernel removes it with
/// the last thread and socket in it, however the test ends.
pub(crate) struct Room {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    tid: i32,
}

impl Room {
    /// Creates a room. `None` if namespaces cannot be created; the reason is then printed.
    pub(crate) fn new() -> Option<Room> {
        let (work, works) = channel::<Work>();
        let (told, tid) = channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: the network is no matter of memory or of file descriptors in use.
            let made = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
            told.send(made.map(|()| gettid().as_raw_nonzero().get()))
                .unwrap();
            while let Ok(work) = works.recv() {
                work();
            }
        });
        match tid.recv().unwrap() {
            Ok(tid) => {
                let room = Room {
                    work: Some(work),
                    thread: Some(thread),
                    tid,
                };
                room.ip("link set lo up").then_some(room)
            }
            Err(error) => {
                println!("SKIP: a network namespace needs CAP_SYS_ADMIN: {error}");
                None
            }
        }
    }

    /// Runs a closure on the room's thread. Threads that the closure starts stay in the room's
    /// namespace.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let work: Work = Box::new(move || drop(done.send(work())));
        self.work.as_ref().unwrap().send(work).unwrap();
        result.recv().expect("the work did not panic")
    }

    /// Runs `ip` in the room. Returns false if there is no such program; the reason is then
    /// printed.
    pub(crate) fn ip(&self, arguments: &str) -> bool {
        let arguments = arguments.to_owned();
        self.run(move || {
            let words = arguments.split_whitespace();
            match Command::new("ip").args(words).output() {
                Ok(output) => {
                    let text = String::from_utf8_lossy(&output.stderr).into_owned();
                    assert!(output.status.success(), "ip {arguments}: {text}");
                    true
                }
                Err(error) => {
                    println!("SKIP: the program ip (package iproute2): {error}");
                    false
                }
            }
        })
    }

    /// Connects two rooms by a pair of interfaces, and brings both up.
    pub(crate) fn join(&self, own: &str, other: &Room, theirs: &str, mtu: usize) {
        let tid = other.tid;
        self.ip(&format!(
            "link add {own} mtu {mtu} type veth peer name {theirs} mtu {mtu} netns {tid}"
        ));
        self.ip(&format!("link set dev {own} up"));
        other.ip(&format!("link set dev {theirs} up"));
    }
}

impl Room {
    /// Moves an interface from this room to another one.
    pub(crate) fn give(&self, interface: &str, other: &Room) {
        self.ip(&format!("link set dev {interface} netns {}", other.tid));
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
