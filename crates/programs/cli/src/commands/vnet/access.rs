//! `carina vnet token`, `revoke`, `users`: end users of the networks of this host, or of a VNO.

use std::time::Duration;

use carina_text::table::Table;
use carina_vnet::access::{AccessReport, AtAddress, Right, TokenWanted, UserReport};
use carina_vnet::document::Span;

use super::agent::client;
use super::clock::unix_now;
use super::network::{client_of, report_of};
use super::roles::operator::{OperatorArgs, only};
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, usage};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line};

/// Options that identify an end user: network, access point and user.
#[derive(Debug, clap::Args)]
pub(super) struct UserArgs {
    /// Name of the network that the end user may join
    name: String,
    /// Name of the access point where the end user joins the network, as in the network's document
    access: String,
    /// Name of the end user, as the document lists it at the access point
    #[arg(long)]
    user: String,
}

/// Options of `carina vnet token`: for which end user, for how long and with which rights to make a
/// token. With the token one system can join the network (`carina vnet join`): the first that uses
/// it.
#[derive(Debug, clap::Args)]
pub(crate) struct TokenArgs {
    #[command(flatten)]
    of: UserArgs,
    /// Lifetime of the token from now, such as 30m, 12h or 2d; then the user is disconnected
    #[arg(long = "for", value_name = "TIME", default_value = "1h")]
    lease: Span,
    /// Address at which users reach this host, such as 203.0.113.7; up to four [default: the host's
    /// own addresses]
    ///
    /// Add the port if an address translator (NAT) forwards it.
    #[arg(long, value_name = "ADDRESS[:PORT]", conflicts_with = "vno")]
    at: Vec<AtAddress>,
    /// Rights of the user: ip, an address in the network; dif, membership in the network's DIF, if
    /// the access point's node is a member [default: ip]
    #[arg(long = "right", value_name = "RIGHT,...", value_delimiter = ',')]
    rights: Vec<Right>,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Options of `carina vnet revoke`: the end user whose tokens are all revoked.
#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    of: UserArgs,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Options of `carina vnet users`: the network whose end users to list.
#[derive(Debug, clap::Args)]
pub(crate) struct UsersArgs {
    /// Name of the network whose end users to list [default: the only network]
    name: Option<String>,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Makes a token for an end user, and prints it.
///
/// # Errors
/// There is no such network, access point or user, or the lifetime of the token is under 1 s.
pub(super) fn token(shared: &Shared, args: &TokenArgs) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let UserArgs { name, access, user } = &args.of;
    let lease_s = args.lease.duration().as_nanos() / 1_000_000_000;
    if lease_s == 0 {
        return Err(usage("--for: the time must be at least 1s"));
    }
    let rights = args.rights.iter().copied().collect();
    let what = format!("making a token for access point {access} of network {name}");
    let made = match args.operator.client(shared)? {
        Some(vno) => vno
            .token(name, access, user, (lease_s, rights))
            .attempt(what)?,
        None => {
            let wanted = TokenWanted {
                user: user.clone(),
                lease_s,
                at: args.at.clone(),
                rights,
            };
            client_of(shared, name)?
                .token(name, access, &wanted)
                .attempt(what)?
        }
    };
    if shared.json {
        print_json(&made)
    } else {
        // Nothing else is printed, so that the output can be passed on.
        print_line(made.token)
    }
}

/// Revokes all tokens that were made for an end user so far, and disconnects the user's system.
///
/// # Errors
/// There is no such network, access point or user.
pub(super) fn revoke(shared: &Shared, args: &RevokeArgs) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let UserArgs { name, access, user } = &args.of;
    let what = format!("revoking tokens of {user} at access point {access} of network {name}");
    let done = match args.operator.client(shared)? {
        Some(vno) => vno.revoke(name, access, user).attempt(what)?,
        None => client_of(shared, name)?
            .revoke(name, access, user)
            .attempt(what)?,
    };
    if shared.json {
        return print_json(&done);
    }
    let cut = if done.was_joined {
        "is cut off"
    } else {
        "had not joined"
    };
    print_line(format!("{user} {cut}: all tokens made so far are void"))
}

/// Lists the access points of a network with their end users: address, state, bytes.
///
/// # Errors
/// There is no such network.
pub(super) fn users(shared: &Shared, args: &UsersArgs) -> Outcome {
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let name = args.name.as_deref();
    let what = |name: &str| format!("asking for the users of network {name}");
    let (name, points) = match args.operator.client(shared)? {
        Some(vno) => {
            let name = only(&vno, name)?;
            let points = vno.users(&name).attempt(what(&name))?;
            (name, points)
        }
        None => {
            let name = report_of(shared, name)?.name;
            let points = client(shared).access(&name).attempt(what(&name))?;
            (name, points)
        }
    };
    if shared.json {
        return print_json(&points);
    }
    if points.is_empty() {
        return print_line(format!("{name}: no access points here"));
    }
    for point in &points {
        print_point(point)?;
    }
    Ok(())
}

fn print_point(point: &AccessReport) -> Result<(), Failure> {
    let port = point.port;
    print_line(format!("access point {} (UDP port {port})", point.access))?;
    let mut table = Table::new(["USER", "ADDRESS", "STATE", "FROM", "SENT", "RECEIVED"]);
    for user in &point.users {
        table.row([
            user.user.clone(),
            user.address.to_string(),
            state(user),
            user.from
                .map_or_else(|| "-".to_owned(), |time| time.to_string()),
            user.sent_bytes.to_string(),
            user.received_bytes.to_string(),
        ]);
    }
    print_line(&table)?;
    if !point.discarded.is_empty() {
        let all = point.discarded.iter();
        let all: Vec<String> = all.map(|(why, count)| format!("{why} {count}")).collect();
        print_line(format!("discarded: {}", all.join(", ")))?;
    }
    Ok(())
}

fn state(user: &UserReport) -> String {
    let Some(until) = user.until else {
        return "not joined".to_owned();
    };
    let left = Duration::from_secs(until.saturating_sub(unix_now()));
    let handshake = match user.handshake_s {
        Some(_) => "joined",
        None => "silent",
    };
    format!("{handshake}, {} s left", left.as_secs())
}
