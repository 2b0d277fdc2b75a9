//! Commands in nodes whose output remote callers fetch in portions. A thread runs each command, and
//! keeps only the output that was not fetched yet. When it keeps too much, the command has to wait.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_api::ErrorBody;
use carina_api::output::{Sink, Stream};
use carina_vnet::report::ExecLine;
use carina_vnet_host::{Agent, CommandLimits, Error as HostError};
use carina_vnet_roles::inside::tenants::{Place, Places};
use carina_vnet_roles::inside::{Answer, WATCH_MS_MAX};

use crate::error::Error;
use crate::executions::{Execution, Key};

/// All commands whose output is fetched in portions.
#[derive(Debug)]
pub(super) struct Streams {
    all: Arc<Mutex<BTreeMap<Key, Arc<Output>>>>,
    places: Places,
}

/// The output of a command, and how the command ended.
#[derive(Debug)]
struct Output {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Position in the output of the first byte in `waiting`: the caller has received all bytes
    /// before it.
    first: u64,
    /// Pieces of the output that the caller has not received yet, in order.
    waiting: VecDeque<(Stream, Vec<u8>)>,
    /// Number of bytes in `waiting`.
    bytes: usize,
    /// The last line of the stream; `None` while the command runs.
    end: Option<ExecLine>,
    /// Whether the caller has fetched `end`.
    is_fetched: bool,
    /// Whether the agent is ending, so that no caller will fetch more.
    is_given_up: bool,
    used_at: Instant,
}

/// A command in a node that is about to run, with its time limit.
pub(super) struct CommandStart {
    pub(super) execution: Execution,
    pub(super) key: Key,
    pub(super) command: String,
    pub(super) limit: Duration,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams {
            all: Arc::default(),
            places: Places::new("commands", COMMANDS_MAX),
        }
    }
}

impl Streams {
    /// Starts a thread that runs a command, and returns at once. `safe` converts an error to the
    /// text that operators may see.
    ///
    /// # Errors
    /// Too many commands run, or the system cannot start a thread.
    pub(super) fn begin(
        &self,
        agent: &Arc<Agent>,
        start: CommandStart,
        safe: impl FnOnce(HostError) -> ErrorBody + Send + 'static,
    ) -> Result<(), Error> {
        let agent = Arc::clone(agent);
        let (who, name, node, _) = &start.key;
        let place = self.places.take(who)?;
        let (name, node) = (name.clone(), node.clone());
        let (command, limit) = (start.command, start.limit);
        let work = move |output: &Output, execution: &Execution| {
            let until = CommandLimits {
                limit,
                is_cancelled: &execution.is_ended,
            };
            let ran = agent.stream(&name, (&node, &command), until, &mut { output });
            ran.map_or_else(|error| ExecLine::Error(safe(error)), ExecLine::Status)
        };
        self.start(start.key, (start.execution, place), work)
    }

    fn start(
        &self,
        key: Key,
        (execution, place): (Execution, Place),
        work: impl FnOnce(&Output, &Execution) -> ExecLine + Send + 'static,
    ) -> Result<(), Error> {
        let output = Arc::new(Output::new());
        let (all, ran, own_key) = (Arc::clone(&self.all), Arc::clone(&output), key.clone());
        lock(&self.all).insert(key.clone(), output);
        let thread = std::thread::Builder::new().name("command".to_owned());
        let started = thread.spawn(move || {
            ran.run(&execution, |output| work(output, &execution));
            lock(&all).remove(&own_key);
            // A caller that learns of the end may begin another command at once.
            drop(place);
        });
        started.map(drop).map_err(|source| {
            lock(&self.all).remove(&key);
            Error::system("running a command", source)
        })
    }

    /// Returns the output of a command after position `since`, at most `bytes_max` bytes. If no
    /// such output exists yet, waits for some for up to `wait`; the result may then be empty.
    ///
    /// # Errors
    /// There is no such command.
    pub(super) fn output(
        &self,
        key: &Key,
        [since, bytes_max]: [u64; 2],
        wait: Duration,
    ) -> Result<Answer, Error> {
        let output = lock(&self.all).get(key).cloned();
        let output = output.ok_or(Error::ended("the command"))?;
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let wait = wait.min(Duration::from_millis(WATCH_MS_MAX));
        Ok(output.after(since, bytes_max.min(ANSWER_BYTES_MAX), wait))
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for output in lock(&self.all).values() {
            output.lock().is_given_up = true;
            output.changed.notify_all();
        }
    }
}

