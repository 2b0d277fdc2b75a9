//! `carina vnet up|apply|down|list|status|events --vno`: requests of an operator to a VNO about
//! whole networks. Requests about the inside of a network are in [`super::inside`].

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carina_text::table::Table;
use carina_vnet::document::Document;
use carina_vnet::message::Condition;
use carina_vnet::vno::Seen;
use carina_vnet_roles::calling::connection::CallError;
use carina_vnet_roles::identity::Role;
use carina_vnet_roles::keys::{KeyDir, KeyError};
use carina_vnet_roles::operator::{Client, PipClient};
use serde_json::json;

use super::address;
use crate::Shared;
use crate::commands::vnet::deadline::Deadline;
use crate::commands::vnet::network_report::parts_text;
use crate::failure::{Attempt, Failure, Outcome, failed, refused, usage};
use crate::interrupt::{Interrupt, TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line, progress};

/// Options with which a command calls a VNO instead of the agent of this host: the VNO's address,
/// and the caller's key.
#[derive(Debug, clap::Args)]
pub(crate) struct OperatorArgs {
    /// Send the request to the virtual network operator (VNO) at this ADDRESS:PORT or dif:NAME,
    /// such as 127.0.0.1:7099 [default: to the agent of this host]
    ///
    /// A delegate, to whom an operator has granted rights, also gives the name of the VNO:
    /// acme=192.0.2.1:7099.
    #[arg(
        long,
        value_name = "[NAME=]ADDRESS",
        requires = "keys",
        group = "called"
    )]
    vno: Option<String>,
    /// Directory with your certificate and key, as operator or delegate (made by
    /// `carina vnet keys issue`)
    #[arg(long, value_name = "DIR", requires = "called")]
    keys: Option<PathBuf>,
}

impl OperatorArgs {
    /// A client of the VNO. `None` without `--vno`.
    ///
    /// # Errors
    /// The directory has no certificate of an operator or delegate.
    pub(crate) fn client(&self, shared: &Shared) -> Result<Option<Client>, Failure> {
        let (Some(vno), Some(keys)) = (&self.vno, &self.keys) else {
            return Ok(None);
        };
        let dir = KeyDir::new(keys);
        let client = match vno.split_once('=') {
            Some((name, at)) => Client::of(&dir, name, address(shared, at)?),
            None => Client::new(&dir, address(shared, vno)?),
        };
        match client {
            Err(KeyError::Which { .. }) if dir.only(Role::Delegate).is_ok() => Err(usage(
                "the certificate in --keys is a delegate's: also give the name of the VNO, as \
                 --vno NAME=ADDRESS",
            )),
            client => client.map(Some).attempt("reading the operator's keys"),
        }
    }

    /// A client of the VNO, for commands that only a VNO can carry out.
    ///
    /// # Errors
    /// `--vno` or the certificate is missing.
    pub(crate) fn required(&self, shared: &Shared) -> Result<Client, Failure> {
        let client = self.client(shared)?;
        client.ok_or_else(|| {
            usage(
                "a VNO grants rights: name it with --vno, and the directory of your keys with \
                --keys",
            )
        })
    }

    /// A client of the PIP at an address. The operator's certificate must have the name of the PIP.
    ///
    /// # Errors
    /// There is no certificate of an operator.
    pub(crate) fn pip_client(&self, shared: &Shared, pip: &str) -> Result<PipClient, Failure> {
        let keys = self.keys.as_ref();
        let keys = keys.ok_or_else(|| {
            usage(
                "--pip: also name the directory of the operator's \
            keys, with --keys",
            )
        })?;
        pip_client(shared, pip, keys)
    }
}

/// A client of the PIP at an address, with the keys of its operator.
///
/// # Errors
/// There is no certificate of an operator.
pub(crate) fn pip_client(shared: &Shared, pip: &str, keys: &Path) -> Result<PipClient, Failure> {
    let client = PipClient::new(&KeyDir::new(keys), address(shared, pip)?);
    client.attempt("reading the operator's keys")
}

