//! `carina vnet up`, `apply`, `down`, `list`, `status`, `events`, `test`: networks of this host's
//! agent.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use carina_api::control::ClientError;
use carina_text::table::Table;
use carina_vnet::report::{VnetReport, VnetState};
use carina_vnet_host::client::{Client, REMOVAL};
use carina_vnet_host::directory::is_part_name;
use carina_vnet_host::{Vnets, leftovers};
use serde_json::json;

use super::agent::{ask_or_start, client, reach_or_start, show_page};
use super::deadline::{Deadline, DeadlineArgs};
use super::document::Source;
use super::network_report::{show_report, state_word};
use super::roles::inside;
use super::roles::operator::{self, OperatorArgs, chosen};
use super::user_namespace::{enter_existing, release};
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::interrupt::{Interrupt, TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line, progress};

/// Options of `carina vnet up`: the document of the network to make, and how long to wait.
#[derive(Debug, clap::Args)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    source: Source,
    /// If the network cannot be made completely, or Ctrl-C comes first, keep its parts so that you
    /// can look at them [default: remove them]
    #[arg(long)]
    keep: bool,
    /// Serve a web page of this host's networks at this address of the loopback interface, such as
    /// 127.0.0.1:8080, until the last network is removed [default: no page]
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "vno")]
    web: Option<SocketAddr>,
    #[command(flatten)]
    deadline: DeadlineArgs,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Options of `carina vnet apply`: the changed document, and how long to wait.
#[derive(Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    deadline: DeadlineArgs,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Makes a network, and waits until it is ready.
///
/// # Errors
/// The document is wrong, the network does not fit, or a part of it cannot be made.
pub(super) fn up(shared: &Shared, args: &UpArgs) -> Outcome {
    let document = args.source.read()?;
    if let Some(client) = args.operator.client(shared)? {
        let deadline = args.deadline.of(&document);
        return operator::up(shared, &client, &document, (args.keep, deadline));
    }
    let name = &document.vnet.name;
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    if let Some(address) = args.web {
        show_page(shared, address)?;
    }
    let making = format!("making network {name}");
    let (client, _) = ask_or_start(shared, &making, |client| {
        if args.keep {
            client.create(&document)
        } else {
            client.create_followed(&document)
        }
    })?;
    let deadline = args.deadline.of(&document);
    let outcome = follow_within(&client, (name, 0), &interrupt, deadline);
    if let Err(failure) = &outcome
        && !args.keep
    {
        // After Ctrl-C this command waits only briefly; the agent continues the removal.
        let limit = match failure {
            Failure::Interrupted(_) => HASTE,
            _ => REMOVAL,
        };
        progress(format!("removing the unfinished network {name}"));
        match client.remove(name, limit) {
            Ok(()) | Err(ClientError::Silent { .. }) => {}
            Err(error) => progress(format!("{error}; `carina vnet down {name}` removes it")),
        }
    }
    show_report(shared, &outcome?)
}

/// Changes a network, and waits until it is ready.
///
/// # Errors
/// Those of [`up`]. What was made stays.
pub(super) fn apply(shared: &Shared, args: &ApplyArgs) -> Outcome {
    let document = args.source.read()?;
    if let Some(client) = args.operator.client(shared)? {
        return operator::apply(shared, &client, &document, args.deadline.of(&document));
    }
    let name = &document.vnet.name;
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let client = client_of(shared, name)?;
    let seen = last_event(&client, name);
    client
        .apply(&document)
        .attempt(format!("changing network {name}"))?;
    let deadline = args.deadline.of(&document);
    let outcome = follow_within(&client, (name, seen), &interrupt, deadline);
    show_report(shared, &outcome?)
}

/// Number of the last event of a network; 0 before its first event, and without such a network.
pub(super) fn last_event(client: &Client, name: &str) -> u64 {
    let events = client.events(name, 0, Duration::ZERO).unwrap_or_default();
    events.last().map_or(0, |event| event.number)
}

/// Prints the events of a new network until the network is ready, with the default deadline.
///
/// # Errors
/// The network cannot be made, or Ctrl-C or the deadline comes first.
pub(super) fn follow(
    client: &Client,
    name: &str,
    interrupt: &Interrupt,
) -> Result<VnetReport, Failure> {
    follow_within(client, (name, 0), interrupt, Deadline::usual())
}

