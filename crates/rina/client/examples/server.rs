//! An echo server: registers a name and returns every SDU to its sender.
//!
//! ```text
//! cargo run -p carina-client --example server -- echo.example
//! ```
//!
//! The node must run; `CARINA_RUN` names its run directory. Each flow has a thread, and its calls
//! wait; `nonblocking.rs` serves all flows from one thread.
#![allow(clippy::print_stdout, reason = "the example talks to a person")]

use carina_client::{Error, Flow, Node, name};

fn main() -> Result<(), Error> {
    let own = std::env::args().nth(1).unwrap_or("echo.example".to_owned());
    let node = Node::connect()?;
    // `None`: in every DIF of this system that the access rules allow.
    let mut registration = node.register(&name(&own)?, None)?;
    println!("registered as {own}");
    loop {
        match registration.accept() {
            Ok(flow) => drop(std::thread::spawn(move || serve(flow))),
            // The caller gave up before it was answered; the registration still stands.
            Err(Error::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
}

fn serve(mut flow: Flow) {
    let caller = flow.info().remote.clone();
    match echo(&mut flow) {
        Err(Error::Closed) | Ok(()) => println!("{caller} closed its flow"),
        Err(error) => println!("the flow of {caller} failed: {error}"),
    }
}

/// Returns every SDU until the flow ends.
fn echo(flow: &mut Flow) -> Result<(), Error> {
    loop {
        let sdu = flow.recv_vec(SDU_BYTES_MAX)?;
        flow.send(&sdu)?;
    }
}

/// A longer SDU is refused with an error, which ends the flow.
const SDU_BYTES_MAX: usize = 1 << 20;
