//! The sshd on the host, and the files with which the guest's ssh reaches it.

use std::path::Path;
use std::process::Command;

use carina_lab::TestNode;
use carina_vm::Image;

use super::client::{SSH_KEY, SSH_PORT};
use crate::error::{Attempt, Error, Result};
use crate::installed::path_of;

/// Makes a pair of keys, and the settings of an sshd that accepts the private key and has it as its
/// host key.
pub(super) fn make_files(node: &TestNode) -> Result<()> {
    let directory = node.path().join(DIRECTORY);
    std::fs::create_dir(&directory).attempt("making a directory for keys")?;
    let key = directory.join(KEY);
    let keygen = path_of("ssh-keygen").ok_or_else(|| missing("ssh-keygen"))?;
    let mut command = Command::new(keygen);
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
    let made = command.arg(&key).status().attempt("making a key")?;
    if !made.success() {
        return Err(Error::NoAnswer("ssh-keygen fails".to_owned()));
    }
    let text = format!(
        "Port {SSH_PORT}\nHostKey {0}\nAuthorizedKeysFile {0}.pub\nStrictModes no\nUsePAM no\n\
         PidFile none\nPermitRootLogin prohibit-password\n",
        key.display()
    );
    std::fs::write(directory.join(SETTINGS), text).attempt("writing the settings of sshd")
}

/// The command of the sshd.
pub(super) fn command(node: &Path) -> Vec<String> {
    let settings = node.join(DIRECTORY).join(SETTINGS);
    // sshd starts itself again for each connection, by the path with which it was started.
    let sshd = path_of("sshd").unwrap_or_else(|| "sshd".into());
    let words = [
        sshd.as_path(),
        Path::new("-D"),
        Path::new("-e"),
        Path::new("-f"),
        &settings,
    ];
    words.map(|word| word.to_string_lossy().into_owned()).into()
}

/// Adds the private key to the guest.
pub(super) fn add_key(image: Image, node: &TestNode) -> Result<Image> {
    let key = std::fs::read(node.path().join(DIRECTORY).join(KEY)).attempt("reading a key")?;
    Ok(image.file(SSH_KEY, 0o600, key))
}

fn missing(program: &str) -> Error {
    Error::NoAnswer(format!("no program {program} here"))
}

/// Directory of the files below the node's run directory.
const DIRECTORY: &str = "ssh";
const KEY: &str = "key";
const SETTINGS: &str = "sshd_config";
