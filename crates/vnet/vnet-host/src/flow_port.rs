//! An app of the engine that sends and receives frames as SDUs of a flow.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use carina_frame::Pool;
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, Port, PortList, Ports,
};
use carina_sys::Interest;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// The socket of a flow.
#[derive(Debug)]
pub struct FlowSocket {
    /// A number that no other flow of this process has.
    number: u64,
    socket: OwnedFd,
    has_ended: AtomicBool,
}

impl FlowSocket {
    /// Wraps the socket of a flow.
    pub fn over(socket: OwnedFd) -> Arc<FlowSocket> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(FlowSocket {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            socket,
            has_ended: AtomicBool::new(false),
        })
    }

    /// The number of the flow, unique in this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// Whether the flow has ended: the app has read its end, or the node has closed the socket.
    /// This works also while no engine uses the flow.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire) || self.is_closed()
    }

    fn is_closed(&self) -> bool {
        let closed = PollFlags::HUP | PollFlags::ERR;
        let mut looked = [PollFd::new(&self.socket, PollFlags::empty())];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut looked, Some(&at_once)).is_ok() && looked[0].revents().intersects(closed)
    }
}

/// Configures an app whose frames travel as SDUs of a flow. Without a flow it drops all frames.
///
/// - inputs: `input`: frames to send as SDUs
/// - outputs: `output`: frames received as SDUs
/// - counters: `drop_no_flow`; `drop_full`: the flow accepts nothing at present; `drop_long`: an
///   SDU is longer than a frame
#[derive(Clone, Debug)]
pub struct FlowPortConfig(pub Option<Arc<FlowSocket>>);

impl PartialEq for FlowPortConfig {
    fn eq(&self, other: &FlowPortConfig) -> bool {
        let number = |config: &FlowPortConfig| config.0.as_ref().map(|flow| flow.number);
        number(self) == number(other)
    }
}

/// The app that carries frames as SDUs of a flow, as it runs in the engine.
pub struct FlowPort {
    flow: Option<Arc<FlowSocket>>,
    pool: Pool,
    buffer: Vec<u8>,
    no_flow: Counter,
    full: Counter,
    long: Counter,
}

impl AppConfig for FlowPortConfig {
    const KIND: &'static str = "flow";
    const INPUTS: PortList = PortList::Named(&[Port::optional("input")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::optional("output")]);
    type App = FlowPort;

    fn build(&self, context: &mut AppContext<'_>) -> std::result::Result<FlowPort, AppError> {
        Ok(FlowPort {
            flow: self.0.clone(),
            pool: context.pool().clone(),
            buffer: vec![0; SDU_MAX],
            no_flow: context.counter("drop_no_flow"),
            full: context.counter("drop_full"),
            long: context.counter("drop_long"),
        })
    }
}

impl FrameApp for FlowPort {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let Some(flow) = &self.flow else { return };
        ports.fill(0, FRAME_BURST, || {
            loop {
                match recv(&flow.socket, &mut self.buffer, RecvFlags::DONTWAIT) {
                    Ok((1.., length)) => match self.pool.frame_of(self.buffer.get(..length)?) {
                        Some(frame) => return Some(frame),
                        None => self.long.add(1),
                    },
                    // A message without bytes marks the end, because frames are never empty.
                    Ok((0, _)) => {
                        flow.end();
                        return None;
                    }
                    Err(Errno::AGAIN | Errno::INTR) => return None,
                    Err(_) => {
                        flow.end();
                        return None;
                    }
                }
            }
        });
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        ports.drain(0, |frame| {
            let Some(flow) = &self.flow else {
                self.no_flow.add(1);
                return;
            };
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&flow.socket, frame.bytes(), flags) {
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => self.full.add(1),
                Err(_) => {
                    flow.end();
                    self.no_flow.add(1);
                }
            }
        });
    }

    fn wait_fd(&self) -> Option<(BorrowedFd<'_>, Interest)> {
        let flow = self.flow.as_ref()?;
        Some((flow.socket.as_fd(), Interest::ReadEdge))
    }

    fn arm(&mut self) -> bool {
        let Some(flow) = &self.flow else { return true };
        let mut first = [0];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        // A flow that has ended has nothing to read.
        flow.has_ended.load(Ordering::Acquire) || recv(&flow.socket, &mut first[..], flags).is_err()
    }
}

/// Size of the buffer for an SDU, in bytes; longer than any frame of the pool.
const SDU_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use carina_frame::PoolConfig;
    use carina_frame_engine::counter_file::CounterFile;
    use carina_frame_engine::{Graph, Network};
    use carina_time::Instant;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn frames_are_sdus_until_the_flow_has_ended() {
        let pair = || {
            socketpair(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )
            .unwrap()
        };
        // A process that another test starts holds the sockets until it executes its program.
        let wait_for = |holds: &mut dyn FnMut() -> bool| {
            (0..1000).any(|_| {
                holds() || {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    false
                }
            })
        };
        let mut graph = Graph::new();
        let mut ends = Vec::new();
        for name in ["one", "two"] {
            let (ours, theirs) = pair();
            let flow = FlowSocket::over(ours);
            graph.app(name, FlowPortConfig(Some(Arc::clone(&flow))));
            ends.push((flow, theirs));
        }
        graph.app("none", FlowPortConfig(None));
        graph.link("one.output -> two.input").unwrap();
        graph.link("two.output -> none.input").unwrap();
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let mut network = Network::new(pool, CounterFile::private().unwrap()).unwrap();
        network.configure(&graph).unwrap();
        let frame = [7; 1414];
        send(&ends[0].1, &frame, SendFlags::empty()).unwrap();
        send(&ends[1].1, &frame, SendFlags::empty()).unwrap();
        let mut breathe = || {
            for _ in 0..4 {
                network.breathe(Instant::from_millis(1));
            }
        };
        breathe();
        let mut buffer = [0; 2000];
        let (_, length) = recv(&ends[1].1, &mut buffer, RecvFlags::DONTWAIT).unwrap();
        assert_eq!(buffer[..length], frame);
        let (flow, theirs) = ends.remove(0);
        drop(theirs);
        assert!(wait_for(&mut || {
            breathe();
            flow.has_ended()
        }));
        assert!(!ends[0].0.has_ended());
        // The end is detected also without an engine.
        let (ours, theirs) = pair();
        let unused = FlowSocket::over(ours);
        assert!(!unused.has_ended());
        drop(theirs);
        assert!(wait_for(&mut || unused.has_ended()));
    }
}
