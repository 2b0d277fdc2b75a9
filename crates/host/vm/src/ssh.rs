//! Access to Carina's own guest by ssh: the keys of both sides, and the files that hold them.
//!
//! ```text
//!   host                                    guest
//!   ssh   NAME.ssh.key          ------>     /root/.ssh/authorized_keys
//!         NAME.ssh.known_hosts  <------     /etc/ssh/ssh_host_ed25519_key     sshd
//! ```
//!
//! The host makes both pairs of keys before the guest boots, so it knows the guest's host key, and
//! ssh asks no question. The guest's part is in the initramfs of the machine. Files of the host are
//! readable by their owner only, and are removed with the machine.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Context, Result};
use crate::image::Image;
use crate::machine::Machine;
use crate::tool;

/// The two pairs of keys of a machine: one for its user, and one for the guest's sshd.
#[derive(Debug, Clone)]
pub struct SshKeys {
    user: KeyPair,
    host: KeyPair,
}

#[derive(Debug, Clone)]
struct KeyPair {
    private: Vec<u8>,
    public: String,
}

/// The files by which ssh on the host reaches a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshFiles {
    /// The private key of the user.
    pub key: PathBuf,
    /// The host key of the guest, under the name [`host_key_alias`].
    pub known_hosts: PathBuf,
}

impl SshKeys {
    /// Makes new keys with `ssh-keygen`, in a directory of their own below `run_dir`.
    ///
    /// # Errors
    ///
    /// `ssh-keygen` is missing or fails, or the directory cannot be written.
    pub fn generate(run_dir: &Path) -> Result<SshKeys> {
        let place = private_place(run_dir)?;
        let user = KeyPair::generate(&place, "user");
        let host = KeyPair::generate(&place, "host");
        fs::remove_dir_all(&place).context("remove", &place)?;
        Ok(SshKeys {
            user: user?,
            host: host?,
        })
    }
}

impl SshKeys {
    /// The public key of the user.
    pub(crate) fn of_user(&self) -> &str {
        &self.user.public
    }

    /// The private and the public key of the guest's sshd.
    pub(crate) fn of_host(&self) -> (&[u8], &str) {
        (&self.host.private, &self.host.public)
    }
}

impl KeyPair {
    fn generate(place: &Path, name: &str) -> Result<KeyPair> {
        let path = place.join(name);
        let keygen = tool::find("ssh-keygen", "openssh-client")?;
        let mut command = Command::new(keygen);
        command.args(["-q", "-t", "ed25519", "-N", "", "-C", "carina", "-f"]);
        tool::output(command.arg(&path))?;
        let public = path.with_extension("pub");
        Ok(KeyPair {
            private: fs::read(&path).context("read", &path)?,
            public: fs::read_to_string(&public).context("read", &public)?,
        })
    }
}

impl Image {
    /// Adds the host's own sshd with its libraries: [`Machine::ssh`] starts it.
    ///
    /// # Errors
    ///
    /// The host has no sshd, or the sshd lacks a library.
    pub fn ssh_server(self) -> Result<Image> {
        let sshd = tool::find("sshd", "openssh-server")?;
        let mut image = self.program(SSHD, &sshd)?;
        // Since OpenSSH 9.8, sshd starts other programs for each connection.
        for helper in ["sshd-session", "sshd-auth"] {
            let path = Path::new("/usr/lib/openssh").join(helper);
            if path.is_file() {
                image = image.program(&path.to_string_lossy(), &path)?;
            }
        }
        Ok(image)
    }
}

impl Machine {
    /// Starts sshd in the guest, on port 22 of its loopback interface, and puts the keys into the
    /// guest and into the machine's run directory ([`ssh_files`]). The image must have an
    /// [sshd](Image::ssh_server).
    pub fn ssh(self, keys: &SshKeys) -> Machine {
        self.ssh_keys(keys)
            .file("/etc/passwd", 0o644, PASSWD)
            .file("/etc/ssh/sshd_config", 0o600, SSHD_CONFIG)
            .file(HOST_KEY, 0o600, keys.host.private.clone())
            .file(
                "/root/.ssh/authorized_keys",
                0o600,
                keys.user.public.clone(),
            )
            .command(&format!(
                "mkdir -p /run/sshd && {SSHD} -E /var/log/sshd.log"
            ))
    }

