//! An app that generates frames like testpmd with `--forward-mode=txonly`: it writes the headers of
//! each frame, and leaves the payload as it is. The app `source` writes the whole frame, and the
//! measurement would count that as work of the rings.

use carina_apps::sample_packet::{HEADER_BYTES, udp_packet};
use carina_frame::Pool;
use carina_frame_engine::{
    AppConfig, AppContext, AppError, FRAME_BURST, FrameApp, PortList, Ports, WhenFull,
};

/// Configuration of the app.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GeneratorConfig {
    /// Length of a frame in bytes, without FCS.
    pub(super) size: usize,
}

/// The app that generates frames: it writes their headers, and leaves the payload as it is.
pub(super) struct Generator {
    headers: Vec<u8>,
    size: usize,
    pool: Pool,
}

impl AppConfig for GeneratorConfig {
    const KIND: &'static str = "generator";
    const INPUTS: PortList = PortList::NO_PORT;
    const OUTPUTS: PortList = PortList::OUTPUT;
    const WHEN_FULL: WhenFull = WhenFull::PullsNoMore;

    type App = Generator;

    fn build(&self, context: &mut AppContext<'_>) -> Result<Generator, AppError> {
        let mut headers = udp_packet(self.size);
        headers.truncate(HEADER_BYTES);
        Ok(Generator {
            headers,
            size: self.size,
            pool: context.pool().clone(),
        })
    }
}

impl FrameApp for Generator {
    fn pull(&mut self, ports: &mut Ports<'_>) {
        let Generator {
            headers,
            size,
            pool,
        } = self;
        let burst = ports.room(0).min(FRAME_BURST);
        ports.fill(0, burst, || {
            let mut frame = pool.frame_of(headers)?;
            frame.set_len(*size).then_some(frame)
        });
    }
}

#[cfg(test)]
mod tests {
    use carina_apps::sink::SinkConfig;
    use carina_frame::PoolConfig;
    use carina_frame_engine::counter_file::CounterFile;
    use carina_frame_engine::{Graph, Network};
    use carina_time::Instant;

    use super::*;

    #[test]
    fn frames_have_the_size_that_is_measured() {
        for size in [64, 1500] {
            let mut graph = Graph::new();
            graph.app("generator", GeneratorConfig { size });
            graph.app("sink", SinkConfig {});
            graph.link("generator.output -> sink.input").unwrap();
            let pool = Pool::new(PoolConfig::default()).unwrap();
            let mut network = Network::new(pool, CounterFile::private().unwrap()).unwrap();
            network.configure(&graph).unwrap();
            network.breathe(Instant::from_nanos(1));
            let (_, counts) = network.link_counts().next().unwrap();
            assert_eq!(counts.packets, FRAME_BURST as u64);
            assert_eq!(counts.bytes, (FRAME_BURST * size) as u64);
        }
    }
}
