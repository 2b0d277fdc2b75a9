//! `carina nfv run` and `carina nfv show`.

use std::path::Path;
use std::time::Instant;

use carina_frame_engine::counter_file;
use carina_graph::runner::GraphRunner;
use carina_nfv::traffic::Traffic;
use carina_nfv::traffic::changes::Changes;
use carina_nfv::traffic::counts::TrafficCounts;
use carina_nfv::traffic::graph::{graph, port_kinds};
use carina_nfv::traffic::placement::Placement;
use carina_sys::ReloadSignal;
use carina_text::duration::parse_ns;
use carina_time::Duration;

use super::record::{self, Record, RecordFile};
use super::table::Period;
use super::{Source, warn};
use crate::Shared;
use crate::data_plane::PoolArgs;
use crate::failure::{Attempt, Failure, Outcome, failed, refused};
use crate::file_watch::FileWatch;
use crate::graph_directory::OwnCounters;
use crate::interrupt::Interrupt;
use crate::report::{print_json, print_line, progress};

/// Options of `carina nfv run`: the file of ports, and the threads that run them.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    source: Source,
    /// End after this time, such as 10s or 1m [default: run until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_ns)]
    time: Option<u64>,
    /// Interval at which rates and drops of the ports are shown, such as 500ms, 10s or 1m (a bare
    /// number is seconds); 0 shows none
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_ns)]
    every: u64,
    /// Numbers of the processors to run on, from 0: uplink and switch run on the first, the ports
    /// are distributed over the others [default: one thread, on any processor]
    #[arg(long, value_name = "CPU,...", value_delimiter = ',')]
    cpu: Vec<usize>,
    #[command(flatten)]
    pool: PoolArgs,
}

/// A running `carina nfv run`: the graph of its ports, and the content of the file when it was last
/// read.
struct Process {
    runner: GraphRunner,
    traffic: Traffic,
    placement: Placement,
    counters: OwnCounters,
}

impl Process {
    fn start(args: &RunArgs, traffic: Traffic, counters: OwnCounters) -> Result<Process, Failure> {
        let mut runner = args.pool.make_runner(&counters)?;
        if !args.cpu.is_empty() {
            runner.run_on(&args.cpu);
        }
        let mut placement = Placement::new(args.cpu.len());
        let mut apps = graph(&traffic, &port_kinds()).map_err(refused)?;
        placement.place(&mut apps, &traffic);
        runner.configure(&apps).map_err(refused)?;
        Ok(Process {
            runner,
            traffic,
            placement,
            counters,
        })
    }

    /// Changes the ports to what the file describes, and the record with them. A file with errors
    /// is reported and changes nothing.
    fn follow(&mut self, shared: &Shared, source: &Source, record: &mut RecordFile) {
        let (wanted, text) = match source.read_with_text(shared) {
            Ok(wanted) => wanted,
            Err(failure) => return progress(format!("{failure}; the ports were not changed")),
        };
        let changes = Changes::between(&self.traffic, &wanted);
        warn(&source.file, &wanted);
        let mut placement = self.placement.clone();
        let configured = graph(&wanted, &port_kinds())
            .map_err(failed)
            .and_then(|mut apps| {
                placement.place(&mut apps, &wanted);
                self.runner.configure(&apps).map_err(failed)
            });
        match configured {
            Ok(_) if changes.is_empty() => {}
            Ok(_) => progress(changes),
            Err(failure) => {
                let file = source.file.display();
                return progress(format!("{file}: {failure}; the ports were not changed"));
            }
        }
        self.traffic = wanted;
        self.placement = placement;
        if let Err(failure) = record.set_text(text) {
            progress(format!(
                "{failure}; `carina nfv show` shows the ports of before"
            ));
        }
    }

    fn counts(&self) -> Result<TrafficCounts, Failure> {
        counts(&self.traffic, &self.counters)
    }
}

