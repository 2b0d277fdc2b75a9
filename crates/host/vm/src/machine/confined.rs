//! Confinement of QEMU: what a guest that breaks out of its machine can do.

use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

use rustix::process::getuid;

use super::Machine;
use crate::accel;
use crate::tool;

/// How QEMU is confined.
#[derive(Debug, Clone, Default)]
pub(super) struct Confined {
    user: Option<u32>,
    is_sandboxed: bool,
}

impl Machine {
    /// Makes QEMU give up root's rights once it has opened its files, sockets and taps. It then
    /// runs as the user with this number, which need not exist, and as the group with the same
    /// number. It can never regain rights (`no_new_privs` of prctl(2)). Only root can do this; see
    /// [`can_be_user`].
    pub fn user(mut self, user: u32) -> Machine {
        self.confined.user = Some(user);
        self
    }

    /// Makes the kernel end QEMU if it makes system calls that it does not need: calls that start
    /// programs or change priorities, and obsolete calls. See [`can_sandbox`].
    pub fn sandboxed(mut self) -> Machine {
        self.confined.is_sandboxed = true;
        self
    }
}

impl Confined {
    /// The words of the command that starts QEMU.
    pub(super) fn launching(&self) -> impl Iterator<Item = OsString> {
        let words: &[&str] = match self.user {
            Some(_) => &["setpriv", "--no-new-privs"],
            None => &[],
        };
        words.iter().map(OsString::from)
    }

    /// The arguments of QEMU for its confinement.
    pub(super) fn qemu_args(&self) -> Vec<OsString> {
        let mut args = Vec::new();
        if self.is_sandboxed {
            args.extend(["-sandbox", SANDBOX].map(OsString::from));
        }
        if let Some(user) = self.user {
            args.extend(["-runas".into(), format!("{user}:{user}").into()]);
        }
        args
    }

    /// The confinement for the machine with this number in a pool. Each machine gets a user of its
    /// own.
    pub(super) fn numbered(&self, number: u64) -> Confined {
        let next = |user: u32| user.wrapping_add(u32::try_from(number % USERS).unwrap_or_default());
        Confined {
            user: self.user.map(next),
            is_sandboxed: self.is_sandboxed,
        }
    }
}

/// Why QEMU cannot run as another user on this host; `None` if it can.
#[must_use]
pub fn can_be_user(user: u32) -> Option<&'static str> {
    if !getuid().is_root() {
        return Some("only root can have QEMU run as another user");
    }
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_mapped = map.lines().any(|line| {
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), _, Some(Ok(count))) = (words.next(), words.next(), words.next())
        else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&u64::from(user))
    });
    if !is_mapped {
        return Some("the user namespace of this process has no such users");
    }
    match tool::find("setpriv", "util-linux") {
        Ok(_) => None,
        Err(_) => Some("setpriv is missing (package util-linux)"),
    }
}

/// Why QEMU's system calls cannot be restricted on this host; `None` if they can.
#[must_use]
pub fn can_sandbox() -> Option<&'static str> {
    static KNOWN: OnceLock<Option<&'static str>> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let seccomp = Path::new("/proc/sys/kernel/seccomp/actions_avail");
        if !seccomp.exists() {
            return Some("this kernel has no filters of seccomp(2)");
        }
        let mut command = std::process::Command::new(accel::qemu().ok()?);
        command.args(["-sandbox", SANDBOX, "-machine", "help"]);
        match tool::output(&mut command) {
            Ok(_) => None,
            Err(_) => Some("this QEMU was built without seccomp"),
        }
    })
}

/// Calls that change the user stay allowed: `elevateprivileges=deny` would end QEMU at that step.
const SANDBOX: &str = "on,obsolete=deny,spawn=deny,resourcecontrol=deny";
/// Number of different users that a pool's machines get.
const USERS: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(machine: &Machine) -> String {
        let all = machine.confined.launching();
        let all = all.chain(machine.confined.qemu_args());
        let all: Vec<String> = all.map(|word| word.into_string().unwrap()).collect();
        all.join(" ")
    }

    #[test]
    fn confined_machine_has_a_user_and_a_sandbox() {
        let machine = Machine::new("a", "/run/x").unwrap();
        assert_eq!(words(&machine), "");
        let machine = machine.user(70_000).sandboxed();
        assert_eq!(
            words(&machine),
            format!("setpriv --no-new-privs -sandbox {SANDBOX} -runas 70000:70000")
        );
        let standing = machine.standing(3);
        assert!(words(&standing).ends_with("-runas 70003:70003"));
    }
}
