//! `carina vnet keys`: the authority of providers, and certificates of roles.

use std::path::PathBuf;

use carina_vnet_roles::identity::{Identity, Role};
use carina_vnet_roles::keys::KeyDir;
use clap::Subcommand;
use serde_json::json;

use crate::Shared;
use crate::failure::{Attempt, Outcome, refused};
use crate::report::{print_json, print_line};

/// Make certificates, by which roles know each other
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make an authority: a key that signs certificates, ca.key, and its own certificate, ca.pem
    #[command(after_help = "Example:\n  carina vnet keys ca keys")]
    Ca {
        /// The directory
        dir: PathBuf,
    },
    /// Make a certificate and a key for a role, signed by an authority
    #[command(after_help = "Examples:\n  carina vnet keys issue keys pip uk\n  \
        carina vnet keys issue keys agent h1 --to h1-keys --days 90\n\nRoles: pip, vnp, vno; \
        agent, by the name of its host; operator, by the name of its VNO. The files are copied \
        to where the role runs, but for ca.key.")]
    Issue {
        /// The directory of the authority
        dir: PathBuf,
        /// What the certificate is for: pip, vnp, vno, agent, operator
        role: Role,
        /// The name: up to 32 of a to z, 0 to 9 and `-`
        name: String,
        /// For how many days it is valid
        #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(i64).range(1..=3650))]
        days: i64,
        /// Write to this directory [default: that of the authority]
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
}

/// Runs the command.
///
/// # Errors
/// Something is there already, or cannot be written.
pub fn run(shared: &Shared, command: KeysCommand) -> Outcome {
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
    };
    match shared.json {
        true => print_json(&json!({ "certificate": made })),
        false => print_line(made.display()),
    }
}
