//! The two ends of a vhost-user connection while it is measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carina_apps::sink::SinkConfig;
use carina_frame::PoolConfig;
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{Graph, GraphError, Workers};
use carina_ports::vhost_user::VhostUserConfig;

use super::Direction;
use super::generator::GeneratorConfig;
use crate::engine::workers::{work, wrong};
use crate::error::{Attempt, Result};
use crate::rate::Rate;
use crate::testpmd::{Testpmd, TestpmdConfig};

/// Parameters of a measurement.
pub(super) struct Port<'a> {
    pub(super) socket: PathBuf,
    pub(super) directory: &'a Path,
    /// Processors of the back end and of the front end.
    pub(super) cpus: [usize; 2],
    /// Length of a frame in bytes.
    pub(super) size: u64,
    pub(super) is_packed: bool,
    pub(super) direction: Direction,
}

/// The two ends of a vhost-user or memif connection, which pass frames.
pub(super) struct Connection {
    // The front end is dropped first.
    guest: End,
    host: End,
}

/// One end of a connection.
enum End {
    Testpmd(Testpmd),
    /// A graph on a worker of this process. It forwards frames from the start.
    Graph {
        workers: Workers,
        /// Time of the last call of `rate`, and number of frames that had arrived before that call.
        last: (Instant, u64),
    },
}

impl Connection {
    /// Connects Carina's back end and DPDK's virtio-user.
    pub(super) fn to_carina(port: &Port<'_>) -> Result<Connection> {
        let graph = port.graph().map_err(wrong)?;
        let counters = CounterFile::private().attempt("counters")?;
        let pool = PoolConfig {
            frame_bytes: PoolConfig::default().frame_bytes.max(port.size as usize),
            ..PoolConfig::default()
        };
        let mut workers = Workers::new(pool, counters);
        workers.configure(&graph).map_err(wrong)?;
        Ok(Connection {
            guest: port.virtio_user()?,
            host: End::Graph {
                workers,
                last: (Instant::now(), 0),
            },
        })
    }

    /// Connects DPDK's back end and its virtio-user.
    pub(super) fn to_net_vhost(port: &Port<'_>) -> Result<Connection> {
        let device = format!("net_vhost0,iface={},queues=1", port.socket.display());
        let host = port.testpmd(Direction::ToGuest, device)?;
        Ok(Connection {
            guest: port.virtio_user()?,
            host,
        })
    }

    /// Connects two ends of DPDK's memif.
    pub(super) fn of_memif(port: &Port<'_>) -> Result<Connection> {
        let device = |role| {
            let socket = port.socket.display();
            format!("net_memif0,role={role},id=0,socket-abstract=no,socket={socket}")
        };
        let host = port.testpmd(Direction::ToGuest, device("server"))?;
        Ok(Connection {
            guest: port.testpmd(Direction::ToHost, device("client"))?,
            host,
        })
    }

    /// Runs for a third of `time_ns` to warm up, and then for `time_ns`, in which the receiving end
    /// counts frames. The CPU time is that of the host's end.
    pub(super) fn measure(&mut self, direction: Direction, time_ns: u64) -> Result<Rate> {
        for end in [&mut self.host, &mut self.guest] {
            end.begin()?;
        }
        std::thread::sleep(Duration::from_nanos(time_ns / 3));
        self.receiver(direction).rate()?;
        let (start, cpu_start) = (Instant::now(), self.host.cpu_ns()?);
        std::thread::sleep(Duration::from_nanos(time_ns));
        let cpu = self.host.cpu_ns()? - cpu_start;
        let wall = start.elapsed().as_nanos() as f64;
        let per_second = self.receiver(direction).rate()?;
        Ok(Rate::of(per_second * wall / 1e9, wall, cpu as f64))
    }

    fn receiver(&mut self, direction: Direction) -> &mut End {
        match direction {
            Direction::ToHost => &mut self.host,
            Direction::ToGuest => &mut self.guest,
        }
    }
}

impl End {
    fn begin(&mut self) -> Result<()> {
        match self {
            End::Testpmd(testpmd) => testpmd.begin(),
            End::Graph { .. } => Ok(()),
        }
    }

    /// CPU time of the forwarding thread, in ns.
    fn cpu_ns(&self) -> Result<u64> {
        match self {
            End::Testpmd(testpmd) => testpmd.cpu_ns(),
            End::Graph { workers, .. } => Ok(work(workers).map_err(wrong)?.1),
        }
    }

    /// Frames that arrived per second since the last call.
    fn rate(&mut self) -> Result<f64> {
        match self {
            End::Testpmd(testpmd) => {
                let received: u64 = testpmd.rates()?.iter().map(|port| port.received).sum();
                Ok(received as f64)
            }
            End::Graph { workers, last } => {
                let frames = work(workers).map_err(wrong)?.0;
                let (then, before) = std::mem::replace(last, (Instant::now(), frames));
                Ok((frames - before) as f64 / (last.0 - then).as_secs_f64())
            }
        }
    }
}

impl Port<'_> {
    /// The graph of Carina's back end.
    fn graph(&self) -> std::result::Result<Graph, GraphError> {
        let mut graph = Graph::new();
        graph.cpus(&self.cpus[..1]);
        graph.app("card", VhostUserConfig::at(&self.socket));
        match self.direction {
            Direction::ToHost => {
                graph.app("sink", SinkConfig {});
                graph.link("card.output -> sink.input")?;
            }
            Direction::ToGuest => {
                let size = self.size as usize;
                graph.app("generator", GeneratorConfig { size });
                graph.link("generator.output -> card.input")?;
            }
        }
        Ok(graph)
    }

    /// Starts DPDK's virtio-user as the front end.
    fn virtio_user(&self) -> Result<End> {
        let packed = u8::from(self.is_packed);
        let device = format!(
            "net_virtio_user0,path={},queues=1,packed_vq={packed},mrg_rxbuf=1,in_order=1",
            self.socket.display()
        );
        self.testpmd(Direction::ToHost, device)
    }

    /// Starts a testpmd with one device, at the end that sends frames in direction `from`.
    fn testpmd(&self, from: Direction, device: String) -> Result<End> {
        let [back, front] = self.cpus;
        let cpu = match from {
            Direction::ToHost => front,
            Direction::ToGuest => back,
        };
        let testpmd = Testpmd::start(&TestpmdConfig {
            main_cpu: cpu,
            cpu,
            directory: self.directory,
            devices: &[device],
            mode: if from == self.direction {
                "txonly"
            } else {
                "rxonly"
            },
            frame_bytes: self.size,
        })?;
        Ok(End::Testpmd(testpmd))
    }
}
