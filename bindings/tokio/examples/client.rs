//! A client of the echo server: allocates a flow and sends each argument as one SDU.
//!
//! ```text
//! cargo run --example client -- echo.example hello "two words"
//! ```
#![allow(clippy::print_stdout, reason = "the example talks to a person")]

use carina_tokio::{Error, FlowSpec, Node, name};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let remote = arguments.next().unwrap_or("echo.example".to_owned());
    let node = Node::connect().await?;
    let (local, remote) = (name("client.example")?, name(&remote)?);
    let mut flow = node
        .allocate(&local, &remote, None, &FlowSpec::reliable())
        .await?;
    println!("port {} in DIF {}", flow.info().port, flow.info().dif);
    for text in arguments {
        flow.send(text).await?;
        // One `send` of the server is one `recv` here: a flow keeps the boundaries of SDUs.
        let Some(answer) = flow.recv().await? else {
            return Err(Error::Closed);
        };
        println!("{}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}
