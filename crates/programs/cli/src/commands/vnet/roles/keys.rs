//! `carina vnet keys`: the certificate authority of providers, and the certificates of roles.

use std::path::PathBuf;

use carina_text::table::Table;
use carina_vnet_roles::identity::{Identity, Role};
use carina_vnet_roles::keys::KeyDir;
use clap::Subcommand;
use serde_json::json;

use crate::Shared;
use crate::failure::{Attempt, Outcome, refused};
use crate::report::{print_json, print_line};

/// Issue and revoke the certificates by which roles, agents and operators identify themselves
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a certificate authority: its key (ca.key) and its certificate (ca.pem)
    #[command(after_help = "Example:\n  carina vnet keys ca keys")]
    Ca {
        /// Directory to create the files in, such as keys
        dir: PathBuf,
    },
    /// Make a certificate and key for a role, agent, operator or delegate, signed by an authority
    #[command(
        after_help = "Examples:\n  carina vnet keys issue keys pip uk\n  carina vnet keys \
        issue keys agent h1 --to h1-keys --days 90\n\nRoles: pip, vnp and vno; agent, with the \
        name of its host; operator, with the name of its VNO or PIP; delegate, a person to whom an \
        operator grants rights (`carina vnet grant`). Copy the files to the system where the \
        role runs, except ca.key."
    )]
    Issue {
        /// Directory of the authority (`carina vnet keys ca`)
        dir: PathBuf,
        /// Kind of holder: pip, vnp, vno, agent, operator, delegate
        role: Role,
        /// Name of the holder: up to 32 of a to z, 0 to 9 and `-`
        name: String,
        /// Number of days for which the certificate is valid
        #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(i64).range(1..=3650))]
        days: i64,
        /// Directory in which to write the files [default: that of the authority]
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Revoke all certificates of a holder, and write the signed revocation list, revoked.pem
    ///
    /// Copy the list to the key directories of roles and agents, which also have ca.pem. Processes
    /// that run read it within a second, and close connections to holders of revoked certificates.
    #[command(after_help = "Examples:
  carina vnet keys revoke keys agent h1
          cp keys/revoked.pem h2-keys/

A certificate that is issued to the same holder later is valid.")]
    Revoke {
        /// Directory of the authority (`carina vnet keys ca`)
        dir: PathBuf,
        /// Kind of holder: pip, vnp, vno, agent, operator, delegate
        role: Role,
        /// Name of the holder whose certificates to revoke, such as h1
        name: String,
    },
    /// List revoked certificates: serial number, kind and name of the holder, time
    #[command(after_help = "Example:
  carina vnet keys revoked keys")]
    Revoked {
        /// Directory of the authority (`carina vnet keys ca`)
        dir: PathBuf,
    },
}

/// Runs a command of `carina vnet keys`.
///
/// # Errors
/// A file exists already, or cannot be written.
pub(crate) fn run(shared: &Shared, command: KeysCommand) -> Outcome {
    let made = match command {
        KeysCommand::Ca { dir } => {
            let keys = KeyDir::new(dir);
            keys.create_authority().attempt("making an authority")?;
            keys.path().join("ca.pem")
        }
        KeysCommand::Issue {
            dir,
            role,
            name,
            days,
            to,
        } => {
            let party = Identity::new(role, &name).map_err(refused)?;
            let to = KeyDir::new(to.unwrap_or_else(|| dir.clone()));
            let made = KeyDir::new(dir).issue(&party, days, &to);
            made.attempt(format!("making a certificate of {party}"))?
        }
        KeysCommand::Revoke { dir, role, name } => {
            let party = Identity::new(role, &name).map_err(refused)?;
            let keys = KeyDir::new(dir);
            let count = keys.revoke(&party);
            let count = count.attempt(format!("revoking the certificates of {party}"))?;
            let list = keys.path().join("revoked.pem");
            return if shared.json {
                print_json(&json!({ "list": list, "revoked": count }))
            } else {
                print_line(format!("{}: {count} revoked", list.display()))
            };
        }
        KeysCommand::Revoked { dir } => return revoked(shared, &KeyDir::new(dir)),
    };
    if shared.json {
        print_json(&json!({ "certificate": made }))
    } else {
        print_line(made.display())
    }
}

/// Prints the revoked certificates.
fn revoked(shared: &Shared, keys: &KeyDir) -> Outcome {
    let all = keys
        .revocations()
        .attempt("reading the list of revoked certificates")?;
    if shared.json {
        let entry = |(serial, party, at_s): &(String, Identity, u64)| {
            let (role, name) = (party.role.word(), &party.name);
            json!({ "serial": serial, "role": role, "name": name, "at_s": at_s })
        };
        return print_json(&all.iter().map(entry).collect::<Vec<_>>());
    }
    let mut table = Table::new(["SERIAL", "ROLE", "NAME", "REVOKED AT, UNIX TIME"]);
    for (serial, party, at) in all {
        let role = party.role.to_string();
        table.row([serial, role, party.name, format!("{at} s")]);
    }
    print_line(table)
}