/// Prints the events of a network after event number `seen`, until the network is ready or the
/// deadline has passed.
///
/// # Errors
/// Those of [`follow`].
fn follow_within(
    client: &Client,
    (name, mut seen): (&str, u64),
    interrupt: &Interrupt,
    deadline: Deadline,
) -> Result<VnetReport, Failure> {
    loop {
        let events = client.events(name, seen, FOLLOW);
        for event in events.attempt(format!("waiting for network {name}"))? {
            seen = event.number;
            progress(format!("{:>7} ms  {}", event.at_ms, event.what));
        }
        let asked = Instant::now();
        let report = client
            .report(name)
            .attempt(format!("waiting for network {name}"))?;
        let took = asked.elapsed();
        match report.state {
            VnetState::Ready => return Ok(report),
            VnetState::Changing => {}
            VnetState::Failed | VnetState::Degraded => {
                let why = report.obstacles.join("; ");
                return Err(failed(format!("network {name} is not ready: {why}")));
            }
        }
        if interrupt.is_pending().attempt(TAKING_SIGNALS)? {
            return Err(Failure::Interrupted(format!(
                "network {name} was not ready yet"
            )));
        }
        deadline.check(name, &report.obstacles.join("; "))?;
        // A large network has many events, and a report of it is long: most of the time is left to
        // the making of the network.
        std::thread::sleep(REPORT_PAUSE_MAX.min(took * REPORT_PAUSE));
    }
}

/// Prints the events of a network of this host's agent after event number `seen`, until the network
/// is ready, and then its state.
///
/// # Errors
/// Those of [`follow`].
pub(super) fn follow_until_settled(
    shared: &Shared,
    client: &Client,
    (name, seen): (&str, u64),
) -> Outcome {
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let report = follow_within(client, (name, seen), &interrupt, Deadline::usual());
    show_report(shared, &report?)
}

/// Removes networks, whether or not their agent runs.
///
/// # Errors
/// There is no such network, or a part of it cannot be removed.
pub(super) fn down(shared: &Shared, name: Option<&str>, all: bool) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let client = client(shared);
    let has_agent = client.list().is_ok();
    if !has_agent {
        enter_existing(shared)?;
    }
    let vnets = Vnets::of(&shared.run_dir());
    let mut known = vnets.names().attempt("listing networks")?;
    if has_agent {
        // Parts that a provider ordered are left out: the provider would have them made again.
        known.retain(|name| !is_part_name(name));
    }
    let names = if all {
        known
    } else {
        vec![chosen(name, &known)?]
    };
    for name in &names {
        let what = format!("removing network {name}");
        match has_agent {
            true => client.remove(name, REMOVAL).attempt(what)?,
            false if vnets.has(name) => {
                leftovers::remove_recorded(&vnets.vnet(name)).attempt(what)?;
            }
            false => return Err(failed(format!("there is no network {name} here"))),
        }
    }
    if all && !has_agent {
        leftovers::remove_pool(&vnets).attempt("ending the ready machines of the pool")?;
    }
    if !has_agent {
        release(shared)?;
    }
    match shared.json {
        true => print_json(&json!({ "removed": names })),
        false if names.is_empty() => print_line("there is no network"),
        false => print_line(format!("{}: removed", names.join(", "))),
    }
}

/// Prints the networks.
///
/// # Errors
/// The agent fails.
pub(super) fn list(shared: &Shared) -> Outcome {
    let reports = reports(shared)?;
    if shared.json {
        return print_json(&reports);
    }
    let mut table = Table::new(["NETWORK", "STATE", "NODES", "LINKS"]);
    for report in reports {
        let (nodes, links) = (
            report.nodes.len().to_string(),
            report.links.len().to_string(),
        );
        table.row([
            report.name,
            state_word(report.state).to_owned(),
            nodes,
            links,
        ]);
    }
    print_line(table)
}

/// Prints nodes, links and phases of a network.
///
/// # Errors
/// There is no such network.
pub(super) fn status(shared: &Shared, name: Option<&str>) -> Outcome {
    show_report(shared, &report_of(shared, name)?)
}

/// Prints the events of a network; with `follows` also new ones until Ctrl-C.
///
/// # Errors
/// There is no such network.
pub(super) fn events(shared: &Shared, name: Option<&str>, follows: bool) -> Outcome {
    let name = report_of(shared, name)?.name;
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let (client, mut seen) = (client(shared), 0);
    let mut wait = Duration::ZERO;
    loop {
        for event in client
            .events(&name, seen, wait)
            .attempt(format!("asking for {name}"))?
        {
            seen = event.number;
            if shared.json {
                print_json(&event)?
            } else {
                print_line(format!("{:>7} ms  {}", event.at_ms, event.what))?
            }
        }
        if !follows || interrupt.is_pending().attempt(TAKING_SIGNALS)? {
            return Ok(());
        }
        wait = FOLLOW;
    }
}

