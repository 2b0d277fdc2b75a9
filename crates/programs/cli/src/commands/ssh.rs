//! `carina ssh`: ssh into a VM that was started with `carina vm run --ssh`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use carina_api::LocalName;
use carina_api::control::{ClientError, LinkState, VmInfo};
use carina_vm::shell::shell_words;
use carina_vm::{SshFiles, host_key_alias, ssh_files};

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, refused, usage};
use crate::report::{print_json, print_line};

/// Log in to a VM over a flow, with ssh and the keys that `carina vm run --ssh` made
///
/// The command becomes ssh(1): it has ssh's exit code, and takes ssh's options before the name.
/// Without USER@ it logs in as root. ssh asks nothing: the host key of the guest is known.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "carina ssh [--config] [SSH-OPTIONS] [USER@]VM [COMMAND]...",
    after_help = "Examples:\n  carina ssh a\n  carina ssh a uname -r\n  \
    carina ssh -L 8080:127.0.0.1:80 a\n  \
    rsync -a -e 'carina ssh' site/ a:/root/site\n  \
    carina ssh --config a >> ~/.ssh/config     then: scp site.tar a:/root\n\n\
    The sshd of the guest is the name ssh.VM in the DIF of the VM. `carina --wait 60s ssh VM` \
    waits\nfor it."
)]
pub(crate) struct SshArgs {
    /// Print lines for ~/.ssh/config, with which ssh, scp, rsync and git reach the VM by its name
    #[arg(long)]
    config: bool,
    /// Options of ssh, the name of the VM, and a command for the guest [default: a shell]
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORDS"
    )]
    words: Vec<OsString>,
}

/// Replaces this process with ssh, which connects to the sshd of a VM over a flow. With `--config`,
/// prints a section for `ssh_config` instead.
///
/// # Errors
/// The VM does not run or has no sshd of Carina's, no node runs, or ssh is not installed.
pub(crate) fn run(shared: &Shared, args: SshArgs) -> Outcome {
    let call = Call::of(&args.words)?;
    let settings = settings(shared, &call.vm)?;
    if args.config {
        if args.words.len() > 1 {
            return Err(usage("--config takes the name of a VM and nothing else"));
        }
        return print_config(shared, &call.vm, &settings);
    }
    let mut command = Command::new("ssh");
    for (key, value) in &settings {
        // ssh takes the first value that it is given, and `-l` or USER@ come later.
        if *key != "User" || !call.names_user {
            command.arg("-o").arg(format!("{key}={value}"));
        }
    }
    let error = command.args(&args.words).exec();
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    let hint = if missing {
        "; install the package openssh-client"
    } else {
        ""
    };
    Err(failed(format!("starting ssh: {error}{hint}")))
}

/// The application name under which the sshd of VM `vm` is registered.
pub(super) fn server_of(vm: &str) -> String {
    format!("ssh.{vm}")
}

/// Waits until a name of a VM is registered, as this host's node sees it.
///
/// # Errors
/// The node does not answer, or the limit has passed.
pub(super) fn wait_for_name(shared: &Shared, vm: &str, name: &str, limit: Duration) -> Outcome {
    let control = shared.control();
    let until = Instant::now() + limit;
    loop {
        let apps = control.apps().attempt("listing names")?;
        if apps.iter().any(|app| app.name.as_str() == name) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(failed(format!(
                "VM {vm}: no application is registered under {name}; see /var/log/carina.log in \
                 the guest (`carina vm console {vm}`)"
            )));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// What Carina needs to know of ssh's arguments: the VM, and whether they name a user.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    vm: LocalName,
    names_user: bool,
}

impl Call {
    /// Parses ssh's arguments. The destination is the first word that is neither an option nor the
    /// value of an option.
    fn of(words: &[OsString]) -> Result<Call, Failure> {
        let mut names_user = false;
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let bytes = word.as_bytes();
            if bytes == b"--" {
                continue;
            }
            let Some(letters) = bytes.strip_prefix(b"-").filter(|some| !some.is_empty()) else {
                return Call::to(word, names_user);
            };
            // Letters without a value may stand together, the last with its value: -vp 22.
            if let Some(at) = letters
                .iter()
                .position(|letter| WITH_VALUE.contains(letter))
            {
                let value = match &letters[at + 1..] {
                    [] => rest.next().map_or(&[][..], |next| next.as_bytes()),
                    attached => attached,
                };
                let mut key = value.split(|byte| b"= \t".contains(byte));
                let is_user = |key: &[u8]| key.eq_ignore_ascii_case(b"user");
                names_user |=
                    letters[at] == b'l' || letters[at] == b'o' && key.next().is_some_and(is_user);
            }
        }
        Err(usage(
            "ssh needs the name of a VM, as `carina vm list` shows it: carina ssh a",
        ))
    }

    fn to(destination: &OsStr, names_user: bool) -> Result<Call, Failure> {
        let text = destination.to_string_lossy();
        let (user, vm) = match text.rsplit_once('@') {
            Some((user, vm)) => (Some(user), vm),
            None => (None, &*text),
        };
        let vm = vm.parse();
        Ok(Call {
            vm: vm.map_err(|error| usage(format!("VM {text:?}: {error}")))?,
            names_user: names_user || user.is_some(),
        })
    }
}