/// Requests a network and waits until it is ready.
///
/// # Errors
/// The VNO refuses the network, or Ctrl-C or the deadline comes first. The network is then removed,
/// unless `keeps`.
pub(crate) fn up(
    shared: &Shared,
    client: &Client,
    document: &Document,
    (keeps, deadline): (bool, Deadline),
) -> Outcome {
    let name = &document.vnet.name;
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let made = client.create(document);
    made.attempt(format!("making network {name}"))?;
    // If this command is killed, the network stays, so its removal is explained now.
    progress(format!(
        "the VNO keeps network {name} until `carina vnet down {name} --vno …`, even if this \
         command is killed"
    ));
    let outcome = follow(client, (name, 0), &interrupt, deadline);
    if outcome.is_err() && !keeps {
        progress(format!("removing the unfinished network {name}"));
        if let Err(error) = client.remove(name) {
            progress(format!("{error}; `carina vnet down {name}` removes it"));
        }
    }
    show(shared, &outcome?)
}

/// Requests a change of a network, and waits until the network is ready.
///
/// # Errors
/// Those of [`up`], but the VNO keeps the request.
pub(crate) fn apply(
    shared: &Shared,
    client: &Client,
    document: &Document,
    deadline: Deadline,
) -> Outcome {
    let name = &document.vnet.name;
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    // If there is no such network, the change is refused with that reason.
    let events = client.events(name, 0, Duration::ZERO).unwrap_or_default();
    let last = events.last().map_or(0, |event| event.number);
    let changed = client.apply(document);
    changed.attempt(format!("changing network {name}"))?;
    show(shared, &follow(client, (name, last), &interrupt, deadline)?)
}

/// Prints the events of a network after event number `last`, until the network is ready.
fn follow(
    client: &Client,
    (name, mut last): (&str, u64),
    interrupt: &Interrupt,
    deadline: Deadline,
) -> Result<Seen, Failure> {
    loop {
        let what = || format!("waiting for network {name}");
        for event in client.events(name, last, FOLLOW).attempt(what())? {
            last = event.number;
            progress(format!("{:>7} ms  {}", event.at_ms, event.what));
        }
        let seen = client.seen(name).attempt(what())?;
        if seen.standing.is_ready() {
            return Ok(seen);
        }
        if seen.standing.is_refused {
            return Err(refused(format!(
                "network {name} is refused: {}",
                reason(&seen)
            )));
        }
        if interrupt.is_pending().attempt(TAKING_SIGNALS)? {
            return Err(Failure::Interrupted(format!(
                "network {name} was not ready yet: {}",
                reason(&seen)
            )));
        }
        deadline.check(name, reason(&seen))?;
    }
}