/// Runs the tests of a network, and prints the results.
///
/// # Errors
/// A test fails.
pub(super) fn test(shared: &Shared, name: Option<&str>, operator: &OperatorArgs) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let tests = match operator.client(shared)? {
        Some(vno) => inside::test(&vno, name)?,
        None => {
            let name = report_of(shared, name)?.name;
            let what = format!("testing network {name}");
            client(shared).test(&name).attempt(what)?
        }
    };
    if shared.json {
        print_json(&tests)?;
    } else {
        let mut table = Table::new(["TEST", "HOLDS", "SEEN"]);
        for test in &tests {
            let holds = if test.holds { "yes" } else { "no" };
            table.row([test.test.as_str(), holds, test.seen.as_str()]);
        }
        print_line(table)?;
    }
    match tests.iter().filter(|test| !test.holds).count() {
        0 => Ok(()),
        count => Err(failed(format!(
            "{count} of {} tests do not hold",
            tests.len()
        ))),
    }
}

/// The report of the named network, or of the only one.
///
/// # Errors
/// There is no such network, or no agent.
pub(super) fn report_of(shared: &Shared, name: Option<&str>) -> Result<VnetReport, Failure> {
    let mut reports = reports(shared)?;
    let known: Vec<String> = reports.iter().map(|report| report.name.clone()).collect();
    let name = chosen(name, &known)?;
    let place = reports.iter().position(|report| report.name == name);
    match place {
        Some(place) => Ok(reports.swap_remove(place)),
        None if known.is_empty() => Err(failed(format!("there is no network {name} here"))),
        None => {
            let known = known.join(", ");
            Err(failed(format!(
                "there is no network {name} here; there are: {known}"
            )))
        }
    }
}

/// The reports of all networks; an empty list if there are no networks and no agent.
fn reports(shared: &Shared) -> Result<Vec<VnetReport>, Failure> {
    match client_with_agent(shared)?.list() {
        Err(ClientError::Connect { source, .. }) if is_missing(&source) => Ok(Vec::new()),
        reports => reports.attempt("asking for networks"),
    }
}

/// A client of the agent. If there are networks whose agent has ended, starts an agent that adopts
/// them. If there are no networks, the client may be one to which no agent answers.
///
/// # Errors
/// No agent can be started for existing networks.
pub(super) fn client_with_agent(shared: &Shared) -> Result<Client, Failure> {
    let client = client(shared);
    let deadline = Instant::now() + DYING;
    loop {
        match client.list() {
            Err(ClientError::Connect { source, .. }) if is_missing(&source) => break,
            // The socket of an agent that was killed accepts connections until all of its threads
            // have ended.
            Err(ClientError::Io { .. }) if Instant::now() < deadline => std::thread::sleep(LOOK),
            // The next request reports any other error.
            _ => return Ok(client),
        }
    }
    let names = Vnets::of(&shared.run_dir()).names();
    let names = names.attempt("looking for networks without an agent")?;
    if names.is_empty() {
        return Ok(client);
    }
    let ended = format!("the agent of {} has ended", names.join(", "));
    if names.iter().any(|name| is_part_name(name)) {
        return Err(failed(format!(
            "{ended}; start the agent again with its former options, so that it takes the \
             networks over: `carina vnet agent --host HOST --pip NAME=ADDRESS --keys DIR ...`"
        )));
    }
    progress(format!(
        "{ended}; starting another agent, which takes the networks over"
    ));
    let client = reach_or_start(shared)?;
    let deadline = Instant::now() + TAKE_UP;
    loop {
        let reports = client.list().attempt("asking for networks")?;
        let mut states = reports.iter().map(|report| report.state);
        if states.all(|state| state != VnetState::Changing) || Instant::now() > deadline {
            return Ok(client);
        }
        std::thread::sleep(LOOK);
    }
}

/// A client of the agent, for a request about the network `name`.
///
/// # Errors
/// As for [`client_with_agent`]. If no agent runs, the error says that there is no network.
pub(super) fn client_of(shared: &Shared, name: &str) -> Result<Client, Failure> {
    let client = client_with_agent(shared)?;
    match client.list() {
        Err(ClientError::Connect { source, .. }) if is_missing(&source) => Err(failed(format!(
            "there is no network {name} here; `carina vnet up` makes one"
        ))),
        // The request reports any other error.
        _ => Ok(client),
    }
}

/// Whether the error means that no process serves the socket.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// How long an interrupted command waits for the agent.
const HASTE: Duration = Duration::from_secs(1);
/// How long an agent that was killed may take to end.
const DYING: Duration = Duration::from_secs(5);
/// How long an agent may take to adopt existing networks before the command continues.
const TAKE_UP: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// How long one request for events waits; Ctrl-C is checked in between.
const FOLLOW: Duration = Duration::from_millis(200);
/// After each report of the network, the command pauses this many times as long as the request for
/// the report took, but at most [`REPORT_PAUSE_MAX`].
const REPORT_PAUSE: u32 = 4;
const REPORT_PAUSE_MAX: Duration = Duration::from_millis(500);