/// The settings with which ssh reaches a VM: keyword and value, as in ssh_config(5).
fn settings(shared: &Shared, vm: &LocalName) -> Result<Vec<(&'static str, String)>, Failure> {
    let directory = shared.run_dir().vm_dir();
    let machines = carina_vm::list(&directory).attempt("listing machines")?;
    if !machines.iter().any(|machine| machine.name == vm.as_str()) {
        return Err(failed(format!(
            "VM {vm} does not run here; `carina vm list` shows the VMs that run, and `carina vm run \
             {vm} --ssh` starts it"
        )));
    }
    let directory = std::path::absolute(&directory).attempt("finding the run directory")?;
    let files = ssh_files(&directory, vm.as_str()).ok_or_else(|| {
        refused(format!(
            "VM {vm} has no keys for ssh: it was started without --ssh; `carina vm stop {vm}` and \
             `carina vm run {vm} --ssh` start it with them"
        ))
    })?;
    let port = match shared.control().vm(vm.as_str()) {
        Err(ClientError::Refused { status: 404, .. }) => Err(failed(format!(
            "VM {vm} has no port in the node that runs here; `carina vm args {vm}` makes one"
        ))),
        port => port.attempt(format!("asking the node for VM {vm}")),
    }?;
    if port.state != LinkState::Up {
        return Err(failed(format!(
            "VM {vm}: its node is not attached; it boots, or see /var/log/carina.log in the guest \
             (`carina vm console {vm}`)"
        )));
    }
    if shared.wait.is_some() {
        let name = server_of(vm.as_str());
        wait_for_name(shared, vm.as_str(), &name, shared.wait_limit())?;
    }
    settings_of(shared, &port, &files)
}

fn settings_of(
    shared: &Shared,
    port: &VmInfo,
    files: &SshFiles,
) -> Result<Vec<(&'static str, String)>, Failure> {
    let program = std::env::current_exe().attempt("finding this program")?;
    let run = std::path::absolute(shared.run_dir().path()).attempt("finding the run directory")?;
    let name = port.name.as_str();
    let proxy = [
        program.to_string_lossy().into_owned(),
        "--run".to_owned(),
        run.to_string_lossy().into_owned(),
        "connect".to_owned(),
        server_of(name),
        "--dif".to_owned(),
        port.dif.to_string(),
        "--fdpass".to_owned(),
    ];
    let file = |path: &std::path::Path| format!("\"{}\"", literal(&path.to_string_lossy()));
    let value = |text: &str| text.to_owned();
    Ok(vec![
        ("User", value("root")),
        ("ProxyCommand", literal(&shell_words(&proxy))),
        ("ProxyUseFdpass", value("yes")),
        ("IdentityFile", file(&files.key)),
        ("IdentitiesOnly", value("yes")),
        ("IdentityAgent", value("none")),
        // A shared connection of the user to another machine with this name must not be used.
        ("ControlPath", value("none")),
        ("UserKnownHostsFile", file(&files.known_hosts)),
        ("GlobalKnownHostsFile", value("/dev/null")),
        ("HostKeyAlias", host_key_alias(name)),
        ("StrictHostKeyChecking", value("yes")),
        ("CheckHostIP", value("no")),
        ("PasswordAuthentication", value("no")),
        ("KbdInteractiveAuthentication", value("no")),
    ])
}

/// Escapes a text for ssh: `%` is doubled, so that ssh does not expand it.
fn literal(text: &str) -> String {
    text.replace('%', "%%")
}

fn print_config(shared: &Shared, vm: &LocalName, settings: &[(&'static str, String)]) -> Outcome {
    if shared.json {
        let all: serde_json::Map<_, _> = settings
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.as_str().into()))
            .collect();
        return print_json(&serde_json::json!({ "host": vm, "settings": all }));
    }
    let lines = settings.iter();
    let lines = lines.map(|(key, value)| format!("\n    {key} {value}"));
    print_line(format!("Host {vm}{}", lines.collect::<String>()))
}

/// The options of ssh that take a value (ssh(1)).
const WITH_VALUE: &[u8] = b"BbcDEeFIiJLlmOoPpQRSWw";

/// Time between two checks whether the name is registered.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn call(words: &[&str]) -> Option<(String, bool)> {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        let call = Call::of(&words).ok()?;
        Some((call.vm.to_string(), call.names_user))
    }

    #[test]
    fn vm_is_found_among_the_options_of_ssh() {
        for (words, vm, names_user) in [
            (&["a"][..], "a", false),
            (&["bob@a", "ls", "-l", "b"], "a", true),
            (&["-v", "-p", "22", "a"], "a", false),
            (&["-vp", "22", "-oUserKnownHosts=x", "a", "b"], "a", false),
            (&["-o", "user bob", "a"], "a", true),
            (&["-oUser=bob", "a"], "a", true),
            (&["-l", "bob", "a", "rsync", "--server"], "a", true),
            (&["-lbob", "-L", "1:b:2", "--", "a"], "a", true),
        ] {
            assert_eq!(call(words), Some((vm.to_owned(), names_user)), "{words:?}");
        }
        for words in [&["-v"][..], &["-p", "22"], &["a b"], &["bob@"]] {
            assert_eq!(call(words), None, "{words:?}");
        }
    }
}
