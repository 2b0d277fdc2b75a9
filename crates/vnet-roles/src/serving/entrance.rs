//! Connections of callers, each with the identity that its certificate proves.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::listening::{Incoming, Listening};
use crate::identity::Identity;
use crate::keys::{Tls, party_of};
use crate::log::Log;
use crate::wire::TaskWire;

/// Who calls, as an argument of requests.
#[derive(Clone, Debug)]
pub struct Caller(pub Identity);

/// Where connections come from that have been accepted. Handshakes go on beside one another: one
/// that does not end keeps no other out.
#[derive(Debug)]
pub struct Entrance {
    place: String,
    admitted: mpsc::Receiver<(Admitted, Caller)>,
}

/// A connection whose caller is known, and its place among those of the caller.
#[derive(Debug)]
pub struct Admitted {
    stream: TlsStream<TaskWire>,
    _place: Place,
}

/// How many connections each caller has.
#[derive(Debug, Default)]
struct Places(Mutex<BTreeMap<Identity, usize>>);

#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    caller: Identity,
}

impl Entrance {
    /// Begins to accept connections.
    ///
    /// # Errors
    /// The socket is unusable.
    pub fn open(listening: Listening, tls: &Tls, log: Log) -> io::Result<Entrance> {
        let place = listening.place();
        let incoming = Incoming::start(listening)?;
        let (admit, admitted) = mpsc::channel(1);
        let acceptor = TlsAcceptor::from(tls.server());
        tokio::spawn(accept(incoming, acceptor, admit, log));
        Ok(Entrance { place, admitted })
    }
}

async fn accept(
    mut incoming: Incoming,
    acceptor: TlsAcceptor,
    admit: mpsc::Sender<(Admitted, Caller)>,
    log: Log,
) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    let places = Arc::new(Places::default());
    while !admit.is_closed() {
        // As many at a time as there are permits; the others wait in the system's queue.
        let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else {
            return;
        };
        let (stream, from) = match incoming.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // No file descriptors, a caller that has gone, a node that has gone.
                log.say(format_args!("accepting a connection: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (acceptor, admit) = (acceptor.clone(), admit.clone());
        let (places, log) = (Arc::clone(&places), log.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let shaken = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
            match shaken {
                Ok(Ok(stream)) => match admitted(stream, &places) {
                    // If the server has ended, nothing takes it.
                    Ok(new) => drop(admit.send(new).await),
                    Err(what) => log.say(format_args!("{from} is sent away: {what}")),
                },
                Ok(Err(error)) => log.say(format_args!("{from} is sent away: {error}")),
                Err(_) => log.say(format_args!("{from} does not finish its handshake")),
            }
        });
    }
}

fn admitted(
    stream: TlsStream<TaskWire>,
    places: &Arc<Places>,
) -> Result<(Admitted, Caller), &'static str> {
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    let caller = certificate.and_then(party_of);
    let caller = caller.ok_or("its certificate names no party")?;
    let place = places.take(&caller).ok_or("it has too many connections")?;
    let new = Admitted {
        stream,
        _place: place,
    };
    Ok((new, Caller(caller)))
}

impl Places {
    fn take(self: &Arc<Places>, caller: &Identity) -> Option<Place> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(caller.clone()).or_default();
        if *count >= CONNECTIONS_MAX {
            return None;
        }
        *count += 1;
        Some(Place {
            places: Arc::clone(self),
            caller: caller.clone(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let all = &self.places.0;
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.caller);
            }
        }
    }
}

impl Listener for Entrance {
    type Io = Admitted;
    type Addr = Caller;

    async fn accept(&mut self) -> (Admitted, Caller) {
        match self.admitted.recv().await {
            Some(admitted) => admitted,
            // The task that accepts ends with the runtime only.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Caller> {
        let what = format!("{} has no caller", self.place);
        Err(io::Error::other(what))
    }
}

impl Connected<IncomingStream<'_, Entrance>> for Caller {
    fn connect_info(stream: IncomingStream<'_, Entrance>) -> Caller {
        stream.remote_addr().clone()
    }
}

impl AsyncRead for Admitted {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Admitted {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Handshakes at a time.
const HANDSHAKES_MAX: usize = 64;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections of one caller at a time.
const CONNECTIONS_MAX: usize = 16;
/// After an error of the system.
const PAUSE: Duration = Duration::from_millis(100);
