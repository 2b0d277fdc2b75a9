//! The control channel of a measurement: messages in JSON over a flow.

use std::time::Duration;

use carina_client::{AppName, DifName, Error, Flow, FlowSpec, Node};

use super::job::Message;
use crate::failure::{Attempt, Failure, failed};
use crate::reach::{self, Wanted};

/// The largest control message in bytes.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// One end of a control channel.
#[derive(Debug)]
pub struct Control {
    flow: Flow,
}

impl Control {
    /// Speaks over `flow`.
    pub fn new(flow: Flow) -> Self {
        Self { flow }
    }

    /// Says something to the other side.
    ///
    /// # Errors
    /// The other side has gone.
    pub fn say(&mut self, message: &Message) -> Result<(), Failure> {
        let text = serde_json::to_vec(message).attempt("writing a control message")?;
        self.flow.send(&text).attempt("sending a control message")
    }

    /// Waits up to `limit` for what the other side says; `None` when it has closed the channel.
    ///
    /// # Errors
    /// Silence for longer than `limit`, or a message that makes no sense.
    pub fn hear(&mut self, limit: Duration) -> Result<Option<Message>, Failure> {
        let heard = self.hear_within(limit)?;
        heard.ok_or_else(|| failed(format!("the other side said nothing for {limit:?}")))
    }

    /// As [`Control::hear`], where silence is no error: `None`.
    ///
    /// # Errors
    /// A message that makes no sense.
    pub fn hear_within(&mut self, limit: Duration) -> Result<Option<Option<Message>>, Failure> {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        match self.flow.recv_timeout(&mut buffer, limit) {
            Ok(Some(len)) => {
                let message = serde_json::from_slice(&buffer[..len]);
                message
                    .attempt("reading a control message")
                    .map(|message| Some(Some(message)))
            }
            Ok(None) => Ok(None),
            Err(Error::Closed) => Ok(Some(None)),
            Err(error) => Err(error).attempt("receiving a control message"),
        }
    }

    /// The flow, when it turns out to carry SDUs and not messages.
    pub fn into_flow(self) -> Flow {
        self.flow
    }
}

/// How a measuring application reaches its node and names itself and its peer.
#[derive(Debug, Clone)]
pub struct Route {
    /// The way to the node.
    pub node: Node,
    /// The name under which the client asks.
    pub local: AppName,
    /// The name of the server.
    pub remote: AppName,
    /// The DIF; `None` for the first that knows the name.
    pub dif: Option<DifName>,
    /// What is asked of the flows.
    pub spec: FlowSpec,
    /// How long to wait for the server's name to become known.
    pub patience: Duration,
}

impl Route {
    /// Allocates a flow to the server.
    ///
    /// # Errors
    /// The node refuses.
    pub fn allocate(&self) -> Result<Flow, Failure> {
        let wanted = Wanted {
            local: &self.local,
            remote: &self.remote,
            dif: self.dif.as_ref(),
            spec: &self.spec,
        };
        reach::allocate(&self.node, wanted, self.patience)
    }
}