/// Removes networks, and waits until nothing is left of them.
///
/// # Errors
/// The network does not exist, or a provider does not answer in time. The VNO then continues to
/// remove it.
pub(crate) fn down(shared: &Shared, client: &Client, name: Option<&str>, all: bool) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let known = known(client)?;
    let names = if all {
        known
    } else {
        vec![chosen_at_vno(name, &known)?]
    };
    for name in &names {
        let what = || format!("removing network {name}");
        client.remove(name).attempt(what())?;
    }
    let deadline = Instant::now() + REMOVAL;
    for name in &names {
        loop {
            match client.seen(name) {
                Err(CallError::Refused(_)) => break,
                Err(error) => return Err(error).attempt(format!("removing network {name}")),
                Ok(seen) if Instant::now() > deadline => {
                    return Err(failed(format!(
                        "network {name} is still being removed: {}",
                        reason(&seen)
                    )));
                }
                Ok(_) => std::thread::sleep(LOOK),
            }
        }
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
/// The VNO does not answer.
pub(crate) fn list(shared: &Shared, client: &Client) -> Outcome {
    let all = client.list().attempt("listing networks")?;
    if shared.json {
        return print_json(&all);
    }
    let mut table = Table::new(["NETWORK", "STATE", "GENERATION", "REASON"]);
    for seen in &all {
        table.row([
            seen.name.clone(),
            state(seen).to_owned(),
            seen.generation.to_string(),
            reason(seen).to_owned(),
        ]);
    }
    print_line(table)
}

/// Prints the state and the conditions of the network `name`; `None` means the only network. As
/// text also its nodes and links, once hosts report them.
///
/// # Errors
/// There is no such network, or `name` is `None` and there is not exactly one network.
pub(crate) fn status(shared: &Shared, client: &Client, name: Option<&str>) -> Outcome {
    let name = chosen_at_vno(name, &known(client)?)?;
    let seen = client.seen(&name).attempt(format!("asking for {name}"))?;
    show(shared, &seen)?;
    if shared.json {
        return Ok(());
    }
    // A network that is not made yet has no report, and some delegates may not read it.
    match client.report(&name) {
        Ok(report) => print_line(format!("\n{}", parts_text(&report))),
        Err(CallError::Refused(_)) => Ok(()),
        Err(error) => {
            progress(format!(
                "the nodes and links of {name} are not known: {error}"
            ));
            Ok(())
        }
    }
}

/// Prints the events of a network since its VNO was started.
///
/// # Errors
/// There is no such network.
pub(crate) fn events(
    shared: &Shared,
    client: &Client,
    name: Option<&str>,
    follows: bool,
) -> Outcome {
    let name = chosen_at_vno(name, &known(client)?)?;
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let (mut last, mut wait) = (0, Duration::ZERO);
    loop {
        let events = client.events(&name, last, wait);
        for event in events.attempt(format!("asking for {name}"))? {
            last = event.number;
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

/// The named network, or the only one.
///
/// # Errors
/// There is no network, or there are several; or the VNO does not answer.
pub(crate) fn only(client: &Client, name: Option<&str>) -> Result<String, Failure> {
    chosen_at_vno(name, &known(client)?)
}

fn known(client: &Client) -> Result<Vec<String>, Failure> {
    let all = client.list().attempt("asking for networks")?;
    Ok(all.into_iter().map(|seen| seen.name).collect())
}

/// The given name, or the only known one.
///
/// # Errors
/// No name is given, and there is no network or there are several.
pub(crate) fn chosen(name: Option<&str>, known: &[String]) -> Result<String, Failure> {
    match (name, known) {
        (Some(name), _) => Ok(name.to_owned()),
        (None, [only]) => Ok(only.clone()),
        (None, []) => Err(failed(
            "there is no network here; `carina vnet up` makes one",
        )),
        (None, _) => Err(usage(format!(
            "there are several networks; name one of {}",
            known.join(", ")
        ))),
    }
}

/// Like [`chosen`], of the networks of a VNO that the caller may see.
///
/// # Errors
/// As for [`chosen`].
fn chosen_at_vno(name: Option<&str>, known: &[String]) -> Result<String, Failure> {
    match (name, known) {
        (None, []) => Err(failed(
            "the VNO has no network on which you have rights; for its operator, `carina vnet up \
             --vno ...` makes one",
        )),
        _ => chosen(name, known),
    }
}

fn show(shared: &Shared, seen: &Seen) -> Outcome {
    if shared.json {
        return print_json(seen);
    }
    let mut table = Table::new(["CONDITION", "HOLDS"]);
    for condition in CONDITIONS {
        let holds = seen.standing.holds.contains(&condition);
        let holds = if holds { "yes" } else { "no" };
        table.row([format!("{condition:?}"), holds.to_owned()]);
    }
    let mut text = format!(
        "{}: {}, generation {}\n",
        seen.name,
        state(seen),
        seen.generation
    );
    if !reason(seen).is_empty() {
        text.push_str(&format!("  {}\n", reason(seen)));
    }
    print_line(format!("{text}\n{table}"))
}

/// The state of a network as a word.
fn state(seen: &Seen) -> &'static str {
    match (seen.standing.is_ready(), seen.standing.is_refused) {
        (true, _) => "ready",
        (_, true) => "refused",
        _ => "changing",
    }
}

fn reason(seen: &Seen) -> &str {
    let reason = seen.standing.reason.as_ref();
    reason.map_or("", |reason| reason.message.as_str())
}

/// The conditions of a network, in the order in which they become true.
const CONDITIONS: [Condition; 6] = [
    Condition::Admitted,
    Condition::Reserved,
    Condition::Provisioned,
    Condition::LinksUp,
    Condition::ConsoleReady,
    Condition::Ready,
];
/// How long one request for events waits; Ctrl-C is checked in between.
const FOLLOW: Duration = Duration::from_millis(200);
/// Time between two checks whether a network is removed.
const LOOK: Duration = Duration::from_millis(50);
/// Time limit for a removal.
const REMOVAL: Duration = Duration::from_secs(120);