    /// Puts the keys into the machine's run directory ([`ssh_files`]).
    pub(crate) fn ssh_keys(self, keys: &SshKeys) -> Machine {
        let known = format!("{} {}", host_key_alias(self.name()), keys.host.public);
        self.private_file(KEY, keys.user.private.clone())
            .private_file(KNOWN_HOSTS, known)
    }
}

/// Makes a directory that only its owner can read, for files with keys. The caller removes the
/// directory.
pub(crate) fn private_place(run_dir: &Path) -> Result<PathBuf> {
    remove_leftovers(run_dir)?;
    let place = run_dir.join(format!("{PLACE}{}", std::process::id()));
    let mut builder = DirBuilder::new();
    let made = builder.mode(0o700).recursive(true).create(&place);
    made.context("create", &place)?;
    Ok(place)
}

/// Removes the keys of commands that were killed before they had removed them. Keys of this process
/// id are of an earlier process with this id.
fn remove_leftovers(run_dir: &Path) -> Result<()> {
    let entries = match fs::read_dir(run_dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.context("read", run_dir)?,
    };
    for entry in entries {
        let path = entry.context("read", run_dir)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let pid = name.and_then(|name| name.strip_prefix(PLACE)?.parse::<u32>().ok());
        let is_dead =
            |pid: u32| pid == std::process::id() || !Path::new(&format!("/proc/{pid}")).exists();
        if pid.is_some_and(is_dead) {
            match fs::remove_dir_all(&path) {
                // Another command has removed it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                removed => removed.context("remove", &path)?,
            }
        }
    }
    Ok(())
}

/// The name of a guest in its file of known hosts.
pub fn host_key_alias(name: &str) -> String {
    format!("carina.{name}")
}

/// The files for ssh of a machine that was started with [`Machine::ssh`]; `None` for others.
pub fn ssh_files(run_dir: &Path, name: &str) -> Option<SshFiles> {
    let path = |kind: &str| run_dir.join(format!("{name}.{kind}"));
    let files = SshFiles {
        key: path(KEY),
        known_hosts: path(KNOWN_HOSTS),
    };
    (files.key.is_file() && files.known_hosts.is_file()).then_some(files)
}

/// A shell command for a guest that succeeds as soon as a program listens on this TCP port of
/// 127.0.0.1. After a minute it fails and prints the end of `log`.
pub fn await_listener(port: u16, log: &str) -> String {
    format!(
        "n=0; until grep -q ' 0100007F:{port:04X} 00000000:0000 0A' /proc/net/tcp; do \
         n=$((n + 1)); [ $n -le 600 ] || {{ tail -n 5 {log} >&2; exit 1; }}; sleep 0.1; done"
    )
}

/// Name of a directory with new keys, without the process id of the command at its end.
const PLACE: &str = "keys.";

/// Suffixes of the host's files.
const KEY: &str = "ssh.key";
const KNOWN_HOSTS: &str = "ssh.known_hosts";

/// sshd executes itself again by an absolute path.
const SSHD: &str = "/usr/sbin/sshd";
const HOST_KEY: &str = "/etc/ssh/ssh_host_ed25519_key";

/// sshd drops its rights to the user of its own name before a client has logged in.
const PASSWD: &str = "root::0:0:root:/root:/bin/sh\n\
     sshd:x:100:65534:sshd:/run/sshd:/bin/false\n";

const SSHD_CONFIG: &str = "\
ListenAddress 127.0.0.1
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
PidFile /run/sshd.pid
AcceptEnv LANG LC_*
PermitUserEnvironment yes
SetEnv PATH=/bin:/sbin:/usr/bin:/usr/sbin
Subsystem sftp internal-sftp
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_killed_commands_are_removed_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: String| {
            let path = directory.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("user"), "secret").unwrap();
            path
        };
        // No process has this id: it is above the greatest one that Linux gives.
        let dead = make(format!("{PLACE}4194305"));
        let own = make(format!("{PLACE}{}", std::process::id()));
        let alive = make(format!("{PLACE}1"));
        let other = make("keys.of.a.user".to_owned());
        remove_leftovers(directory.path()).unwrap();
        assert_eq!(
            [&dead, &own, &alive, &other].map(|path| path.exists()),
            [false, false, true, true]
        );
        remove_leftovers(&directory.path().join("none")).unwrap();
    }
}
