//! Sends the frames of two captures through an AFTR, repeatedly, as fast as one core can.

use std::sync::Arc;

use carina_apps::sink::SinkConfig;
use carina_frame::PoolConfig;
use carina_frame_engine::Graph;
use carina_lwaftr::app::LwaftrConfig;
use carina_lwaftr::check::Frames;
use carina_lwaftr::config::{NextHopAddress, Rules};
use carina_lwaftr::file::Loaded;
use carina_lwaftr::monitor::Monitor;
use carina_wire::ether::Mac;
use serde::Serialize;

use super::traffic::wrong;
use crate::error::{Attempt, Result};
use crate::one_core::OneCore;
use crate::replay::Replay;

/// An AFTR between two sources and a sink.
pub struct CaptureBench {
    rig: OneCore,
    elapsed_ns: f64,
}

/// How fast frames left the AFTR in both directions during an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Passage {
    /// End of the interval, in seconds since the first one began.
    pub time_s: f64,
    /// Frames that left towards the Internet, in 10⁶ per second.
    pub decap_mpps: f64,
    /// Bits of these frames, in 10⁹ per second.
    pub decap_gbps: f64,
    /// Frames that left towards B4s, in 10⁶ per second; a packet may leave in several frames.
    pub encap_mpps: f64,
    /// Bits of these frames, in 10⁹ per second.
    pub encap_gbps: f64,
}

impl CaptureBench {
    /// An AFTR with the first queue of a configuration, and with frames from the Internet and from
    /// B4s. A next hop whose MAC address the AFTR would have to resolve gets a fixed one, because
    /// no system would answer.
    ///
    /// # Errors
    /// The configuration has no queue, the system refuses something that is needed, or this process
    /// may not use the processor `cpu`.
    pub fn new(
        loaded: Loaded,
        rules: Rules,
        external: Frames,
        internal: Frames,
        cpu: Option<usize>,
    ) -> Result<CaptureBench> {
        let mut queue = carina_lwaftr::check::first_queue(&loaded.config)
            .map_err(wrong)?
            .clone();
        let next = Mac([2, 0, 0, 0, 0, 9]);
        if let NextHopAddress::Ip(_) = queue.external.next_hop {
            queue.external.next_hop = NextHopAddress::Mac(next);
        }
        if let NextHopAddress::Ip(_) = queue.internal.next_hop {
            queue.internal.next_hop = NextHopAddress::Mac(next);
        }
        let aftr = LwaftrConfig {
            config: Arc::new(loaded.config),
            table: Arc::new(loaded.table),
            queue,
            rules,
            is_stick: false,
            monitor: Monitor::None,
            share: None,
        };
        let frames =
            |frames: Frames| Replay::of(frames.into_iter().map(|(_, frame)| frame).collect());
        let mut graph = Graph::new();
        graph
            .app("internet", frames(external))
            .app("b4s", frames(internal))
            .app("aftr", aftr)
            .app("sink", SinkConfig {});
        for link in [
            "internet.output -> aftr.external",
            "b4s.output -> aftr.internal",
            "aftr.external -> sink.external",
            "aftr.internal -> sink.internal",
        ] {
            graph.link(link).map_err(wrong)?;
        }
        if let Some(cpu) = cpu {
            carina_sys::bind_to_cpu(cpu).attempt("choosing a processor")?;
        }
        let pool = PoolConfig {
            frame_bytes: FRAME_BYTES,
            ..PoolConfig::default()
        };
        Ok(CaptureBench {
            rig: OneCore::new(&graph, pool)?,
            elapsed_ns: 0.0,
        })
    }

    /// Forwards for `time_ns` nanoseconds, and returns the rates.
    ///
    /// # Errors
    /// The engine cannot sleep.
    pub fn run(&mut self, time_ns: u64) -> Result<Passage> {
        let passed = self.rig.run(time_ns)?;
        self.elapsed_ns += passed.wall_ns;
        let rates = |port: &str| {
            let is_it = |name: &carina_frame_engine::LinkName| {
                name.to.app == "sink" && name.to.port == port
            };
            let (frames, bytes) = (passed.frames(is_it) as f64, passed.bytes(is_it) as f64);
            (frames * 1e3 / passed.wall_ns, bytes * 8.0 / passed.wall_ns)
        };
        let (decap_mpps, decap_gbps) = rates("external");
        let (encap_mpps, encap_gbps) = rates("internal");
        Ok(Passage {
            time_s: self.elapsed_ns / 1e9,
            decap_mpps,
            decap_gbps,
            encap_mpps,
            encap_gbps,
        })
    }
}

/// Longest frame of a capture, in bytes.
const FRAME_BYTES: usize = 10_240;
