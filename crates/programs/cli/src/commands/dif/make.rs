//! `carina dif create`, `join`, `leave` and `expel`.

use std::time::{Duration, Instant};

use carina_api::control::{
    Client, Dialect, DifCreate, DifRole, IpcpInfo, MemberInfo, MemberState, N1State,
};
use carina_api::{AppName, DifName, LocalName};
use serde_json::{Map, Value, json};

use crate::Shared;
use crate::commands::policy::Choice;
use crate::failure::{Attempt, Failure, Outcome, failed, refused, usage};
use crate::interrupt::Interrupt;
use crate::report::{print_json, print_line, progress};

/// Options of `carina dif create`: name and configuration of the DIF, and its first member.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    member: MemberArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Options of `carina dif join`: the DIF to join, over which DIFs, and the new member.
#[derive(Debug, clap::Args)]
pub(crate) struct JoinArgs {
    #[command(flatten)]
    member: MemberArgs,
    /// Name of the member to enroll with, such as net.host [default: any member that answers]
    #[arg(long, value_name = "IPCP")]
    via: Option<AppName>,
    // A member that joins may have these options in dialects rlite and irati only.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Configuration of the DIF. In the native dialect only the first member sets it. In dialect rlite
/// a member that joins may also set it; in dialect irati each member sets its own.
#[derive(Debug, clap::Args)]
#[command(
    next_help_heading = "Configuration of the DIF, set by its first member (dialects rlite and \
        irati: also by a member that joins)"
)]
struct ConfigArgs {
    /// Longest PDU in bytes [default: the longest that all N-1 DIFs carry without fragmenting]
    #[arg(long, value_name = "BYTES")]
    max_pdu: Option<u32>,
    /// Length of a member's address in bytes: 1, 2, 4 or 8 [default: 2; dialect rlite: 4]
    #[arg(long, value_name = "BYTES")]
    address_bytes: Option<u8>,
    /// Policy of one component, such as routing=link-state; may be repeated for other components.
    /// `carina policy list` shows all policies, and the default of each component
    #[arg(long = "policy", value_name = "COMPONENT=NAME[,PARAM=VALUE..]")]
    policies: Vec<Choice>,
    /// Hop limit of PDUs, up to 255: largest number of N-1 flows that a PDU may cross (in dialect
    /// rlite: of relays); then it is dropped [default: 64; dialect irati refuses this option]
    #[arg(long, value_name = "COUNT")]
    hop_limit: Option<u8>,
    /// Interval of keep-alives in milliseconds: after this time without a message from a neighbour,
    /// the member asks whether it lives; a neighbour that does not answer three such messages
    /// counts as lost [default: 5000; dialect rlite: 20000; dialect irati: fixed at 30000]
    #[arg(long, value_name = "MS")]
    keepalive_ms: Option<u32>,
}

impl ConfigArgs {
    /// The configuration options that were given; `None` if no option was given.
    fn to_config(&self) -> Result<Option<Value>, Failure> {
        let mut config = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                config.insert(key.to_owned(), value);
            }
        };
        put("max_pdu", self.max_pdu.map(Value::from));
        put("hop_limit", self.hop_limit.map(Value::from));
        put("keepalive_ms", self.keepalive_ms.map(Value::from));
        put(
            "widths",
            self.address_bytes.map(|bytes| json!({ "address": bytes })),
        );
        if !self.policies.is_empty() {
            let mut policies = Map::new();
            for choice in &self.policies {
                if policies.contains_key(&choice.component) {
                    return Err(usage(format!("{} is given twice", choice.component)));
                }
                let spec = json!({ "name": choice.name, "params": choice.params });
                policies.insert(choice.component.clone(), spec);
            }
            put("policies", Some(Value::Object(policies)));
        }
        Ok((!config.is_empty()).then_some(Value::Object(config)))
    }
}

/// Options that `carina dif create` and `carina dif join` share: the DIF, its N-1 DIFs, and the new
/// member.
#[derive(Debug, clap::Args)]
struct MemberArgs {
    /// Name of the DIF, such as net
    name: DifName,
    /// N-1 DIFs over which the member reaches its neighbours, separated by commas; this system must
    /// already be a member of each
    #[arg(long, value_delimiter = ',', required = true, value_name = "DIF,..")]
    over: Vec<DifName>,
    /// Name of the new member, unique in the DIF [default: DIF.SYSTEM, such as net.host]
    #[arg(long, value_name = "NAME")]
    ipcp: Option<LocalName>,
    /// How members authenticate each other: none, password:FILE or ed25519:KEYFILE,ALLOWEDFILE (see
    /// `carina key`). All members use the same kind. With password, all have the same password;
    /// with ed25519, each has a key of its own, which the ALLOWEDFILE of every other member lists
    /// [default: none]
    #[arg(long, value_name = "KIND:FILE")]
    auth: Option<String>,
    /// Protocol of the DIF, the same at all members: native, or the protocol of another stack,
    /// rlite or irati
    #[arg(long, default_value = "native", value_name = "NAME")]
    dialect: Dialect,
}

