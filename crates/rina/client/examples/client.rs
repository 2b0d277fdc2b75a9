//! A client of the echo server: allocates a flow and sends each argument as one SDU.
//!
//! ```text
//! cargo run -p carina-client --example client -- echo.example hello "two words"
//! ```
//!
//! It prints every answer. It requests a reliable flow that keeps the order of SDUs.
#![allow(clippy::print_stdout, reason = "the example talks to a person")]

use carina_client::{Error, FlowSpec, Node, name};

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let remote = arguments.next().unwrap_or("echo.example".to_owned());
    let node = Node::connect()?;
    // The local name need not be registered, because no application requests a flow to it.
    let local = name("client.example")?;
    let mut flow = node.allocate(&local, &name(&remote)?, None, &FlowSpec::reliable())?;
    println!("port {} in DIF {}", flow.info().port, flow.info().dif);
    for text in arguments {
        flow.send(text.as_bytes())?;
        let mut answer = [0; 4096];
        // One `send` of the server is one `recv` here: a flow keeps the boundaries of SDUs.
        let length = flow.recv(&mut answer)?;
        println!("{}", String::from_utf8_lossy(&answer[..length]));
    }
    // The server receives everything that was sent, and then learns that the flow is closed.
    flow.close();
    Ok(())
}
