//! The Carina node that makes a user's system a member of a network's DIF.
//!
//! ```text
//!   programs, run directory --run       node of the access point
//!   +----------------------+            +----------------------+
//!   | member home.10.128.. |-- DIF NAME |--- member r1         |
//!   | shim users.home      |            |    shim users.home   |
//!   | UDP, interface tun   |== tunnel ==|    UDP, interface    |
//!   +----------------------+            +----------------------+
//! ```

use std::fmt::Write;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use carina_api::control::{Client, IpcpInfo, MemberState};
use carina_api::paths::RunDir;
use carina_sys::end_with_parent;
use carina_vnet_access::control::{Joined, JoinedDif};
use carina_vnet_access::passage::SHIM_PORT;
use rustix::process::{Pid, Signal, kill_process};

use crate::failure::{Attempt, Failure, Outcome, failed};

/// A Carina node that is stopped when this value is dropped, or when this process ends.
pub(super) struct MemberNode {
    child: Child,
    control: Client,
    dif: String,
    log: PathBuf,
    /// The member's latest report of why it is not enrolled yet.
    step: String,
}

impl MemberNode {
    /// Starts the node in the run directory of this command.
    ///
    /// # Errors
    /// Another node uses the run directory, or the node cannot be started.
    pub(super) fn start(
        run_dir: &RunDir,
        joined: &Joined,
        dif: &JoinedDif,
        access: &str,
    ) -> Result<MemberNode, Failure> {
        let path = run_dir.path();
        let control = Client::new(run_dir.control_sock()).with_answer_limit(ANSWER);
        if control.ipcps().is_ok() {
            return Err(failed(format!(
                "a node with the run directory {} runs already; choose another directory for \
                 the node that becomes a member of DIF {}: carina --run DIR vnet join TOKEN",
                path.display(),
                dif.name
            )));
        }
        fs::create_dir_all(path).attempt(format!("making {}", path.display()))?;
        let file = path.join("join.toml");
        let what = format!("writing {}", file.display());
        fs::write(&file, configuration(joined, dif, access)).attempt(what)?;
        let log = path.join("join.log");
        let stderr = File::create(&log).attempt(format!("writing {}", log.display()))?;
        let program = std::env::current_exe().attempt("finding this program")?;
        let mut command = Command::new(program);
        command
            .arg("--run")
            .arg(path)
            .args(["node", "--config"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr);
        let child = end_with_parent(&mut command).spawn();
        Ok(MemberNode {
            child: child.attempt("starting a node")?,
            control,
            dif: dif.name.clone(),
            log,
            step: "its node does not answer".to_owned(),
        })
    }

    /// Whether the node's member is enrolled.
    ///
    /// # Errors
    /// The node has ended.
    pub(super) fn is_enrolled(&mut self) -> Result<bool, Failure> {
        self.check()?;
        let Ok(ipcps) = self.control.ipcps() else {
            return Ok(false);
        };
        let of_dif = |ipcp: &IpcpInfo| ipcp.dif.as_str() == self.dif;
        let member = ipcps.into_iter().find(of_dif).and_then(|ipcp| ipcp.member);
        let Some(member) = member else {
            return Ok(false);
        };
        let why = member.last_error.unwrap_or_default();
        self.step = format!("{} {why}", member.step);
        Ok(member.state == MemberState::Enrolled)
    }

    /// The error text for a member that has not enrolled within `limit`.
    pub(super) fn why_not(&self, limit: Duration) -> String {
        format!(
            "this system has not become a member of DIF {} within {} s: {}",
            self.dif,
            limit.as_secs(),
            self.step
        )
    }

    /// Checks that the node still runs.
    ///
    /// # Errors
    /// The node has ended.
    pub(super) fn check(&mut self) -> Outcome {
        let ended = self
            .child
            .try_wait()
            .attempt("checking whether the node has ended")?;
        match ended {
            None => Ok(()),
            Some(status) => Err(self.ended(status)),
        }
    }

    /// Asks the node to end; its member then leaves the DIF.
    pub(super) fn begin_to_leave(&mut self) {
        // A node that has ended has no process id any more.
        if self.is_running() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }

    /// Whether the node still runs.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn ended(&self, status: ExitStatus) -> Failure {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().next_back().unwrap_or_default().to_owned();
        failed(format!(
            "the node of the member of DIF {} has ended ({status}): {last}",
            self.dif
        ))
    }
}

impl Drop for MemberNode {
    fn drop(&mut self) {
        // SIGTERM first, so that the node removes its sockets.
        self.begin_to_leave();
        let begin = Instant::now();
        while begin.elapsed() < LEAVE {
            if !self.is_running() {
                return;
            }
            std::thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The node's configuration: a member over a UDP shim, which has the address of the access point's
/// node.
fn configuration(joined: &Joined, dif: &JoinedDif, access: &str) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let (own, node, port) = (joined.address.address(), joined.node, dif.port);
    let (name, via, member) = (quoted(&dif.name), quoted(&dif.via), quoted(&dif.member));
    let below = quoted(&format!("users.{access}"));
    let mut text = format!(
        "[[ipcp]]\nname = {below}\ntype = \"udp\"\ndif = {below}\nlisten = \"{own}:{SHIM_PORT}\"\n\
         sdu_max = 1500\npeers = [{{ name = {via}, address = \"{node}:{port}\" }}]\n"
    );
    let _ = write!(
        text,
        "\n[[dif]]\nname = {name}\nrole = \"join\"\nover = [{below}]\nvia = {via}\n\
         ipcp = {member}\n"
    );
    text
}

const ANSWER: Duration = Duration::from_secs(1);
/// How long the node may take to end.
const LEAVE: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use carina_node::config::Config;

    use super::*;

    #[test]
    fn configuration_is_one_of_a_member_over_the_tunnel() {
        let joined = Joined {
            address: "10.128.0.3/23".parse().unwrap(),
            node: "10.128.0.1".parse().unwrap(),
            mtu: 1420,
            routes: Vec::new(),
            until: 0,
            rate_bps: 1,
            dif: None,
        };
        let dif = JoinedDif {
            name: "a \"b\"\n[x]".to_owned(),
            via: "r1".to_owned(),
            port: 3359,
            member: "home.10.128.0.3".to_owned(),
        };
        // No text from an access point may break out of its string in the configuration.
        let text = configuration(&joined, &dif, "home");
        assert!(text.contains("address = \"10.128.0.1:3359\""), "{text}");
        assert!(!text.lines().any(|line| line == "[x]"), "{text}");
        let dif = JoinedDif {
            name: "club".to_owned(),
            ..dif
        };
        let text = configuration(&joined, &dif, "home");
        let config = Config::parse(&text, None).unwrap();
        assert_eq!((config.ipcps.len(), config.difs.len()), (1, 1));
    }
}
