//! Streams the output of a command to an HTTP client, line by line (`report::ExecLine`), as fast as
//! the client reads. While a few lines wait for the client, the command has to wait. When the
//! client closes the connection, the command ends.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use carina_api::control::LINES;
use carina_api::output::{Sink, Stream};
use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::report::ExecLine;
use http_body::Frame;
use tokio::sync::mpsc::{self, Receiver, Sender, error::TrySendError};

use crate::answers::refusal;

/// Tells the thread of a command that its client no longer reads the answer. The answer owns this
/// value and drops it when the answer has ended or the client has disconnected.
#[derive(Debug, Default)]
pub struct DisconnectFlag {
    /// Set when this value is dropped.
    pub is_gone: Arc<AtomicBool>,
}

impl Drop for DisconnectFlag {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::Release);
    }
}

/// Writes the output of a command into the streamed answer to a client.
#[derive(Debug)]
pub struct LineSink {
    to: Sender<Sent>,
}

#[derive(Debug)]
enum Sent {
    Line(Vec<u8>),
    /// Why the command did not begin.
    Refusal(ErrorBody),
}

/// The body of an answer: lines that are produced while the client reads.
struct Lines<G> {
    first: Option<Vec<u8>>,
    more: Receiver<Sent>,
    _disconnect: (DisconnectFlag, G),
}

/// Runs `work`, which may block, on a thread of its own, and streams the output that it writes into
/// its [`LineSink`], followed by the exit status that it returns. If `work` fails before it writes
/// output, the answer is a refusal.
///
/// When the client has gone or the answer has ended, the flag that `work` gets is set, and `guard`
/// is dropped.
pub async fn streamed<G: Send + Unpin + 'static>(
    guard: G,
    work: impl FnOnce(&mut LineSink, &AtomicBool) -> Result<i32, ErrorBody> + Send + 'static,
) -> Response {
    let (to, mut more) = mpsc::channel(QUEUE_LINES);
    let disconnect = (DisconnectFlag::default(), guard);
    let is_gone = Arc::clone(&disconnect.0.is_gone);
    tokio::task::spawn_blocking(move || {
        let mut sink = LineSink { to };
        match work(&mut sink, &is_gone) {
            Ok(status) => sink.finish(Sent::line(&ExecLine::Status(status)), &is_gone),
            Err(error) => sink.finish(Sent::Refusal(error), &is_gone),
        }
    });
    match more.recv().await {
        Some(Sent::Line(first)) => {
            let lines = Lines {
                first: Some(first),
                more,
                _disconnect: disconnect,
            };
            ([(header::CONTENT_TYPE, LINES)], Body::new(lines)).into_response()
        }
        Some(Sent::Refusal(error)) => refusal(&error),
        None => {
            let what = "the command failed; the log of the serving process has the reason";
            refusal(&ErrorBody::new(ErrorCode::Internal, what))
        }
    }
}

impl LineSink {
    /// Sends a line, and waits while the queue is full. Breaks if the client has gone, or if the
    /// queue is full and `is_over` returns true.
    fn send(&self, mut sent: Sent, is_over: &dyn Fn() -> bool) -> ControlFlow<()> {
        loop {
            sent = match self.to.try_send(sent) {
                Ok(()) => return ControlFlow::Continue(()),
                Err(TrySendError::Closed(_)) => return ControlFlow::Break(()),
                Err(TrySendError::Full(_)) if is_over() => return ControlFlow::Break(()),
                Err(TrySendError::Full(sent)) => sent,
            };
            std::thread::sleep(ROOM);
        }
    }

    /// Sends the last line, unless the client has disconnected.
    fn finish(&self, last: Sent, is_gone: &AtomicBool) {
        // A client that has disconnected needs no last line.
        let _ = self.send(last, &|| is_gone.load(Ordering::Acquire));
    }
}

impl Sink for LineSink {
    fn take(
        &mut self,
        stream: Stream,
        piece: &[u8],
        is_over: &dyn Fn() -> bool,
    ) -> ControlFlow<()> {
        self.send(Sent::line(&ExecLine::piece(stream, piece)), is_over)
    }
}

impl Sent {
    fn line(line: &ExecLine) -> Sent {
        let mut text = serde_json::to_vec(line).expect("a line has only plain fields");
        text.push(b'\n');
        Sent::Line(text)
    }
}

impl<G: Unpin> http_body::Body for Lines<G> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let framed = |line: Vec<u8>| Some(Ok(Frame::data(Bytes::from(line))));
        if let Some(first) = self.first.take() {
            return Poll::Ready(framed(first));
        }
        self.more.poll_recv(context).map(|sent| match sent? {
            Sent::Line(line) => framed(line),
            Sent::Refusal(error) => match Sent::line(&ExecLine::Error(error)) {
                Sent::Line(line) => framed(line),
                Sent::Refusal(_) => None,
            },
        })
    }
}

/// Largest number of lines that wait for a client, each of at most 64 KiB of output.
const QUEUE_LINES: usize = 8;
/// Time between two checks whether there is room for a line.
const ROOM: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use carina_api::output::PIECE_BYTES;

    use super::*;

    /// Writes without end until its reader has disconnected, and counts the bytes that it has
    /// written.
    fn endless(
        sent: Arc<Mutex<usize>>,
    ) -> impl FnOnce(&mut LineSink, &AtomicBool) -> Result<i32, ErrorBody> {
        move |sink, is_gone| {
            let is_over = || is_gone.load(Ordering::Acquire);
            let piece = vec![0; PIECE_BYTES];
            while sink.take(Stream::Stdout, &piece, &is_over).is_continue() {
                *sent.lock().unwrap() += piece.len();
            }
            Err(ErrorBody::new(ErrorCode::Conflict, "it has ended"))
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        runtime.block_on(test);
    }

    #[test]
    fn client_that_takes_nothing_holds_the_command_at_a_few_pieces() {
        run(async {
            let sent = Arc::new(Mutex::new(0));
            let response = streamed((), endless(Arc::clone(&sent))).await;
            assert_eq!(response.headers()[header::CONTENT_TYPE], LINES);
            let bytes_max = QUEUE_LINES * PIECE_BYTES;
            // It fills what it may, and the first line that the answer has.
            while *sent.lock().unwrap() < bytes_max {
                tokio::time::sleep(ROOM).await;
            }
            tokio::time::sleep(20 * ROOM).await;
            assert!(*sent.lock().unwrap() <= bytes_max + PIECE_BYTES);
            // The client disconnects: the work ends, and returns its counter.
            drop(response);
            while Arc::strong_count(&sent) > 1 {
                tokio::time::sleep(ROOM).await;
            }
        });
    }

    #[test]
    fn work_that_fails_at_once_is_refused_and_later_it_is_a_line() {
        run(async {
            let error = || ErrorBody::new(ErrorCode::NotFound, "no such node");
            let refused = streamed((), move |_, _| Err(error())).await;
            assert_eq!(refused.status(), 404);
            let response = streamed((), move |sink, _| {
                let _ = sink.take(Stream::Stderr, b"f", &|| false);
                Err(error())
            })
            .await;
            let body = axum::body::to_bytes(response.into_body(), 1000)
                .await
                .unwrap();
            let lines: Vec<ExecLine> = { &body[..] }
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .map(|line| serde_json::from_slice(line).unwrap())
                .collect();
            assert_eq!(
                lines,
                [
                    ExecLine::piece(Stream::Stderr, b"f"),
                    ExecLine::Error(error())
                ]
            );
        });
    }
}
