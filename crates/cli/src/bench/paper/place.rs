//! A system of a bench: a network namespace of its own with a node in it, and applications.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use carina_api::control::{
    Client, DifCreate, DifRole, FaultSpec, IpcpCreate, IpcpType, MemberState,
};
use carina_api::{AppName, DifName, LocalName};

use super::order::{Finding, Order};
use crate::bench::household::{Household, Within};
use crate::failure::{Attempt, Failure, Outcome, failed};

/// How long a member may take to be enrolled.
const ENROLLED: Duration = Duration::from_secs(30);

/// A system. What it has ends when it is dropped.
#[derive(Debug)]
pub struct Place {
    /// Its name.
    pub name: String,
    household: Household,
}

impl Place {
    /// Starts a node in a network namespace of its own.
    ///
    /// # Errors
    /// No namespace can be made, or the node does not start.
    pub fn start(name: &str) -> Result<Self, Failure> {
        let household = Household::start_in(&format!("bench-{name}"), Within::NewNamespace)?;
        let place = Self {
            name: name.to_owned(),
            household,
        };
        place.ip(&["link", "set", "dev", "lo", "up"])?;
        Ok(place)
    }

    /// The directory of its node.
    pub fn path(&self) -> &Path {
        self.household.path()
    }

    /// Number of its node's process.
    pub fn pid(&self) -> u32 {
        self.household.pid()
    }

    /// Its node's control socket.
    pub fn control(&self) -> Client {
        self.household.control()
    }

    /// Runs `ip` inside.
    ///
    /// # Errors
    /// `ip` refuses.
    pub fn ip(&self, arguments: &[&str]) -> Outcome {
        self.inside("ip", arguments).map(|_| ())
    }