impl Output {
    fn new() -> Output {
        Output {
            state: Mutex::new(State {
                first: 0,
                waiting: VecDeque::new(),
                bytes: 0,
                end: None,
                is_fetched: false,
                is_given_up: false,
                used_at: Instant::now(),
            }),
            changed: Condvar::new(),
        }
    }

    /// Runs a command until it has ended and its end was fetched, or until no caller asks for its
    /// output any more.
    fn run(&self, execution: &Execution, work: impl FnOnce(&Output) -> ExecLine + Send) {
        std::thread::scope(|scope| {
            let runs = scope.spawn(|| {
                let end = work(self);
                self.lock().end = Some(end);
                self.changed.notify_all();
            });
            let goes_on = |state: &mut State| state.end.is_none() && state.is_used();
            while !runs.is_finished() {
                let waited = self.changed.wait_timeout_while(self.lock(), TURN, goes_on);
                let state = waited.unwrap_or_else(PoisonError::into_inner).0;
                if !state.is_used() {
                    execution.end();
                }
                if state.end.is_some() || !state.is_used() {
                    drop(state);
                    break;
                }
            }
        });
        let is_kept = |state: &mut State| !state.is_fetched;
        loop {
            let waited = self.changed.wait_timeout_while(self.lock(), TURN, is_kept);
            let state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_fetched || !state.is_used() {
                return;
            }
        }
    }