impl MemberArgs {
    fn request(&self, role: DifRole) -> Result<DifCreate, Failure> {
        Ok(DifCreate {
            name: self.name.clone(),
            role,
            over: self.over.clone(),
            ipcp: self.ipcp.clone(),
            via: None,
            auth: self.auth.as_deref().map(absolute).transpose()?,
            dialect: self.dialect,
            config: None,
        })
    }
}

/// Refuses a second member of a DIF on this system unless it has a name, because it is more often a
/// mistake than intended. A second member can only join: a second `create` would make another DIF
/// of the same name.
fn is_new(node: &Client, request: &DifCreate) -> Outcome {
    let ipcps = node.ipcps().attempt("listing IPC processes")?;
    let is_one = |ipcp: &&IpcpInfo| {
        let member = ipcp.member.as_ref();
        ipcp.dif == request.name && member.is_some_and(|member| member.state != MemberState::Left)
    };
    match ipcps.iter().find(is_one) {
        Some(ipcp) if request.ipcp.is_none() || request.role == DifRole::Create => {
            Err(refused(format!(
                "this system is in DIF {0} already, as {1}; `carina dif extend` adds an N-1 DIF \
                 to that member, and `carina dif join {0} --via {1} --ipcp NAME` makes a second \
                 member",
                request.name, ipcp.name
            )))
        }
        _ => Ok(()),
    }
}

/// Creates the DIF with its first member.
///
/// # Errors
/// The node refuses or does not run.
pub(super) fn create(shared: &Shared, args: &CreateArgs) -> Outcome {
    let mut request = args.member.request(DifRole::Create)?;
    request.config = args.config.to_config()?;
    let node = shared.control();
    is_new(&node, &request)?;
    let stop = Interrupt::take().attempt("waiting for signals")?;
    let made = node
        .create_dif(&request)
        .attempt(format!("creating DIF {}", request.name))?;
    let policy = WaitPolicy {
        until: Instant::now() + BOOTSTRAP,
        is_for_failures: false,
        stop,
    };
    let member = wait(&node, &made, &policy)?;
    report(shared, &made, &member, "is the first member of")
}

/// Creates a member that enrolls with an existing one, and waits until it is admitted.
///
/// # Errors
/// The node refuses or does not run, or no member admits this one.
pub(super) fn join(shared: &Shared, args: &JoinArgs) -> Outcome {
    let mut request = args.member.request(DifRole::Join)?;
    request.via.clone_from(&args.via);
    request.config = args.config.to_config()?;
    let node = shared.control();
    is_new(&node, &request)?;
    let stop = Interrupt::take().attempt("waiting for signals")?;
    let made = node
        .create_dif(&request)
        .attempt(format!("joining DIF {}", request.name))?;
    let policy = WaitPolicy {
        until: Instant::now() + shared.wait.map_or(ONE_ATTEMPT, Duration::from_nanos),
        is_for_failures: shared.wait.is_some(),
        stop,
    };
    match wait(&node, &made, &policy).and_then(usable) {
        Ok(member) => report(shared, &made, &member, "is a member of"),
        Err(failure @ Failure::Interrupted(_)) => Err(failure),
        Err(failure) => {
            // A member that has not been admitted is removed.
            let _ = node.destroy_ipcp(made.name.as_str());
            Err(failure)
        }
    }
}

/// Returns the member, or an error if one of its N-1 DIFs was refused: a member that joins over
/// several N-1 DIFs needs all of them.
fn usable(member: MemberInfo) -> Result<MemberInfo, Failure> {
    let useless = member.n1.iter().find(|n1| n1.state == N1State::Refused);
    match useless.and_then(|n1| n1.reason.clone()) {
        Some(reason) => Err(refused(reason)),
        None => Ok(member),
    }
}

/// Until when to wait for a member to enroll, and what ends the wait earlier.
struct WaitPolicy {
    until: Instant,
    /// Whether to keep waiting after a failed attempt to enroll.
    is_for_failures: bool,
    /// Detects Ctrl-C, also if it was pressed before the member was made.
    stop: Interrupt,
}

