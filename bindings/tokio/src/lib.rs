//! Flows of RINA networks for programs that use tokio: connections between applications that are
//! found by name.
//!
//! | type | is |
//! |---|---|
//! | [`Node`] | the node of this system: allocates flows and registers names |
//! | [`ByteStream`] | a flow as `AsyncRead` and `AsyncWrite`, over a socket of the kernel |
//! | [`Messages`] | a flow of SDUs as `Stream` and `Sink`, over rings in shared memory |
//! | [`Listener`] | a registered name; its flows are a `Stream` of one of these |
//!
//! ```no_run
//! # async fn example() -> Result<(), carina_tokio::Error> {
//! use carina_tokio::{FlowSpec, Node, name};
//!
//! let node = Node::connect().await?;
//! let (client, echo) = (name("client")?, name("echo")?);
//! let mut flow = node.allocate(&client, &echo, None, &FlowSpec::reliable()).await?;
//! flow.send("hello").await?;
//! assert_eq!(flow.recv().await?.unwrap(), "hello");
//! # Ok(())
//! # }
//! ```
//!
//! A task that waits for a flow waits for its descriptor in tokio's reactor; no thread waits. The
//! runtime needs its I/O driver (`enable_io`).
//!
//! # Errors
//!
//! Functions return the errors of `carina-client`. When the node is killed, a [`Listener`] and a
//! flow over rings return [`Error::NodeGone`]. When the peer is killed, a flow over rings returns
//! [`Error::FlowFailed`]. A [`ByteStream`] then reads the end, and writing fails with `BrokenPipe`,
//! as with TCP; a byte stream between two programs of one system survives the node.
//!
//! # Cancellation
//!
//! A future may be dropped at any time. No flow, SDU or byte is lost: what arrives is returned by
//! the next call. A dropped allocation is withdrawn, and its flow, if there is one by then, ends.
//! A dropped [`MessageSender::send`] has not sent its SDU, except one of more than
//! [`MessageSender::piece_max`] bytes, which the next call completes.

#![deny(unsafe_code)]

mod byte_stream;
mod listener;
mod messages;
mod node;
mod receiver;
mod sender;
#[cfg(feature = "tonic")]
mod tonic;
mod watched;

pub use carina_client::{AppName, DifName, Error, ErrorBody, FlowInfo, FlowSpec, name};

pub use byte_stream::ByteStream;
pub use listener::{Accepted, Listener};
pub use messages::Messages;
pub use node::Node;
pub use receiver::MessageReceiver;
pub use sender::MessageSender;
