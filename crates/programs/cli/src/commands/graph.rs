//! `carina graph`: runs, checks and draws graphs of apps that move frames.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use carina_frame::PoolConfig;
use carina_frame_engine::counter_file::{self, Reading, has_writer};
use carina_frame_engine::{Graph, LinkName, Notice, WorkerReport};
use carina_graph::graph_file::{Kind, read_graph_in};
use carina_graph::picture;
use carina_graph::runner::GraphRunner;
use carina_sys::ReloadSignal;
use carina_text::duration::parse_ns;
use carina_text::table::{Table, short};
use carina_time::Duration;
use clap::Subcommand;
use serde_json::json;

use crate::Shared;
use crate::data_plane::PoolArgs;
use crate::failure::{Attempt, Failure, Outcome, failed, refused};
use crate::file_watch::{FileWatch, check_not_empty};
use crate::graph_directory::{OwnCounters, counters_of_file};
use crate::interrupt::Interrupt;
use crate::report::{print_json, print_line, progress};

/// Run, check and draw graphs of apps that move Ethernet frames
#[derive(Debug, Subcommand)]
pub(crate) enum GraphCommand {
    /// Run a graph, and apply changes of its file
    ///
    /// When the file changes, or on SIGHUP, only the difference is applied: unchanged apps keep
    /// running with their state, and unchanged links keep their frames. The same holds for the
    /// scripts of Lua apps. A file with errors is reported and changes nothing.
    #[command(after_help = "Examples:\n  carina graph run router.toml\n  \
        carina graph run router.toml --cpu 1 --for 10s --json\n  \
        carina graph run spread.toml --cpu 2,3\n\n\
        Exit code 1: an app stopped while the graph ran; 3: the graph is wrong.")]
    Run(RunArgs),
    /// Check a graph without running it
    ///
    /// Builds the apps, but opens no device and no socket, and creates no file. For an app that
    /// needs a device, socket or file, only the values are checked: a graph that passes can still
    /// fail at the start.
    #[command(after_help = "Example:\n  carina graph check router.toml")]
    Check {
        /// TOML file that describes the graph
        file: PathBuf,
        /// Length of the pool's frames in bytes, as for `carina graph run`
        #[arg(long, default_value_t = PoolConfig::default().frame_bytes)]
        frame_bytes: usize,
    },
    /// Draw a graph as SVG; if the graph is running, with the rates of its links
    #[command(after_help = "Example:\n  carina graph draw router.toml --out router.svg")]
    Draw {
        /// TOML file that describes the graph
        file: PathBuf,
        /// SVG file to write [default: standard output]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// Options of `carina graph run`: the file of the graph, for how long and on which processors to
/// run it.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// TOML file that describes the graph
    file: PathBuf,
    /// Run for this time, such as 10s [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_ns)]
    time: Option<u64>,
    /// Numbers of the processors to run on, one per worker (thread), such as 2,3 [default: those in
    /// the graph's file]
    #[arg(long, value_name = "CPU,...", value_delimiter = ',')]
    cpu: Vec<usize>,
    #[command(flatten)]
    pool: PoolArgs,
}

/// Runs a command of `carina graph`.
///
/// # Errors
/// The graph is invalid, or the system refuses a resource.
pub(crate) fn run(shared: &Shared, command: GraphCommand) -> Outcome {
    match command {
        GraphCommand::Run(args) => run_graph(shared, &args),
        GraphCommand::Check { file, frame_bytes } => {
            let (graph, _) = read(&file)?;
            let rehearsed = graph.rehearse(frame_bytes);
            rehearsed.map_err(|error| refused(format!("{}: {error}", file.display())))?;
            let (apps, links) = (graph.apps().count(), graph.links().count());
            if shared.json {
                print_json(&json!({ "apps": apps, "links": links }))
            } else {
                print_line(format!("{apps} apps, {links} links"))
            }
        }
        GraphCommand::Draw { file, out } => draw(shared, &file, out.as_deref()),
    }
}

/// Reads a graph; also returns the other files that belong to it.
fn read(file: &Path) -> Result<(Graph, Vec<PathBuf>), Failure> {
    let text = fs::read_to_string(file).attempt(format!("reading {}", file.display()))?;
    check_not_empty(file, &text)?;
    let directory = file.parent().unwrap_or(Path::new(""));
    let kinds: Vec<Kind> = carina_nfv::kinds()
        .into_iter()
        .chain([carina_lua::KIND])
        .collect();
    read_graph_in(&text, directory, &kinds)
        .map_err(|error| refused(format!("{}: {error}", file.display())))
}

fn run_graph(shared: &Shared, args: &RunArgs) -> Outcome {
    let mut watch = Watch::new(&args.file);
    let (graph, files) = read(&args.file)?;
    watch.watch_others(&files);
    let interrupt = Interrupt::take().attempt("taking signals")?;
    let reload = ReloadSignal::new().attempt("taking SIGHUP")?;
    let counters = OwnCounters::of_file(shared, &args.file)?;
    let mut runner = args.pool.make_runner(&counters)?;
    if !args.cpu.is_empty() {
        runner.run_on(&args.cpu);
    }
    let configured = runner.configure(&graph);
    let steps = configured.map_err(|error| refused(format!("{}: {error}", args.file.display())))?;
    progress(steps);
    let mut stopped = BTreeMap::new();
    let begin = Instant::now();
    let limit = args.time.map(std::time::Duration::from_nanos);
    while limit.is_none_or(|limit| begin.elapsed() < limit)
        && !interrupt.is_pending().attempt("signals")?
    {
        let left = limit.map_or(SLICE, |limit| {
            let left = limit.saturating_sub(begin.elapsed()).as_nanos();
            Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX)).min(SLICE)
        });
        runner.run_for(left).attempt("running the graph")?;
        report(&runner, &mut stopped);
        if watch.is_due(reload.has_come().attempt("SIGHUP")?) {
            follow(&mut runner, &args.file, &mut watch, &mut stopped);
        }
    }
    // Without the counter file, which only another program can have removed, no drops are shown.
    let drops = drops(&counters).unwrap_or_default();
    // Removes the counter file first, so that no other command draws the ended graph with rates.
    drop(counters);
    report(&runner, &mut stopped);
    show(shared, &runner, &drops, &stopped)?;
    without(&stopped)
}

