//! The echo server in one thread: epoll over the registration and the descriptor of each flow.
//!
//! ```text
//! cargo run -p carina-client --example nonblocking -- echo.example
//! ```
//!
//! Rules for an event loop:
//!
//! 1. Take what is there with the `try_` calls until they give `None`.
//! 2. Arm the flow. `false` means that something has arrived meanwhile: back to 1.
//! 3. Only then wait: the descriptor of `poll_fd` is readable once there is news.
#![allow(clippy::print_stdout, reason = "the example talks to a person")]

use std::collections::HashMap;
use std::os::fd::AsFd;

use carina_client::{Error, Flow, Node, name};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let own = std::env::args().nth(1).unwrap_or("echo.example".to_owned());
    let node = Node::connect()?;
    let mut registration = node.register(&name(&own)?, None)?;
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watched = epoll::EventFlags::IN;
    let data = epoll::EventData::new_u64(REGISTRATION);
    epoll::add(&set, registration.as_fd(), data, watched)?;
    println!("registered as {own}");
    let mut flows: HashMap<u64, Flow> = HashMap::new();
    let mut last = REGISTRATION;
    let mut events = Vec::with_capacity(16);
    loop {
        while let Some(request) = registration.try_next_request()? {
            let mut flow = match registration.accept_request(&request) {
                Ok(flow) => flow,
                // The caller gave up before it was answered.
                Err(Error::Refused(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            if echo(&mut flow).is_ok() {
                last += 1;
                let data = epoll::EventData::new_u64(last);
                epoll::add(&set, flow.poll_fd()?, data, watched)?;
                flows.insert(last, flow);
            }
        }
        events.clear();
        match epoll::wait(&set, spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let id = event.data.u64();
            let Some(flow) = flows.get_mut(&id) else {
                continue;
            };
            if let Err(error) = echo(flow) {
                println!("the flow of {} ended: {error}", flow.info().remote);
                // Its descriptor leaves the epoll set as it closes.
                flows.remove(&id);
            }
        }
    }
}

/// Returns every SDU that is there, until the flow is armed.
fn echo(flow: &mut Flow) -> Result<(), Error> {
    let mut sdu = [0; 4096];
    loop {
        while let Some(length) = flow.try_recv(&mut sdu)? {
            // A server with slow readers queues here when `try_send` gives `false`, and arms the
            // sender for space; this one waits.
            flow.send(&sdu[..length])?;
        }
        if flow.arm()? {
            return Ok(());
        }
    }
}

/// The token of the registration; flows have larger ones.
const REGISTRATION: u64 = 0;
