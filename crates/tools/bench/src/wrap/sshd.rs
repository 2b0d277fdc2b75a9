//! An sshd of this bench. It has one key: the key of the host is also the only one that logs in.

use std::path::{Path, PathBuf};
use std::process::Command;

use carina_namespaces::run_within;

use super::processes::START;
use crate::error::{Attempt, Error, Result};
use crate::installed::path_of;

/// Makes the key and the settings in an existing directory. `listens` are the lines of the settings
/// that say where the sshd listens.
pub(super) fn make_files(directory: &Path, listens: &str) -> Result<()> {
    let key = key(directory);
    let program = path_of("ssh-keygen").unwrap_or_else(|| "ssh-keygen".into());
    let mut keygen = Command::new(program);
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
    let made = run_within(keygen.arg(&key), "ssh-keygen", START)?;
    if !made.status.success() {
        return Err(Error::NoAnswer("ssh-keygen fails".to_owned()));
    }
    let text = format!(
        "{listens}HostKey {0}\nAuthorizedKeysFile {0}.pub\nStrictModes no\nUsePAM no\n\
         PidFile none\nPermitRootLogin prohibit-password\n",
        key.display()
    );
    std::fs::write(settings(directory), text).attempt("writing the settings of sshd")
}

/// Path of the private key.
pub(super) fn key(directory: &Path) -> PathBuf {
    directory.join("key")
}

fn settings(directory: &Path) -> PathBuf {
    directory.join("sshd_config")
}

/// The command of the sshd. As root sshd needs the empty directory /run/sshd, which exists only
/// where a service manager has started the system's own sshd. sshd then gets a /run of its own.
pub(super) fn command(directory: &Path) -> Vec<String> {
    // sshd starts itself again for each connection, and accepts only an absolute path for that.
    let program = path_of("sshd").unwrap_or_else(|| "/usr/sbin/sshd".into());
    let settings = settings(directory);
    let sshd = [&*program.to_string_lossy(), "-D", "-e", "-f"].map(str::to_owned);
    let sshd = sshd.into_iter().chain([settings.to_string_lossy().into()]);
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || Path::new(PRIVILEGE_SEPARATION).is_dir() {
        return sshd.collect();
    }
    let script = format!(
        "mount -t tmpfs -o mode=0755 tmpfs /run && mkdir -m 0755 {PRIVILEGE_SEPARATION} && \
         exec \"$0\" \"$@\""
    );
    let launcher = ["unshare", "--mount", "sh", "-c", &script].map(str::to_owned);
    launcher.into_iter().chain(sshd).collect()
}

/// The directory of Debian's sshd.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";
