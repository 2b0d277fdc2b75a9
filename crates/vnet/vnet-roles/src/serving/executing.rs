//! Runs commands in nodes for callers of a VNO. When a caller disconnects, its command is ended.
//!
//! The host starts a command whose output streams, and the VNO fetches the output in portions as
//! fast as the caller reads: `begin`, then `output` repeatedly. Between the host and the caller, at
//! most one portion and a few lines for the caller are buffered.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::response::Response;
use carina_api::output::{Sink, Stream};
use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::report::{ExecLine, ExecReply};
use carina_vnet_web::answers::refusal;
use carina_vnet_web::streamed::{LineSink, streamed};

use crate::identity::Identity;
use crate::inside::below::Below;
use crate::inside::{Answer, NetworkRequest, NodeRequest, WATCH_MS_MAX};

/// Lets a command end when the caller who waits for it has disconnected.
#[derive(Clone)]
struct End {
    below: Below,
    vnps: Vec<String>,
    wanted: Arc<Mutex<Option<NetworkRequest>>>,
}

/// Ends a command when this is dropped, unless the command's result has arrived.
struct Waits(End);

/// Sends a request to the role below. If the caller stops waiting, a command that the request has
/// started is ended.
///
/// # Errors
/// As for [`Below::ask`].
pub(super) async fn ask(
    below: &Below,
    vnp: &str,
    caller: &Identity,
    mut wanted: NetworkRequest,
) -> Result<Answer, ErrorBody> {
    let waits = match &wanted.ask {
        NodeRequest::Exec { .. } => Some(waits_for(below, vnp, &mut wanted)?),
        _ => None,
    };
    let answer = below.ask(caller, vec![vnp.to_owned()], wanted).await;
    if let Some(waits) = waits {
        waits.0.is_not_needed();
    }
    answer
}

/// Runs a command, and streams its output to the caller.
pub(super) async fn stream(
    below: &Below,
    vnp: &str,
    caller: Identity,
    mut wanted: NetworkRequest,
) -> Response {
    let begun = below.place(&caller).and_then(|place| {
        let waits = waits_for(below, vnp, &mut wanted)?;
        Ok((place, waits))
    });
    let (place, waits) = match begun {
        Ok(begun) => begun,
        Err(error) => return refusal(&error),
    };
    let end = waits.0.clone();
    streamed(waits, move |sink, is_gone| {
        let _place = place;
        relay(&end, &wanted, sink, is_gone)
    })
    .await
}

/// Gives a command a random number, by which it can be ended.
fn waits_for(below: &Below, vnp: &str, wanted: &mut NetworkRequest) -> Result<Waits, ErrorBody> {
    let drawn = crate::random::drawn().map_err(|error| {
        let what = format!("drawing the number of a command: {error}");
        ErrorBody::new(ErrorCode::Internal, what)
    })?;
    let node = wanted.ask.node().unwrap_or_default().to_owned();
    if let NodeRequest::Exec { session, .. } = &mut wanted.ask {
        *session = Some(drawn);
    }
    let end = NetworkRequest {
        vnet: wanted.vnet,
        ask: NodeRequest::EndExec {
            node,
            session: drawn,
        },
        who: wanted.who.clone(),
    };
    Ok(Waits(End {
        below: below.clone(),
        vnps: vec![vnp.to_owned()],
        wanted: Arc::new(Mutex::new(Some(end))),
    }))
}

impl End {
    fn is_not_needed(&self) {
        self.take();
    }

    fn take(&self) -> Option<NetworkRequest> {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.take()
    }

    fn ask(&self, of: &NetworkRequest, ask: NodeRequest) -> Result<Answer, ErrorBody> {
        let wanted = NetworkRequest { ask, ..of.clone() };
        self.below.ask_and_wait(&self.vnps, &wanted)
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let Some(wanted) = self.0.take() else { return };
        let End { below, vnps, .. } = self.0.clone();
        // A command counts as one of its caller's requests until it has ended; the request to end
        // it does not count.
        tokio::task::spawn_blocking(move || {
            // A host that does not get this request ends the command at its time limit.
            let _ = below.ask_and_wait(&vnps, &wanted);
        });
    }
}

