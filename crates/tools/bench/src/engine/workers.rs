//! Carina's side of the benchmark on two workers.

use std::time::{Duration, Instant};

use carina_frame::PoolConfig;
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{ConfigureError, Workers};

use super::Chain;
use super::graphs::graph;
use crate::error::{Attempt, Error, Result};
use crate::rate::Rate;

/// Runs a graph on two workers, one on each of `cpus`: for a third of `time_ns` to warm up, and
/// then for `time_ns`, in which it is measured.
pub(super) fn measure(chain: Chain, size: usize, cpus: [usize; 2], time_ns: u64) -> Result<Rate> {
    let mut graph = graph(chain, size).map_err(wrong)?;
    graph.cpus(&cpus);
    let counters = CounterFile::private().attempt("counters")?;
    let mut workers = Workers::new(PoolConfig::default(), counters);
    workers.configure(&graph).map_err(wrong)?;
    std::thread::sleep(Duration::from_nanos(time_ns / 3));
    let (start, before) = (Instant::now(), work(&workers).map_err(wrong)?);
    std::thread::sleep(Duration::from_nanos(time_ns));
    let (wall, after) = (start.elapsed(), work(&workers).map_err(wrong)?);
    let wall = wall.as_nanos() as f64;
    let (frames, cpu) = ((after.0 - before.0) as f64, (after.1 - before.1) as f64);
    let mut rate = Rate::of(frames, wall, cpu);
    rate.cpu_share /= cpus.len() as f64;
    Ok(rate)
}

pub(crate) fn wrong(error: impl std::fmt::Display) -> Error {
    Error::Graph(error.to_string())
}

/// Number of frames that arrived at the sinks, and CPU time of all workers in ns.
pub(crate) fn work(workers: &Workers) -> std::result::Result<(u64, u64), ConfigureError> {
    let links = workers.link_counts()?.into_iter();
    let to_sinks = links.filter(|(name, _)| name.to.app.starts_with("sink"));
    let frames = to_sinks.map(|(_, counts)| counts.packets).sum();
    let reports = workers.reports()?;
    Ok((frames, reports.iter().map(|report| report.cpu_ns).sum()))
}

#[cfg(test)]
mod tests {
    use super::super::Spread;
    use super::*;

    #[test]
    fn both_spreads_use_two_workers_and_bring_frames_to_the_sinks() {
        for (spread, hops) in [(Spread::Chain, 0), (Spread::Chain, 4), (Spread::Each, 1)] {
            let graph = graph(Chain::Workers(spread, hops), 64).unwrap();
            let counters = CounterFile::private().unwrap();
            let mut workers = Workers::new(PoolConfig::default(), counters);
            workers.configure(&graph).unwrap();
            let deadline = Instant::now() + Duration::from_secs(60);
            while work(&workers).unwrap().0 < 100_000 {
                assert!(Instant::now() < deadline, "{spread:?}, {hops} hops");
                std::thread::sleep(Duration::from_millis(1));
            }
            let reports = workers.reports().unwrap();
            assert!(reports.iter().all(|report| !report.apps.is_empty()));
            assert_eq!(reports.len(), 2);
        }
    }
}