    /// Runs a program inside and gives what it says on standard output.
    ///
    /// # Errors
    /// It cannot be started or fails.
    pub fn inside(&self, program: &str, arguments: &[&str]) -> Result<String, Failure> {
        let output = self
            .command(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .attempt(format!("running {program} in {}", self.name))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        let what = arguments.join(" ");
        let name = &self.name;
        Err(failed(format!(
            "in {name}, {program} {what}: {}",
            words.trim()
        )))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(self.household.namespace_argument())
            .arg("--")
            .arg(program);
        command
    }

    /// Makes a member of an Ethernet shim DIF on an interface, without a VLAN tag.
    ///
    /// # Errors
    /// The node refuses.
    pub fn eth(&self, interface: &str, dif: &str, fault: Option<FaultSpec>) -> Outcome {
        self.ip(&["link", "set", "dev", interface, "up"])?;
        let name = LocalName::new(format!("eth.{interface}")).attempt("naming an IPCP")?;
        let mut create = IpcpCreate::new(name, IpcpType::Eth, dif_name(dif)?);
        create.interface = Some(interface.to_owned());
        create.vlan = Some(0);
        create.fault = fault;
        let made = self.control().create_ipcp(&create);
        made.attempt(format!("making the IPCP of {interface} in {}", self.name))?;
        Ok(())
    }

    /// Makes the first member of a normal DIF, or joins it, and waits until it is enrolled.
    ///
    /// # Errors
    /// The node refuses, or nobody admits the member in time.
    pub fn member(&self, role: DifRole, dif: &str, over: &[&str]) -> Outcome {
        self.begin_member(role, dif, over)?;
        self.enrolled(dif)
    }

    /// Does not wait as [`Place::member`] does.
    ///
    /// # Errors
    /// The node refuses.
    pub fn begin_member(&self, role: DifRole, dif: &str, over: &[&str]) -> Outcome {
        let over: Result<Vec<DifName>, Failure> = over.iter().map(|dif| dif_name(dif)).collect();
        let ipcp = LocalName::new(format!("{dif}.{}", self.name)).attempt("naming an IPCP")?;
        let create = DifCreate {
            name: dif_name(dif)?,
            role,
            over: over?,
            ipcp: Some(ipcp),
            via: None,
            auth: None,
            dialect: Default::default(),
            config: None,
        };
        let made = self.control().create_dif(&create);
        made.attempt(format!("making a member of {dif} in {}", self.name))?;
        Ok(())
    }

    /// Waits until the member of a DIF is enrolled.
    ///
    /// # Errors
    /// It is not in time.
    pub fn enrolled(&self, dif: &str) -> Outcome {
        let deadline = Instant::now() + ENROLLED;
        loop {
            let ipcps = self.control().ipcps().attempt("listing IPCPs")?;
            let member = ipcps
                .into_iter()
                .find(|ipcp| ipcp.dif.as_str() == dif)
                .and_then(|ipcp| ipcp.member)
                .ok_or_else(|| failed(format!("{} has no member of {dif}", self.name)))?;
            if member.state == MemberState::Enrolled {
                return Ok(());
            }
            if Instant::now() > deadline {
                let why = member.last_error.unwrap_or_default();
                return Err(failed(format!(
                    "{} did not join {dif} in {ENROLLED:?}: {} {why}\n{}",
                    self.name,
                    member.step,
                    self.household.logs()
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts the server of measurements inside.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_peer(&mut self, name: &str) -> Outcome {
        self.household.start_peer(&app_name(name)?)
    }

    /// Starts this very program inside with other arguments, until the place is dropped.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_servant(&mut self, arguments: &[&str], log: &str) -> Outcome {
        self.household.start_servant(arguments, log)
    }

    /// Ends what was started last.
    pub fn stop_last_servant(&mut self) {
        self.household.stop_last_servant();
    }

    /// Waits until a name can be reached in a DIF.
    ///
    /// # Errors
    /// It cannot in time.
    pub fn reaches(&self, dif: &str, name: &str) -> Outcome {
        let deadline = Instant::now() + ENROLLED;
        loop {
            let difs = self.control().difs().attempt("listing DIFs")?;
            let known = difs
                .iter()
                .any(|d| d.name.as_str() == dif && d.names.iter().any(|n| n.as_str() == name));
            if known {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(failed(format!(
                    "{name} did not become known in {dif} at {}",
                    self.name
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Has a client inside carry out an order.
    ///
    /// # Errors
    /// The client cannot be started or cannot reach the server.
    pub fn carry_out(&self, order: &Order) -> Result<Vec<Finding>, Failure> {
        let program = std::env::current_exe().attempt("finding this program")?;
        let program = program.to_string_lossy();
        let order = serde_json::to_string(order).attempt("writing an order")?;
        let run = self.path().to_string_lossy();
        let said = self
            .inside(&program, &["bench", "client", "--run", &run, &order])
            .map_err(|failure| failed(format!("{failure}\n{}", self.household.logs())))?;
        findings(&said)
    }

    /// The ends of its logs.
    pub fn logs(&self) -> String {
        self.household.logs()
    }
}

/// Reads what a client has printed.
///
/// # Errors
/// Something else was printed.
pub fn findings(said: &str) -> Result<Vec<Finding>, Failure> {
    said.lines()
        .map(|line| serde_json::from_str(line).attempt(format!("reading {line:?}")))
        .collect()
}

/// Joins two places by a pair of virtual Ethernet interfaces of these names.
///
/// # Errors
/// `ip` refuses.
pub fn wire(a: &Place, at_a: &str, b: &Place, at_b: &str) -> Outcome {
    let pid = b.household.pid().to_string();
    a.ip(&[
        "link", "add", "name", at_a, "type", "veth", "peer", "name", at_b, "netns", &pid,
    ])?;
    a.ip(&["link", "set", "dev", at_a, "up"])?;
    b.ip(&["link", "set", "dev", at_b, "up"])
}

/// The name of a DIF.
///
/// # Errors
/// It is none.
pub fn dif_name(text: &str) -> Result<DifName, Failure> {
    DifName::new(text).attempt("naming a DIF")
}

/// The name of an application.
///
/// # Errors
/// It is none.
pub fn app_name(text: &str) -> Result<AppName, Failure> {
    AppName::new(text).attempt("naming an application")
}