    fn after(&self, since: u64, bytes_max: usize, wait: Duration) -> Answer {
        let mut state = self.lock();
        state.used_at = Instant::now() + wait;
        state.forget(since);
        self.changed.notify_all();
        let has_nothing =
            |state: &mut State| bytes_max > 0 && state.waiting.is_empty() && state.end.is_none();
        let waited = self.changed.wait_timeout_while(state, wait, has_nothing);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.used_at = Instant::now();
        let (mut lines, mut left) = (Vec::new(), bytes_max);
        for (stream, bytes) in &state.waiting {
            let length = bytes.len().min(left);
            if length == 0 {
                break;
            }
            lines.push(ExecLine::piece(*stream, &bytes[..length]));
            left -= length;
        }
        let count = bytes_max - left;
        if count == state.bytes
            && bytes_max > 0
            && let Some(end) = state.end.clone()
        {
            lines.push(end);
            state.is_fetched = true;
            self.changed.notify_all();
        }
        Answer::Output {
            next: state.first + count as u64,
            lines,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Sink for &Output {
    fn take(
        &mut self,
        stream: Stream,
        piece: &[u8],
        is_over: &dyn Fn() -> bool,
    ) -> ControlFlow<()> {
        let mut state = self.lock();
        while state.bytes + piece.len() > WAITING_BYTES_MAX {
            if is_over() || !state.is_used() {
                return ControlFlow::Break(());
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.bytes += piece.len();
        state.waiting.push_back((stream, piece.to_vec()));
        self.changed.notify_all();
        ControlFlow::Continue(())
    }
}

impl State {
    /// Discards the output before position `since`, which the caller has received.
    fn forget(&mut self, since: u64) {
        let arrived = since.saturating_sub(self.first);
        let mut arrived = usize::try_from(arrived)
            .unwrap_or(usize::MAX)
            .min(self.bytes);
        self.first += arrived as u64;
        self.bytes -= arrived;
        while arrived > 0 {
            let Some((_, bytes)) = self.waiting.front_mut() else {
                return;
            };
            if bytes.len() > arrived {
                bytes.drain(..arrived);
                return;
            }
            arrived -= bytes.len();
            self.waiting.pop_front();
        }
    }

    fn is_used(&self) -> bool {
        !self.is_given_up && self.used_at.elapsed() < UNUSED
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Largest number of commands on a host, at a time, whose output is fetched in portions.
const COMMANDS_MAX: usize = 128;
/// Bytes of output that may wait to be fetched; when they are reached, the command has to wait.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// Largest number of bytes of output in one answer.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Time without a request for a command's output after which the command is ended, because its
/// caller counts as disconnected.
const UNUSED: Duration = Duration::from_secs(60);
/// Time between two checks whether a command's output is still requested.
const TURN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executions::Executions;

    fn key(number: u64) -> Key {
        (vec!["vnp net".to_owned()], "@1".into(), "a".into(), number)
    }

    /// A command that writes pieces of a size until it must end. Returns the most bytes that
    /// waited.
    fn begin(
        streams: &Streams,
        executions: &Executions,
        (key, count): (Key, usize),
    ) -> Arc<Mutex<usize>> {
        let peak = Arc::new(Mutex::new(0));
        let seen = Arc::clone(&peak);
        let execution = executions.begin(key.clone()).unwrap();
        let place = streams.places.take(&key.0).unwrap();
        let work = move |output: &Output, execution: &Execution| {
            let is_over = || execution.has_ended();
            for at in 0..count {
                let piece = vec![at as u8; PIECE];
                // Like a command in a node, it checks before each piece whether it must end.
                if is_over() {
                    return ExecLine::Status(130);
                }
                if (&mut { output })
                    .take(Stream::Stdout, &piece, &is_over)
                    .is_break()
                {
                    return ExecLine::Status(130);
                }
                let mut peak = lock(&seen);
                *peak = (*peak).max(output.lock().bytes);
            }
            ExecLine::Status(3)
        };
        streams.start(key, (execution, place), work).unwrap();
        peak
    }

    const PIECE: usize = 10_000;
    const WAIT: Duration = Duration::from_secs(10);

    fn output(streams: &Streams, since: u64, bytes_max: u64) -> (u64, Vec<ExecLine>) {
        match streams.output(&key(1), [since, bytes_max], WAIT).unwrap() {
            Answer::Output { next, lines } => (next, lines),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn output_comes_in_portions_and_little_of_it_waits() {
        let (streams, executions) = (Streams::default(), Executions::default());
        let peak = begin(&streams, &executions, (key(1), 1000));
        let (mut since, mut all, mut end) = (0, Vec::new(), None);
        while end.is_none() {
            // A portion that does not end where a piece does.
            let (next, lines) = output(&streams, since, 77_777);
            let before = all.len();
            for line in lines {
                match line {
                    ExecLine::Stdout(bytes) => all.extend(bytes),
                    other => end = Some(other),
                }
            }
            assert!(all.len() - before <= 77_777);
            since = next;
            assert_eq!(since, all.len() as u64);
        }
        assert_eq!(end, Some(ExecLine::Status(3)));
        let expected = (0..1000).flat_map(|at| [at as u8; PIECE]);
        assert!(expected.eq(all));
        assert!(*lock(&peak) <= WAITING_BYTES_MAX);
        // Nothing of it is left.
        while !lock(&streams.all).is_empty() {
            std::thread::sleep(LOOK);
        }
        assert!(streams.output(&key(1), [0, 1], WAIT).is_err());
    }

    #[test]
    fn portion_that_is_asked_for_again_is_the_same() {
        let (streams, executions) = (Streams::default(), Executions::default());
        begin(&streams, &executions, (key(1), 1));
        let first = output(&streams, 0, 100);
        assert_eq!(first, output(&streams, 0, 100));
        // One that only keeps it alive takes nothing.
        assert_eq!(output(&streams, 0, 0), (0, Vec::new()));
        let (mut next, mut lines) = output(&streams, 100, 1 << 20);
        // The status may come after the last piece.
        while lines.len() < 2 {
            let more = output(&streams, next, 1 << 20);
            next = more.0;
            lines.extend(more.1);
        }
        assert_eq!((next, lines.len()), (PIECE as u64, 2));
    }

    #[test]
    fn command_ends_by_its_number_and_others_go_on() {
        let (streams, executions) = (Streams::default(), Executions::default());
        let endless = usize::MAX;
        begin(&streams, &executions, (key(1), endless));
        begin(&streams, &executions, (key(2), 1));
        executions.end(key(1));
        let (mut since, mut end) = (0, None);
        while end.is_none() {
            let (next, lines) = output(&streams, since, 1 << 20);
            end = lines
                .into_iter()
                .find(|line| matches!(line, ExecLine::Status(_)));
            since = next;
        }
        assert_eq!(end, Some(ExecLine::Status(130)));
        assert!(since <= (WAITING_BYTES_MAX + PIECE) as u64);
        let other = streams.output(&key(2), [0, 1 << 20], WAIT).unwrap();
        assert!(matches!(other, Answer::Output { lines, .. } if lines.len() == 2));
    }
}
