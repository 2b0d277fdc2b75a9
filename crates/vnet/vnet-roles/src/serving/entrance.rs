//! Accepts callers' connections, each with the identity that its certificate proves.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::listening::{Incoming, Listening};
use super::sources::Sources;
use crate::identity::Identity;
use crate::keys::{Tls, party_of};
use crate::log::Log;
use crate::wire::TaskWire;

/// The calling party, as an argument of request handlers.
#[derive(Clone, Debug)]
pub struct Caller(pub Identity);

/// A listener that returns connections with completed handshakes. Handshakes run concurrently, so
/// that one that stalls does not block others.
#[derive(Debug)]
pub struct Entrance {
    place: String,
    admitted: mpsc::Receiver<(Admitted, Caller)>,
}

/// A connection after the handshake, with the identity of its caller. It counts as one of the
/// caller's connections until it is dropped.
#[derive(Debug)]
pub struct Admitted {
    stream: TlsStream<TaskWire>,
    /// Fires when the caller's certificate is no longer valid.
    ends: oneshot::Receiver<()>,
    _place: Place,
}

/// The open connections, by number.
#[derive(Debug, Default)]
struct Places(Mutex<(u64, BTreeMap<u64, Guest>)>);

/// The caller of an open connection.
#[derive(Debug)]
struct Guest {
    caller: Identity,
    certificate: CertificateDer<'static>,
    /// Dropping this sender ends the connection.
    _end: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    number: u64,
}

impl Entrance {
    /// Begins to accept connections and to do their handshakes.
    ///
    /// # Errors
    /// The socket is unusable.
    pub fn open(listening: Listening, tls: &Tls, log: Log) -> io::Result<Entrance> {
        let place = listening.place();
        let incoming = Incoming::start(listening)?;
        let (admit, admitted) = mpsc::channel(1);
        let places = Arc::new(Places::default());
        tokio::spawn(look_after(Arc::clone(&places), tls.clone(), log.clone()));
        tokio::spawn(accept(incoming, tls.clone(), admit, places, log));
        Ok(Entrance { place, admitted })
    }
}

async fn accept(
    mut incoming: Incoming,
    tls: Tls,
    admit: mpsc::Sender<(Admitted, Caller)>,
    places: Arc<Places>,
    log: Log,
) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    let sources = Sources::default();
    while !admit.is_closed() {
        // As many handshakes at a time as there are permits; further connections wait in the
        // system's queue.
        let Ok(permit) = Arc::clone(&handshakes).acquire_owned().await else {
            return;
        };
        let (stream, from) = match incoming.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // For instance no free file descriptors, a caller that has gone, or a node that has
                // gone.
                log.say(format_args!("accepting a connection: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(pending) = sources.take(&from) else {
            log.say(format_args!(
                "{from} is rejected: it opens too many connections at a time"
            ));
            continue;
        };
        let (tls, admit) = (tls.clone(), admit.clone());
        let (places, log) = (Arc::clone(&places), log.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let handshake = async {
                // Handshakes of one source wait for each other, and do not delay other sources.
                let _turn = pending.common.0.acquire().await;
                TlsAcceptor::from(tls.server()).accept(stream).await
            };
            let shaken = tokio::time::timeout(HANDSHAKE, handshake).await;
            drop(pending);
            match shaken {
                Ok(Ok(stream)) => match admitted(stream, &tls, &places) {
                    // If the server has ended, the connection is dropped.
                    Ok(new) => drop(admit.send(new).await),
                    Err(what) => log.say(format_args!("{from} is rejected: {what}")),
                },
                Ok(Err(error)) => log.say(format_args!("{from} is rejected: {error}")),
                Err(_) => log.say(format_args!(
                    "{from} is rejected: it does not complete the TLS handshake"
                )),
            }
        });
    }
}

/// Ends connections whose callers' certificates are revoked or have expired.
async fn look_after(places: Arc<Places>, tls: Tls, log: Log) {
    let (mut seen, mut rounds) = (0, 0_u32);
    // The loop ends with the runtime.
    loop {
        tokio::time::sleep(LOOK).await;
        rounds = rounds.wrapping_add(1);
        let lists = tls.reload_if_changed().unwrap_or_else(|error| {
            log.say(format_args!("{error}; the previous list stays in force"));
            seen
        });
        if lists != seen || rounds.is_multiple_of(EXPIRY_ROUNDS) {
            seen = lists;
            for caller in places.end_bad(&tls) {
                log.say(format_args!(
                    "{caller} is disconnected: its certificate is no longer valid"
                ));
            }
        }
    }
}

fn admitted(
    stream: TlsStream<TaskWire>,
    tls: &Tls,
    places: &Arc<Places>,
) -> Result<(Admitted, Caller), &'static str> {
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    let certificate = certificate.ok_or("it presented no certificate")?;
    if !tls.is_good(certificate) {
        return Err("its certificate is no longer valid");
    }
    let caller = party_of(certificate).ok_or("its certificate names no party")?;
    let taken = places.take(&caller, certificate.clone().into_owned());
    let (place, ends) = taken.ok_or("it has too many connections")?;
    let new = Admitted {
        stream,
        ends,
        _place: place,
    };
    Ok((new, Caller(caller)))
}

impl Places {
    fn take(
        self: &Arc<Places>,
        caller: &Identity,
        certificate: CertificateDer<'static>,
    ) -> Option<(Place, oneshot::Receiver<()>)> {
        let mut all = self.lock();
        let (next, guests) = &mut *all;
        let count = guests
            .values()
            .filter(|guest| guest.caller == *caller)
            .count();
        if count >= CONNECTIONS_MAX {
            return None;
        }
        let (end, ends) = oneshot::channel();
        let number = *next;
        *next += 1;
        let guest = Guest {
            caller: caller.clone(),
            certificate,
            _end: end,
        };
        guests.insert(number, guest);
        let places = Arc::clone(self);
        Some((Place { places, number }, ends))
    }

    /// Ends connections whose certificates are not valid any more; returns their callers.
    fn end_bad(&self, tls: &Tls) -> Vec<Identity> {
        let mut all = self.lock();
        let bad = all
            .1
            .extract_if(.., |_, guest| !tls.is_good(&guest.certificate));
        bad.map(|(_, guest)| guest.caller).collect()
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Guest>)> {
        // Every critical section leaves the value consistent, even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().1.remove(&self.number);
    }
}

impl Listener for Entrance {
    type Io = Admitted;
    type Addr = Caller;

    async fn accept(&mut self) -> (Admitted, Caller) {
        match self.admitted.recv().await {
            Some(admitted) => admitted,
            // The accepting task ends only with the runtime.
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
        if std::pin::Pin::new(&mut self.ends).poll(context).is_ready() {
            let what = "the caller's certificate is no longer valid";
            return std::task::Poll::Ready(Err(io::Error::other(what)));
        }
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

/// Largest number of connections whose handshakes are not complete.
const HANDSHAKES_MAX: usize = 1024;
/// Longest time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Largest number of connections of one caller.
const CONNECTIONS_MAX: usize = 64;
/// Time between two checks of the revocation list.
const LOOK: Duration = Duration::from_secs(1);
/// Number of checks of the revocation list between two checks whether certificates have expired.
const EXPIRY_ROUNDS: u32 = 30;
/// Time to wait after an error of the system.
const PAUSE: Duration = Duration::from_millis(100);
