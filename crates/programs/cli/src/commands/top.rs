//! `carina top`: shows live rates, read from the counters in shared memory without a request to the
//! node.

mod graphs;
pub(crate) mod live;
#[cfg(feature = "screen")]
mod screen;

use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_engine::counters::{Kind, Snapshot, Value, read};
use carina_text::duration::parse_ns;
use carina_text::table::{Table, short};
use serde::Serialize;

use self::graphs::GraphSample;
use self::live::{Column, Live};
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome};
use crate::interrupt::{Interrupt, TAKING_SIGNALS};
use crate::report::{print_json, print_line};

/// Show live rates of IPCPs, flows and VM channels, and of links and apps of graphs
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  carina top\n  carina top --once\n  carina top --json --interval \
    5s\n\nThe command only reads shared memory: it does not slow the node down, and works when \
    the node is stuck or dead. For graphs it shows the links, whose packets count as SDUs, and \
    the apps with counters above 0. Arrows and page keys scroll, q quits. With --json, the \
    command prints one line per interval."
)]
pub(crate) struct TopArgs {
    /// Time from one refresh to the next, over which each rate is averaged, such as 5s; a value
    /// below 10ms counts as 10ms
    #[arg(long, short, default_value = "1s", value_parser = parse_ns)]
    interval: u64,
    /// Print one table after one interval and exit [default: refresh the screen until q is pressed]
    #[arg(long)]
    once: bool,
}

/// Rates of one row over an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Rates {
    kind: &'static str,
    id: u64,
    name: String,
    /// Why a graph's port carries no frames. `None` if the port carries frames, and for a row that
    /// is not about a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    sdus_in_per_s: f64,
    mbps_in: f64,
    sdus_out_per_s: f64,
    mbps_out: f64,
    doorbells_per_s: f64,
    drops: u64,
    /// Counters of the row's IPCP, flow or other object since it exists, by name, such as
    /// `drop_efcp`; those that are 0 are left out. The key `channel` has the number of a VMPI
    /// channel.
    totals: std::collections::BTreeMap<String, u64>,
}

/// All counters at one moment.
struct Sample {
    rows: Vec<Snapshot>,
    graphs: Vec<GraphSample>,
}

impl Sample {
    fn take(directory: &RunDir) -> Result<Sample, Failure> {
        let graphs = graphs::running_graphs(directory.path());
        let rows = match read(&directory.counters()) {
            // Graphs run without a node too, so missing counters of a node are no error then.
            Err(_) if !graphs.is_empty() => Vec::new(),
            rows => rows.attempt("reading the counters of a node; has `carina node` run here?")?,
        };
        Ok(Sample { rows, graphs })
    }
}

/// Shows live rates of the counters in this run directory, until the user quits or a signal
/// arrives; with `--once`, of one interval.
///
/// # Errors
/// No node has run in this run directory, so there are no counters.
pub(crate) fn run(shared: &Shared, args: &TopArgs) -> Outcome {
    show(shared, args, &Counters(shared.run_dir()))
}

/// Shows live rates: on a screen, or as one table, or with `--json` as one line for each interval.
/// Without the feature `screen`, prints one table after each interval in place of the screen.
///
/// # Errors
/// A sample cannot be taken.
pub(crate) fn show<L: Live<Row: Serialize>>(shared: &Shared, args: &TopArgs, live: &L) -> Outcome {
    let interval = Duration::from_nanos(args.interval.max(10_000_000));
    #[cfg(feature = "screen")]
    if !shared.json && !args.once {
        return screen::run(interval, live);
    }
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let mut before = (Instant::now(), live.sample()?);
    while !interrupt.comes_within(interval).attempt(TAKING_SIGNALS)? {
        let after = (Instant::now(), live.sample()?);
        let rates = live.rates(&before.1, &after.1, (after.0 - before.0).as_secs_f64());
        if shared.json {
            print_json(&serde_json::json!({ "rows": rates }))?
        } else {
            print_line(plain::<L>(&rates))?
        }
        if args.once {
            break;
        }
        before = after;
    }
    Ok(())
}