fn counts(traffic: &Traffic, counters: &Path) -> Result<TrafficCounts, Failure> {
    let readings = counter_file::read(counters).attempt("reading counters")?;
    Ok(TrafficCounts::of(traffic, &readings))
}

/// Runs the ports of a file until SIGINT, SIGTERM or the time limit, and follows changes of the
/// file.
pub(super) fn run(shared: &Shared, args: &RunArgs) -> Outcome {
    let mut watch = FileWatch::new(&args.source.file);
    let (traffic, text) = args.source.read_with_text(shared)?;
    warn(&args.source.file, &traffic);
    let interrupt = Interrupt::take().attempt("taking signals")?;
    let reload = ReloadSignal::new().attempt("taking SIGHUP")?;
    let counters = OwnCounters::of_process(shared, "nfv")?;
    let defaults = args.source.defaults(shared);
    let file = &args.source.file;
    let record = Record {
        pid: std::process::id(),
        file: std::fs::canonicalize(file).attempt(format!("looking for {}", file.display()))?,
        text,
        uplink: defaults.uplink,
        sockets: defaults.sockets,
        counters: counters.to_path_buf(),
    };
    record::make_directory(shared)?;
    let started = Process::start(args, traffic, counters);
    let mut process = started.inspect_err(|_| {
        // The counters may not exist yet.
        let _ = std::fs::remove_file(&record.counters);
    })?;
    let mut record = record.keep(shared)?;
    progress(Changes::between(&Traffic::default(), &process.traffic));
    let begin = Instant::now();
    let limit = args.time.unwrap_or(u64::MAX);
    let mut shown = (begin, TrafficCounts::default());
    loop {
        let passed = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if passed >= limit || interrupt.is_pending().attempt("signals")? {
            break;
        }
        let slice = Duration::from_nanos(limit - passed).min(SLICE);
        process.runner.run_for(slice).attempt("running the ports")?;
        if watch.is_due(reload.has_come().attempt("SIGHUP")?) {
            process.follow(shared, &args.source, &mut record);
        }
        if args.every > 0 && shown.0.elapsed().as_nanos() >= u128::from(args.every) {
            let after = process.counts()?;
            let period = Period {
                before: &shown.1,
                after: &after,
                seconds: shown.0.elapsed().as_secs_f64(),
            };
            progress(period.table());
            shown = (Instant::now(), after);
        }
    }
    let period = Period {
        before: &TrafficCounts::default(),
        after: &process.counts()?,
        seconds: begin.elapsed().as_secs_f64(),
    };
    if shared.json {
        print_json(&period.json())
    } else {
        print_line(period.table())
    }
}

/// Measures for `over` nanoseconds, and prints rates and drops of the ports of all running `carina
/// nfv run`.
pub(super) fn show(shared: &Shared, over: u64) -> Outcome {
    let mut looks = Vec::new();
    for record in record::all(shared) {
        let traffic = record.traffic()?;
        let before = counts(&traffic, &record.counters)?;
        looks.push((record, traffic, before));
    }
    let begin = Instant::now();
    if looks.is_empty() {
        progress("`carina nfv run` does not run on this system");
    } else {
        std::thread::sleep(std::time::Duration::from_nanos(over));
    }
    let seconds = begin.elapsed().as_secs_f64();
    let mut all = Vec::new();
    for (record, traffic, before) in &looks {
        let after = counts(traffic, &record.counters)?;
        let period = Period {
            before,
            after: &after,
            seconds,
        };
        if shared.json {
            let mut json = period.json();
            json["file"] = record.file.to_string_lossy().into();
            json["pid"] = record.pid.into();
            all.push(json);
        } else {
            let (file, pid) = (record.file.display(), record.pid);
            print_line(format!("{file} (process {pid})\n{}", period.table()))?;
        }
    }
    if shared.json {
        print_json(&all)
    } else {
        Ok(())
    }
}

const SLICE: Duration = Duration::from_millis(100);