/// Runs a command, hands its output to `sink` while the command runs, and returns the exit status.
fn relay(
    end: &End,
    wanted: &NetworkRequest,
    sink: &mut LineSink,
    is_gone: &AtomicBool,
) -> Result<i32, ErrorBody> {
    let NodeRequest::Exec {
        node,
        command,
        limit_ms,
        session: Some(session),
    } = &wanted.ask
    else {
        let what = "a command has a number";
        return Err(ErrorBody::new(ErrorCode::Internal, what));
    };
    let begin = NodeRequest::Begin {
        node: node.clone(),
        command: command.clone(),
        limit_ms: *limit_ms,
        session: *session,
    };
    match end.ask(wanted, begin) {
        Ok(_) => {}
        // The VNP, the PIP or the host is of an earlier version.
        Err(error) if error.code == ErrorCode::BadRequest => return whole(end, wanted, sink),
        Err(error) => return Err(error),
    }
    let asks = |since: u64, bytes_max: usize, wait_ms: u64| NodeRequest::Output {
        node: node.clone(),
        session: *session,
        since,
        bytes_max: bytes_max as u64,
        wait_ms,
    };
    let (mut since, kept) = (0, Cell::new(Instant::now()));
    loop {
        let answer = end.ask(wanted, asks(since, PORTION_BYTES, WATCH_MS_MAX))?;
        kept.set(Instant::now());
        let lines = lines_of(answer)?;
        // While the caller reads nothing, these requests keep the command alive at its host.
        let is_over = || {
            if kept.get().elapsed() >= KEEP {
                kept.set(Instant::now());
                if end.ask(wanted, asks(since, 0, 0)).is_err() {
                    return true;
                }
            }
            is_gone.load(Ordering::Acquire)
        };
        let mut count = 0;
        for line in lines {
            let (stream, bytes) = match line {
                ExecLine::Stdout(bytes) => (Stream::Stdout, bytes),
                ExecLine::Stderr(bytes) => (Stream::Stderr, bytes),
                ExecLine::Status(status) => {
                    end.is_not_needed();
                    return Ok(status);
                }
                ExecLine::Error(error) => {
                    end.is_not_needed();
                    return Err(error);
                }
            };
            count += bytes.len() as u64;
            if sink.take(stream, &bytes, &is_over).is_break() {
                return Err(gone());
            }
        }
        since += count;
    }
}

/// The lines of output in an answer.
///
/// # Errors
/// The answer is of another kind, or has more bytes of output than were requested.
fn lines_of(answer: Answer) -> Result<Vec<ExecLine>, ErrorBody> {
    let Answer::Output { lines, .. } = answer else {
        let what = "the provider sent an unexpected answer";
        return Err(ErrorBody::new(ErrorCode::Internal, what));
    };
    let bytes = lines.iter().map(|line| match line {
        ExecLine::Stdout(bytes) | ExecLine::Stderr(bytes) => bytes.len(),
        _ => 0,
    });
    if bytes.sum::<usize>() > PORTION_BYTES {
        let what = "the provider sent more output than was requested";
        return Err(ErrorBody::new(ErrorCode::Internal, what));
    }
    Ok(lines)
}

/// Runs a command through a role or host that does not stream: all output, up to the size of an
/// answer, arrives at the end.
fn whole(end: &End, wanted: &NetworkRequest, sink: &mut LineSink) -> Result<i32, ErrorBody> {
    let answer = end.ask(wanted, wanted.ask.clone())?;
    end.is_not_needed();
    let Answer::Ran(reply) = answer else {
        let what = "the provider sent an unexpected answer";
        return Err(ErrorBody::new(ErrorCode::Internal, what));
    };
    for (stream, bytes) in [
        (Stream::Stdout, &reply.stdout),
        (Stream::Stderr, &reply.stderr),
    ] {
        for piece in bytes.chunks(PIECE_BYTES) {
            if let ControlFlow::Break(()) = sink.take(stream, piece, &|| false) {
                return Err(gone());
            }
        }
    }
    match reply {
        ExecReply {
            dropped: 0, status, ..
        } => Ok(status),
        ExecReply { dropped, .. } => {
            let what = format!(
                "{dropped} more bytes of output are missing: the provider runs an earlier \
                 version, which sends {} MiB at most",
                ExecReply::STDOUT_MAX >> 20
            );
            Err(ErrorBody::new(ErrorCode::LimitReached, what))
        }
    }
}

fn gone() -> ErrorBody {
    ErrorBody::new(ErrorCode::Conflict, "the caller closed the connection")
}

/// Largest number of bytes of output that one request fetches.
const PORTION_BYTES: usize = 256 << 10;
/// Largest number of bytes of output in one line for the caller.
const PIECE_BYTES: usize = 64 << 10;
/// Interval of the requests that keep a command alive while its caller reads nothing.
const KEEP: Duration = Duration::from_secs(10);