/// The counters of a run directory, as rows of live rates.
struct Counters(RunDir);

impl Live for Counters {
    type Sample = Sample;
    type Row = Rates;

    const COLUMNS: &'static [Column] = &[
        Column::new("KIND", 6),
        Column::wide("ID", 10),
        Column::new("NAME", 0),
        Column::wide("CH", 5),
        Column::new("SDU/s IN", 9),
        Column::new("Mbit/s IN", 9),
        Column::new("SDU/s OUT", 9),
        Column::new("Mbit/s OUT", 10),
        Column::wide("DOORBELLS/s", 11),
        Column::new("DROPS", 8),
    ];

    fn sample(&self) -> Result<Sample, Failure> {
        Sample::take(&self.0)
    }

    fn rates(&self, before: &Sample, after: &Sample, seconds: f64) -> Vec<Rates> {
        rates(before, after, seconds)
    }

    fn cells(row: &Rates) -> Vec<String> {
        row.cells().into()
    }

    fn is_marked(row: &Rates) -> bool {
        row.drops > 0
    }
}

fn rates(before: &Sample, after: &Sample, seconds: f64) -> Vec<Rates> {
    let one = |now: &Snapshot| {
        // A relayed flow has two apps, whose rows differ in their names only.
        let mark = |row: &Snapshot| (row.kind, row.id, row.changes, row.name.clone());
        let mark_now = mark(now);
        let same = |was: &&Snapshot| mark(was) == mark_now;
        let was = before.rows.iter().find(same);
        let rate = |value: Value| {
            let gone = now
                .get(value)
                .wrapping_sub(was.map_or(0, |was| was.get(value)));
            gone as f64 / seconds.max(1e-6)
        };
        let totals = Value::ALL
            .iter()
            .map(|value| (value.label().to_owned(), now.get(*value)));
        Rates {
            kind: now.kind.label(),
            id: now.id,
            name: now.name.clone(),
            state: None,
            sdus_in_per_s: rate(Value::SdusIn),
            mbps_in: rate(Value::BytesIn) * 8e-6,
            sdus_out_per_s: rate(Value::SdusOut),
            mbps_out: rate(Value::BytesOut) * 8e-6,
            doorbells_per_s: rate(Value::Doorbells),
            drops: now.drops(),
            totals: totals.filter(|(_, total)| *total > 0).collect(),
        }
    };
    let mut rows: Vec<&Snapshot> = after.rows.iter().collect();
    let rank = |kind: Kind| match kind {
        Kind::Engine => 0,
        Kind::Ipcp => 1,
        Kind::Flow => 2,
    };
    rows.sort_by_key(|row| (rank(row.kind), row.id));
    let mut all: Vec<Rates> = rows.into_iter().map(one).collect();
    all.extend(graphs::rates(&before.graphs, &after.graphs, seconds));
    all
}

impl Rates {
    /// The number of the VMPI channel that carries the flow, or `-`.
    fn channel(&self) -> String {
        let channel = self.totals.get(Value::Channel.label());
        channel.map_or_else(|| "-".to_owned(), u64::to_string)
    }

    /// The name of the row, with the state of a port that carries no frames.
    fn named(&self) -> String {
        match &self.state {
            Some(state) => format!("{}: {state}", self.name),
            None => self.name.clone(),
        }
    }

    fn cells(&self) -> [String; 10] {
        [
            self.kind.to_owned(),
            self.id.to_string(),
            self.named(),
            self.channel(),
            short(self.sdus_in_per_s),
            short(self.mbps_in),
            short(self.sdus_out_per_s),
            short(self.mbps_out),
            short(self.doorbells_per_s),
            self.drops.to_string(),
        ]
    }
}

fn plain<L: Live>(rates: &[L::Row]) -> Table {
    let mut table = Table::new(L::COLUMNS.iter().map(|column| column.head));
    rates.iter().for_each(|row| table.row(L::cells(row)));
    table
}
