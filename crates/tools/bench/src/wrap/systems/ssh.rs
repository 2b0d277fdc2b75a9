//! `ssh -L` to an sshd of this bench, with keys of its own.

use std::path::Path;
use std::process::Command;

use carina_namespaces::run_within;

use super::{Plain, Route, Started};
use crate::error::{Attempt, Error, Result};
use crate::installed::path_of;
use crate::wrap::SSH;
use crate::wrap::processes::{LOOPBACK, START, free_port, listening};

pub(super) fn start(servers: &[Plain], directory: &Path) -> Result<Started> {
    let [key, settings] = ["key", "sshd_config"].map(|name| directory.join(name));
    let mut keygen = Command::new("ssh-keygen");
    let options = ["-q", "-t", "ed25519", "-N", "", "-f"];
    keygen.args(options).arg(&key);
    let made = run_within(&mut keygen, "ssh-keygen", START)?;
    if !made.status.success() {
        return Err(Error::NoAnswer("ssh-keygen fails".to_owned()));
    }
    let of_sshd = free_port()?;
    let text = format!(
        "Port {of_sshd}\nListenAddress {LOOPBACK}\nHostKey {0}\nAuthorizedKeysFile {0}.pub\n\
         StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\n",
        key.display()
    );
    std::fs::write(&settings, text).attempt("writing the settings of sshd")?;
    let mut server = sshd();
    server.args(["-D", "-e", "-f"]).arg(&settings);
    let mut started = Started::default();
    let server = listening(server, directory, "sshd", of_sshd)?;
    let mut client = Command::new("ssh");
    client.args(["-N", "-F", "/dev/null", "-p", &of_sshd.to_string()]);
    for option in [
        "BatchMode=yes",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "ExitOnForwardFailure=yes",
    ] {
        client.args(["-o", option]);
    }
    client.arg("-i").arg(&key);
    for server in servers {
        let port = free_port()?;
        let forward = format!("{LOOPBACK}:{port}:{LOOPBACK}:{}", server.port);
        client.args(["-L", &forward]);
        started
            .routes
            .push(Route::through(SSH, server.program, port));
    }
    client.arg(LOOPBACK);
    if let Some(last) = started.routes.last() {
        // ssh opens the ports in the order of its options.
        let client = listening(client, directory, SSH, last.port)?;
        started.processes.push(client);
    }
    started.processes.push(server);
    Ok(started)
}

/// The command of sshd. As root sshd needs the empty directory /run/sshd, which exists only where a
/// service manager has started the system's own sshd. sshd then gets a /run of its own.
fn sshd() -> Command {
    // sshd starts itself again for each connection, and accepts only an absolute path for that.
    let program = path_of("sshd").unwrap_or_else(|| "/usr/sbin/sshd".into());
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || Path::new(PRIVILEGE_SEPARATION).is_dir() {
        return Command::new(program);
    }
    let script = format!(
        "mount -t tmpfs -o mode=0755 tmpfs /run && mkdir -m 0755 {PRIVILEGE_SEPARATION} && \
         exec \"$0\" \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).arg(program);
    command
}

/// The directory of Debian's sshd.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";
