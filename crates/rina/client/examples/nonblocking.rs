//! The echo server in one thread, with epoll over the registration and all flows.
//!
//! ```text
//! cargo run -p carina-client --example nonblocking -- echo.example
//! ```
//!
//! Rules for an event loop:
//!
//! 1. Call the `try_` functions until they return `None`.
//! 2. Arm the flow. If `arm` returns `false`, something has arrived meanwhile: go back to 1.
//! 3. Only then wait: the descriptor of `poll_fd` becomes readable when something arrives.
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
                // The caller gave up before this server accepted.
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
                // Closing the descriptor removes it from the epoll set.
                flows.remove(&id);
            }
        }
    }
}

/// Sends back every SDU that has arrived, and arms the flow.
fn echo(flow: &mut Flow) -> Result<(), Error> {
    let mut sdu = [0; 4096];
    loop {
        while let Some(length) = flow.try_recv(&mut sdu)? {
            // `send` waits while the flow is full. A server with slow readers would call `try_send`
            // instead, queue the SDU when it returns `false`, and arm the sender.
            flow.send(&sdu[..length])?;
        }
        if flow.arm()? {
            return Ok(());
        }
    }
}

/// The epoll token of the registration. Flows have larger tokens.
const REGISTRATION: u64 = 0;
