//! The node of this system.

use std::path::PathBuf;

use carina_client::{AppName, DifName, Error, FlowSpec};

use crate::byte_stream::ByteStream;
use crate::listener::Listener;
use crate::messages::Messages;
use crate::watched::Watched;

/// Access to the node of this system. It holds no connection: each registration and each allocation
/// opens its own.
#[derive(Clone, Debug)]
pub struct Node {
    client: carina_client::Node,
}

impl From<carina_client::Node> for Node {
    fn from(client: carina_client::Node) -> Node {
        Node { client }
    }
}

impl Node {
    /// Finds the node of this system; see [`carina_client::Node::connect`].
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`] when nothing listens there.
    pub async fn connect() -> Result<Node, Error> {
        blocking(carina_client::Node::connect).await.map(Node::from)
    }

    /// Finds the node that listens on `socket`.
    ///
    /// # Errors
    ///
    /// [`Error::NoNode`] when nothing listens there.
    pub async fn connect_to(socket: impl Into<PathBuf>) -> Result<Node, Error> {
        let socket = socket.into();
        let client = blocking(move || carina_client::Node::connect_to(socket)).await?;
        Ok(Node { client })
    }

    /// Allocates a flow of SDUs from `local`, which need not be registered, to `remote`. It uses
    /// `dif`, or the first DIF that knows `remote`. Waits for the answer of the remote application.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when `remote` is not registered, no DIF meets `spec`, an access rule
    /// forbids the flow, or the remote application refuses it; [`Error::NodeGone`] when the node
    /// ends.
    pub async fn allocate(
        &self,
        local: &AppName,
        remote: &AppName,
        dif: Option<&DifName>,
        spec: &FlowSpec,
    ) -> Result<Messages, Error> {
        let (local, remote, dif) = (local.clone(), remote.clone(), dif.cloned());
        let (client, spec) = (self.client.clone(), *spec);
        let start = move || client.start_allocate(&local, &remote, dif.as_ref(), &spec);
        let mut allocation = blocking(start).await?;
        let watched = Watched::new(&allocation)?;
        loop {
            if let Some(flow) = allocation.try_finish()? {
                return Messages::new(flow);
            }
            watched.event().await?;
        }
    }

    /// Allocates a flow to `remote` that is a reliable byte stream. Otherwise like
    /// [`Self::allocate`].
    ///
    /// # Errors
    ///
    /// As for [`Self::allocate`].
    pub async fn allocate_stream(
        &self,
        local: &AppName,
        remote: &AppName,
        dif: Option<&DifName>,
    ) -> Result<ByteStream, Error> {
        let (local, remote, dif) = (local.clone(), remote.clone(), dif.cloned());
        let client = self.client.clone();
        let start = move || {
            let spec = FlowSpec::reliable();
            client.start_allocate_stream(&local, &remote, dif.as_ref(), &spec, None)
        };
        let mut allocation = blocking(start).await?;
        let watched = Watched::new(&allocation)?;
        loop {
            if let Some(flow) = allocation.try_finish()? {
                return ByteStream::new(flow.socket, flow.info);
            }
            watched.event().await?;
        }
    }

    /// Registers `name` in `dif`; `None` for all DIFs of this system, now and later. The flows to
    /// it are flows of SDUs.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the name is taken, the DIF is unknown, the DIF's directory is full,
    /// or an access rule forbids the registration; [`Error::NodeGone`] when the node ends.
    pub async fn listen(
        &self,
        name: &AppName,
        dif: Option<&DifName>,
    ) -> Result<Listener<Messages>, Error> {
        self.register(name, dif).await.and_then(Listener::new)
    }

    /// Registers `name` like [`Self::listen`]; the flows to it are byte streams.
    ///
    /// # Errors
    ///
    /// As for [`Self::listen`].
    pub async fn listen_streams(
        &self,
        name: &AppName,
        dif: Option<&DifName>,
    ) -> Result<Listener<ByteStream>, Error> {
        self.register(name, dif).await.and_then(Listener::new)
    }

    async fn register(
        &self,
        name: &AppName,
        dif: Option<&DifName>,
    ) -> Result<carina_client::Registration, Error> {
        let (client, name, dif) = (self.client.clone(), name.clone(), dif.cloned());
        let mut pending = blocking(move || client.start_register(&name, dif.as_ref())).await?;
        let watched = Watched::new(pending.poll_fd().ok_or(Error::NodeGone)?)?;
        loop {
            if let Some(registration) = pending.try_finish()? {
                return Ok(registration);
            }
            watched.event().await?;
        }
    }
}

/// Runs a call that waits while the node has too many connections that it has not accepted yet. If
/// the future is dropped, the result of the call is dropped when it ends.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let joined = tokio::task::spawn_blocking(call).await;
    joined.unwrap_or_else(|error| {
        Err(Error::System {
            action: "cannot connect to the node in a thread of tokio",
            source: error.into(),
        })
    })
}
