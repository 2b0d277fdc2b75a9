//! An echo server: registers a name and sends every SDU back to its sender.
//!
//! ```text
//! cargo run -p carina-client --example server -- echo.example
//! ```
//!
//! A node must run; `CARINA_RUN` names its run directory. The server has one thread for each flow
//! and uses calls that wait. `nonblocking.rs` serves all flows from one thread.
#![allow(clippy::print_stdout, reason = "the example talks to a person")]

use carina_client::{Error, Flow, Node, name};

fn main() -> Result<(), Error> {
    let own = std::env::args().nth(1).unwrap_or("echo.example".to_owned());
    let node = Node::connect()?;
    // `None`: registers in every DIF of this system where the access rules allow it.
    let mut registration = node.register(&name(&own)?, None)?;
    println!("registered as {own}");
    loop {
        match registration.accept() {
            Ok(flow) => drop(std::thread::spawn(move || serve(flow))),
            // The caller gave up before this server accepted. The registration is still valid.
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

/// Sends every SDU back until the flow ends.
fn echo(flow: &mut Flow) -> Result<(), Error> {
    loop {
        let sdu = flow.recv_vec(SDU_BYTES_MAX)?;
        flow.send(&sdu)?;
    }
}

/// Longest SDU accepted, in bytes. `recv_vec` fails on a longer one, which ends the flow.
const SDU_BYTES_MAX: usize = 1 << 20;