/// Watches the file of a graph, and the other files that belong to it.
struct Watch {
    graph: FileWatch,
    others: Vec<FileWatch>,
    /// The last reading of the graph's file if it failed: its time and its error.
    failed: Option<(Instant, String)>,
}

impl Watch {
    fn new(graph: &Path) -> Watch {
        Watch {
            graph: FileWatch::new(graph),
            others: Vec::new(),
            failed: None,
        }
    }

    fn watch_others(&mut self, files: &[PathBuf]) {
        self.others = files.iter().map(|file| FileWatch::new(file)).collect();
    }

    /// Whether the files are to be read again, also if someone asks for it. After a failure that is
    /// so every second, because its cause may be in a file that is not watched, such as a script
    /// that did not exist.
    fn is_due(&mut self, is_asked: bool) -> bool {
        let mut is_wanted = self.graph.is_due(is_asked);
        let is_late = (self.failed.as_ref()).is_some_and(|(at, _)| at.elapsed() >= AGAIN);
        is_wanted |= is_late && self.graph.is_at_rest();
        for file in &mut self.others {
            is_wanted |= file.has_changed();
        }
        is_wanted
    }
}

/// Prints the notices of apps, and records the apps that have stopped, with the reason.
fn report(runner: &GraphRunner, stopped: &mut BTreeMap<String, String>) {
    let (notices, missed) = runner.notices().take();
    for Notice {
        app,
        text,
        has_stopped,
    } in notices
    {
        if has_stopped {
            progress(format!("app {app} has stopped: {text}"));
            stopped.insert(app, text);
        } else {
            progress(format!("app {app}: {text}"))
        }
    }
    if missed > 0 {
        progress(format!("{missed} messages of apps were lost"));
    }
}

/// Applies a changed file. A file with errors is reported and changes nothing.
fn follow(
    runner: &mut GraphRunner,
    file: &Path,
    watch: &mut Watch,
    stopped: &mut BTreeMap<String, String>,
) {
    let (graph, files) = match read(file) {
        Ok(read) => read,
        Err(failure) => {
            let text = failure.to_string();
            let is_new = (watch.failed.as_ref()).is_none_or(|(_, old)| *old != text);
            if is_new {
                progress(format!("{text}; the graph was not changed"));
            }
            watch.failed = Some((Instant::now(), text));
            return;
        }
    };
    watch.failed = None;
    watch.watch_others(&files);
    match runner.configure(&graph) {
        Ok(steps) => {
            for app in steps.replaced.iter().chain(&steps.removed) {
                stopped.remove(app);
            }
            if !steps.is_empty() {
                progress(steps);
            }
        }
        Err(error) => progress(format!(
            "{}: {error}; the graph was not changed",
            file.display()
        )),
    }
}

/// The frames that apps have dropped, as `APP/drop_REASON`; without counters that are 0.
fn drops(counters: &Path) -> io::Result<BTreeMap<String, u64>> {
    let all = counter_file::read(counters)?.into_iter();
    let drops = all.filter(|reading| reading.value > 0 && reading.dropped().is_some());
    Ok(drops.map(|reading| (reading.name, reading.value)).collect())
}

