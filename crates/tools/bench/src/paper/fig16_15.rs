//! Figure 16.15: a server moves from one system to another. The client, which knows only the
//! server's name, reaches it again.
//!
//! ```text
//!   s1 (client) ---- s2 (server, then and now) ---- s3 (server, then and now)
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use carina_api::control::DifRole;
use carina_client::{Flow, FlowSpec, Node};
use carina_lab::{Network, TestNode};
use carina_measure::results::{Metric, Row};

use super::plots::{self, Bar, Labels, Spread};
use super::{CaseResults, PaperOptions};
use crate::error::{Error, Result};
use crate::peer::{app_name, client_of, dif_name};

/// Name of this case in the results and in `--cases`.
pub(super) const CASE: &str = "fig16.15";
/// The systems of the table: the directions in which the server moves.
pub(super) const SYSTEMS: [&str; 2] = ["3 to 2", "2 to 3"];
const SERVER: &str = "rina.apps.echotime";
/// Length of an SDU in bytes.
const SDU: usize = 64;
/// How long the client waits for an answer before it allocates another flow.
const ANSWER: Duration = Duration::from_millis(100);
/// How long the server may be unreachable.
const PATIENCE: Duration = Duration::from_secs(60);
/// Least number of moves.
const MOVES_MIN: usize = 5;

/// Runs the measurement.
///
/// # Errors
/// Namespaces cannot be made, or the client does not reach the server again.
pub(super) fn run(options: &PaperOptions) -> Result<CaseResults> {
    options.progress.step("starting three systems");
    let s1 = TestNode::start("s1", Network::Own, None)?;
    let mut s2 = TestNode::start("s2", Network::Own, None)?;
    let mut s3 = TestNode::start("s3", Network::Own, None)?;
    s1.connect("e12", &s2, "e12")?;
    s2.connect("e23", &s3, "e23")?;
    for (node, link) in [(&s1, "e12"), (&s2, "e12"), (&s2, "e23"), (&s3, "e23")] {
        node.add_eth(link, link)?;
    }
    s1.add_member(DifRole::Create, "net", &["e12"])?;
    s2.add_member(DifRole::Join, "net", &["e12", "e23"])?;
    s3.add_member(DifRole::Join, "net", &["e23"])?;
    serve(&mut s3)?;
    s1.wait_for_name_in("net", SERVER)?;
    let mut client = Client::new(&s1)?;
    client.ask_until_answered()?;
    let mut found = CaseResults::default();
    for run in 0..options.runs.max(MOVES_MIN) * 2 {
        let (from, to, direction) = match run % 2 {
            0 => (&mut s3, &mut s2, SYSTEMS[0]),
            _ => (&mut s2, &mut s3, SYSTEMS[1]),
        };
        let last = client.ask_until_answered()?;
        from.stop_last_child();
        serve(to)?;
        let first = client.ask_until_answered()?;
        let gap = first.duration_since(last).as_secs_f64();
        options
            .progress
            .step(format!("{CASE}: the server moved, {direction}: {gap:.3} s"));
        let move_name = move_name(run + 1, direction);
        for system in [direction, &move_name] {
            let samples = &mut found.samples;
            samples.add(CASE, SDU as u64, system, Metric::GapS, gap);
        }
    }
    found.notes = vec![
        "three systems in a row, one normal DIF; the gap is the time from the last answer of the \
         server in one system to the first of that in the other, with the end of one process and \
         the start of the other; the client asks for a flow to the same name again when an answer \
         does not come"
            .to_owned(),
    ];
    Ok(found)
}

/// Name of the row of a move.
fn move_name(number: usize, direction: &str) -> String {
    format!("move {number}, {direction}")
}

/// Number and direction of a move, from the name of its row; `None` for other rows.
fn move_of(system: &str) -> Option<(usize, &'static str)> {
    let (number, direction) = system.strip_prefix("move ")?.split_once(", ")?;
    let direction = SYSTEMS.into_iter().find(|known| *known == direction)?;
    Some((number.parse().ok()?, direction))
}

/// Draws the gap of every move. Returns false if none was measured.
///
/// # Errors
/// The file cannot be written.
pub(super) fn draw(rows: &[Row], path: &Path) -> Result<bool> {
    let is_gap = |row: &&Row| row.case == CASE && row.metric == Metric::GapS;
    let moved = |row: &Row| Some((move_of(&row.system)?, Spread::of(row)));
    let mut moves: Vec<_> = rows.iter().filter(is_gap).filter_map(moved).collect();
    moves.sort_by_key(|((number, _), _)| *number);
    if moves.is_empty() {
        return Ok(false);
    }
    let bar = |((number, direction), spread): ((usize, &str), Spread)| Bar {
        label: number.to_string(),
        group: format!("from {direction}"),
        spread,
    };
    let bars: Vec<Bar> = moves.into_iter().map(bar).collect();
    let labels = Labels {
        title: "fig16.15: the server moves; time without an answer",
        x: "move",
        y: "gap, s",
    };
    plots::bars(&bars, &labels, path)?;
    Ok(true)
}

fn serve(node: &mut TestNode) -> Result<()> {
    Ok(node.start_child(&["ping", "--listen", SERVER, "--quiet"], "echo.log")?)
}

/// A client that knows only the server's name.
struct Client {
    node: Node,
    flow: Option<Flow>,
}

impl Client {
    fn new(node: &TestNode) -> Result<Self> {
        let node = client_of(node)?;
        Ok(Self { node, flow: None })
    }

    /// Sends requests until an answer arrives, and returns the time of its arrival.
    fn ask_until_answered(&mut self) -> Result<Instant> {
        let deadline = Instant::now() + PATIENCE;
        let (local, remote) = (app_name("carina.bench")?, app_name(SERVER)?);
        let dif = dif_name("net")?;
        while Instant::now() < deadline {
            if self.flow.is_none() {
                let spec = FlowSpec::reliable();
                match self.node.allocate(&local, &remote, Some(&dif), &spec) {
                    Ok(flow) => self.flow = Some(flow),
                    // The name is not registered yet.
                    Err(_) => std::thread::sleep(Duration::from_millis(1)),
                }
            }
            let Some(flow) = &mut self.flow else { continue };
            let mut answer = [0; SDU];
            let answered = flow
                .send_until(&[7; SDU], Instant::now() + ANSWER)
                .and_then(|_| flow.recv_timeout(&mut answer, ANSWER));
            match answered {
                Ok(Some(SDU)) if answer == [7; SDU] => return Ok(Instant::now()),
                Ok(Some(_)) => return Err(Error::WrongAnswer("the client".to_owned())),
                Ok(None) | Err(_) => self.flow = None,
            }
        }
        Err(Error::NoAnswer(format!(
            "{SERVER} was not found again in {PATIENCE:?}"
        )))
    }
}
