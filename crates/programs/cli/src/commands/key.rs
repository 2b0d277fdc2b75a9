//! `carina key`: makes keys with which members of a DIF prove their identity.

use std::path::PathBuf;

use clap::Subcommand;

use crate::Shared;
use crate::failure::{Attempt, Outcome};
use crate::report::{print_json, print_line};

/// Make keys with which members of normal DIFs prove who they are
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a private key, and print its public line for the ALLOWEDFILE of other members
    #[command(
        after_help = "Example:\n  carina key generate /etc/carina/net.key --name \
        net.host\n\nAdd the printed line to the ALLOWEDFILE (--auth \
        ed25519:KEYFILE,ALLOWEDFILE) of the other members. NAME\nmust be the name of the IPCP \
        that uses the key: DIF.SYSTEM unless --ipcp names it."
    )]
    Generate {
        /// File to create for the private key, readable by its owner only; an existing file is an
        /// error
        file: PathBuf,
        /// Name of the IPCP that will use the key, such as net.host [default: name of the file
        /// without its extension]
        #[arg(long)]
        name: Option<String>,
    },
    /// Print the public line of a private key again
    #[command(after_help = "Example:\n  carina key show /etc/carina/host.key")]
    Show {
        /// File with the private key, as `carina key generate` made it
        file: PathBuf,
    },
}

/// Runs a command of `carina key`.
///
/// # Errors
/// The file to create already exists or cannot be written, or the file to read holds no key.
pub(crate) fn run(shared: &Shared, command: &KeyCommand) -> Outcome {
    let (file, public) = match command {
        KeyCommand::Generate { file, name } => {
            let stem = file.file_stem().map(|stem| stem.to_string_lossy());
            let name = name.clone().or(stem.map(|stem| stem.into_owned()));
            let made = carina_node::key::generate(file, &name.unwrap_or_default());
            (file, made.attempt("making a key")?)
        }
        KeyCommand::Show { file } => {
            let read = carina_node::key::public_line(file);
            (file, read.attempt("reading a key")?)
        }
    };
    if shared.json {
        print_json(&serde_json::json!({ "file": file, "public": public }))
    } else {
        print_line(public)
    }
}