/// Waits until the member is enrolled, refused, or out of time.
fn wait(node: &Client, made: &IpcpInfo, policy: &WaitPolicy) -> Result<MemberInfo, Failure> {
    let mut shown = String::new();
    loop {
        let ipcps = node.ipcps().attempt("reading the state of the member")?;
        let found = ipcps.into_iter().find(|ipcp| ipcp.name == made.name);
        let Some(member) = found.and_then(|ipcp| ipcp.member) else {
            return Err(failed(format!("{} no longer exists", made.name)));
        };
        let why = member.last_error.clone();
        match member.state {
            MemberState::Enrolled => return Ok(member),
            MemberState::Left => return Err(failed(format!("DIF {}: {}", made.dif, member.step))),
            MemberState::Joining => {}
        }
        if member.is_final {
            let why = why.unwrap_or_else(|| "the DIF refused the IPCP".to_owned());
            return Err(refused(format!("DIF {}: {why}", made.dif)));
        }
        if !policy.is_for_failures
            && let (1.., Some(why)) = (member.failures, &why)
        {
            return Err(failed(format!("DIF {}: {why}", made.dif)));
        }
        if Instant::now() >= policy.until {
            let why = why.unwrap_or_else(|| "no member has answered yet".to_owned());
            return Err(failed(format!(
                "DIF {}: still {} ({why})",
                made.dif, member.step
            )));
        }
        let progress_text = match &why {
            Some(why) => format!("{} ({why})", member.step),
            None => member.step,
        };
        if progress_text != shown {
            progress(format!("{}: {progress_text}", made.name));
            shown = progress_text;
        }
        let stop = &policy.stop;
        if stop
            .comes_within(LOOK_AGAIN)
            .attempt("waiting for signals")?
        {
            return Err(Failure::Interrupted(format!(
                "{0} keeps trying: {shown}; `carina dif leave {1} --ipcp {0}` removes it",
                made.name, made.dif
            )));
        }
    }
}

fn report(shared: &Shared, made: &IpcpInfo, member: &MemberInfo, what: &str) -> Outcome {
    if shared.json {
        let mut value = serde_json::to_value(made).attempt("writing JSON")?;
        value["state"] = json!("up");
        value["member"] = serde_json::to_value(member).attempt("writing JSON")?;
        return print_json(&value);
    }
    let address = member
        .address
        .map_or_else(String::new, |address| format!(" with address {address}"));
    print_line(format!("{} {what} DIF {}{address}", made.name, made.dif))
}

/// Ends the member of a DIF on this system.
///
/// # Errors
/// This system has no member of the DIF, or has several and `ipcp` is `None`, or the node does not
/// run.
pub(super) fn leave(shared: &Shared, name: &DifName, ipcp: Option<&LocalName>) -> Outcome {
    shared
        .control()
        .leave_dif(name.as_str(), ipcp.map(LocalName::as_str))
        .attempt(format!("leaving DIF {name}"))?;
    match (shared.json, ipcp) {
        (true, _) => print_json(&json!({ "left": name, "ipcp": ipcp })),
        (false, Some(ipcp)) => print_line(format!("{ipcp} has left DIF {name}")),
        (false, None) => print_line(format!("this system has left DIF {name}")),
    }
}

/// Makes this system's member of a DIF expel another member: it tells that member to leave, and all
/// members refuse it for five minutes.
///
/// # Errors
/// There is no such DIF or member, `member` is this system's own, policy `access-control` of one of
/// the two members forbids it, the expelled member does not answer, or the node does not run.
pub(super) fn expel(shared: &Shared, name: &DifName, member: &str) -> Outcome {
    shared
        .control()
        .expel(name.as_str(), member)
        .attempt(format!("expelling {member} from DIF {name}"))?;
    if shared.json {
        print_json(&json!({ "dif": name, "expelled": member }))
    } else {
        print_line(format!("{member} was asked to leave DIF {name}"))
    }
}

/// Makes the file names of an `--auth` value absolute, because the node has another working
/// directory.
fn absolute(auth: &str) -> Result<String, Failure> {
    let Some((kind, files)) = auth.split_once(':') else {
        return Ok(auth.to_owned());
    };
    let mut full = Vec::new();
    for file in files.split(',') {
        let path = std::path::absolute(file).attempt(format!("--auth {auth}"))?;
        let path = path.to_str().map(str::to_owned);
        full.push(path.ok_or_else(|| usage(format!("--auth {auth}: not UTF-8")))?);
    }
    Ok(format!("{kind}:{}", full.join(",")))
}

/// Time limit for the first member, which needs no admission by another member.
const BOOTSTRAP: Duration = Duration::from_secs(10);

/// Time limit without `--wait`: longer than one attempt to enroll can take.
const ONE_ATTEMPT: Duration = Duration::from_secs(60);

/// Time between two reads of the member's state.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_cannot_use_one_of_its_difs_is_a_failure() {
        let with = |n1: serde_json::Value| {
            let info = json!({
                "role": "join", "over": ["hv.vm1", "lan"], "state": "enrolled", "step": "a member",
                "failures": 0, "neighbours": [], "n1": [n1],
            });
            usable(serde_json::from_value(info).unwrap())
        };
        let up = json!({"dif": "hv.vm1", "remote": "net", "state": "up"});
        assert!(with(up).is_ok());
        let why = "lan carries 1500 bytes";
        let refused = json!({"dif": "lan", "remote": "net", "state": "refused", "reason": why});
        assert!(with(refused).unwrap_err().to_string().contains(why));
    }

    #[test]
    fn files_of_credentials_get_full_names() {
        assert_eq!(absolute("none").unwrap(), "none");
        let full = absolute("ed25519:key,/etc/allowed").unwrap();
        assert!(
            full.starts_with("ed25519:/") && full.ends_with("/key,/etc/allowed"),
            "{full}"
        );
    }
}