fn show(
    shared: &Shared,
    runner: &GraphRunner,
    drops: &BTreeMap<String, u64>,
    stopped: &BTreeMap<String, String>,
) -> Outcome {
    let counts = runner.link_counts().map_err(refused)?;
    let workers = runner.workers().map_err(refused)?;
    if shared.json {
        let row = |(name, counts): &(LinkName, carina_frame_engine::LinkCounts)| {
            json!({
                "link": name.to_string(),
                "packets": counts.packets,
                "bytes": counts.bytes,
                "drops": counts.drops,
            })
        };
        let worker = |(number, report): (usize, &WorkerReport)| {
            json!({
                "worker": number,
                "cpu": report.cpu,
                "apps": report.apps,
                "cpu_ns": report.cpu_ns,
            })
        };
        return print_json(&json!({
            "links": counts.iter().map(row).collect::<Vec<_>>(),
            "drops": drops,
            "workers": workers.iter().enumerate().map(worker).collect::<Vec<_>>(),
            "stopped": stopped,
        }));
    }
    let mut table = Table::new(["link", "packets", "bytes", "drops"]);
    for (name, counts) in &counts {
        let figures = [counts.packets, counts.bytes, counts.drops].map(|n| n.to_string());
        table.row([name.to_string()].into_iter().chain(figures));
    }
    print_line(table)?;
    if !drops.is_empty() {
        let mut table = Table::new(["dropped by apps", "packets"]);
        for (name, count) in drops {
            table.row([name.clone(), count.to_string()]);
        }
        print_line(table)?;
    }
    let mut table = Table::new(["worker", "processor", "CPU time, s", "apps"]);
    for (number, report) in workers.iter().enumerate() {
        let cpu = report.cpu.map_or("any".to_owned(), |cpu| cpu.to_string());
        let time = short(report.cpu_ns as f64 / 1e9);
        table.row([number.to_string(), cpu, time, report.apps.join(" ")]);
    }
    print_line(table)?;
    Ok(())
}

/// The command fails if an app has stopped: the graph has not done its work without it.
fn without(stopped: &BTreeMap<String, String>) -> Outcome {
    if stopped.is_empty() {
        return Ok(());
    }
    let apps = stopped.iter();
    let apps = apps.map(|(app, reason)| format!("app {app} has stopped: {reason}"));
    Err(failed(apps.collect::<Vec<_>>().join("\n")))
}

fn draw(shared: &Shared, file: &Path, out: Option<&Path>) -> Outcome {
    let (graph, _) = read(file)?;
    let labels = rates(&counters_of_file(shared, file)?);
    let title = file.file_name().unwrap_or_default().to_string_lossy();
    let picture = picture::svg(&title, &graph, &labels);
    match out {
        Some(path) => fs::write(path, picture).attempt(format!("writing {}", path.display())),
        None => print_line(picture.trim_end()),
    }
}

/// The rates of all links, measured over one second; empty if the graph is not running.
fn rates(counters: &Path) -> BTreeMap<LinkName, String> {
    if !has_writer(counters) {
        return BTreeMap::new();
    }
    let Ok(before) = counter_file::read(counters) else {
        return BTreeMap::new();
    };
    let begin = Instant::now();
    std::thread::sleep(RATE_OVER);
    let Ok(after) = counter_file::read(counters) else {
        return BTreeMap::new();
    };
    let seconds = begin.elapsed().as_secs_f64();
    let links = after.iter().filter_map(|reading| {
        let (link, what) = reading.name.rsplit_once('/')?;
        let link: LinkName = link.parse().ok().filter(|_| what == "packets")?;
        let rate = |what: &str| rate(&before, &after, &format!("{link}/{what}"), seconds);
        let (packets, bytes, drops) = (rate("packets")?, rate("bytes")?, rate("drops")?);
        let mut label = format!(
            "{} Mpps, {} Gb/s",
            short(packets / 1e6),
            short(bytes * 8.0 / 1e9)
        );
        if drops > 0.0 {
            label += &format!(", {} Mpps dropped", short(drops / 1e6));
        }
        Some((link, label))
    });
    links.collect()
}

fn rate(before: &[Reading], after: &[Reading], name: &str, seconds: f64) -> Option<f64> {
    let find = |all: &[Reading]| all.iter().find(|reading| reading.name == name).cloned();
    let (old, new) = (find(before)?, find(after)?);
    let is_same = old.changes == new.changes;
    is_same.then(|| new.value.wrapping_sub(old.value) as f64 / seconds)
}

const SLICE: Duration = Duration::from_millis(100);
/// Time after which a graph's file that could not be read is read again.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(1);
const RATE_OVER: std::time::Duration = std::time::Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_counters_that_are_still_the_same() {
        let reading = |changes, value| Reading {
            name: "a/packets".to_owned(),
            changes,
            value,
        };
        let rate = |old, new| rate(&[old], &[new], "a/packets", 2.0);
        assert_eq!(rate(reading(1, 10), reading(1, 30)), Some(10.0));
        assert_eq!(rate(reading(1, 10), reading(2, 30)), None);
    }
}
