//! An echo server: registers a name and sends every SDU back to its sender.
//!
//! ```text
//! cargo run --example server -- echo.example
//! ```
//!
//! A node must run; `CARINA_RUN` names its run directory. All flows are served by tasks of one
//! thread.
#![allow(clippy::print_stdout, reason = "the example talks to a person")]

use carina_tokio::{Error, Messages, Node, name};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let own = std::env::args().nth(1).unwrap_or("echo.example".to_owned());
    let node = Node::connect().await?;
    // `None`: registers in every DIF of this system where the access rules allow it.
    let mut listener = node.listen(&name(&own)?, None).await?;
    println!("registered as {own}");
    loop {
        let flow = listener.accept().await?;
        tokio::spawn(serve(flow));
    }
}

/// Sends every SDU back until the flow ends.
async fn serve(mut flow: Messages) {
    let caller = flow.info().remote.clone();
    match echo(&mut flow).await {
        Ok(()) => println!("{caller} closed its flow"),
        Err(error) => println!("the flow of {caller} failed: {error}"),
    }
}

async fn echo(flow: &mut Messages) -> Result<(), Error> {
    while let Some(sdu) = flow.recv().await? {
        flow.send(sdu).await?;
    }
    Ok(())
}
