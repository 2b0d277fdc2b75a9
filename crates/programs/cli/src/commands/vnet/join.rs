//! `carina vnet join`: connects this system to a network as an end user, over WireGuard.

use std::io::{IsTerminal, Read};
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use carina_frame::PoolConfig;
use carina_frame_engine::Graph;
use carina_graph::runner::GraphRunner;
use carina_netdev::interface_exists;
use carina_ports::tun::TunConfig;
use carina_vnet::host_part::InterfaceAddress;
use carina_vnet_access::Refusal;
use carina_vnet_access::control::{Joined, Reply, Request};
use carina_vnet_access::join::{Admission, JoinError, join};
use carina_vnet_access::key::PrivateKey;
use carina_vnet_access::refusal::Refused;
use carina_vnet_access::token::Token;
use carina_vnet_access::user_app::{UserConfig, Watch};

use super::clock::unix_now;
use super::member_node::MemberNode;
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, refused, usage};
use crate::interrupt::{Interrupt, TAKING_SIGNALS};
use crate::report::{print_json, print_line, progress};

/// Options of `carina vnet join`: the token of the end user, and the interface to create.
#[derive(Debug, clap::Args)]
pub(crate) struct JoinArgs {
    /// Token from `carina vnet token`; `-` reads it from standard input, so that other users of
    /// this system cannot see it in the process list
    token: String,
    /// Name of the interface to create, such as carina0 [default: carina0, or the next free name]
    #[arg(long, value_name = "INTERFACE")]
    interface: Option<String>,
}

/// A system that has joined a network. Its interface is removed when this value is dropped.
struct Member {
    runner: GraphRunner,
    interface: String,
    watch: Watch,
    admission: Admission,
    /// The node that is this system's member of the network's DIF, if the token has the right
    /// `dif`.
    node: Option<MemberNode>,
}

/// Joins the network, and stays until the token expires or is revoked, or Ctrl-C is pressed.
///
/// # Errors
/// The token is refused, or no access point answers.
pub(super) fn run(shared: &Shared, args: &JoinArgs) -> Outcome {
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let token = Token::read(&token_text(&args.token)?).map_err(refused)?;
    let key = PrivateKey::generate().attempt("making a key")?;
    let came = || interrupt.is_pending().unwrap_or(true);
    let admission = join(&token, &key, shared.answer_limit(), came);
    let admission = admission.map_err(|error| failure(&token, &error))?;
    let mut member = Member::make(args, &token, &key, admission)?;
    if !member.hears(&interrupt)? {
        return Err(failed(format!(
            "access point {} has admitted this system, but the tunnel carried no packet within \
             {} s",
            member.admission.point,
            HEARS.as_secs()
        )));
    }
    member.enroll(shared, &token, &interrupt)?;
    member.say(shared, &token)?;
    let outcome = member.stay(&token, &key, &interrupt);
    member.leave();
    outcome
}

fn token_text(argument: &str) -> Result<String, Failure> {
    if argument != "-" {
        return Ok(argument.to_owned());
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        progress("paste the token, then press Ctrl-D:");
    }
    let mut text = String::new();
    // The limit is far longer than any token.
    let read = stdin.take(INPUT_MAX).read_to_string(&mut text);
    read.attempt("reading the token from standard input")?;
    if text.trim().is_empty() {
        Err(usage("there is no token on standard input"))
    } else {
        Ok(text)
    }
}

/// Turns an error of joining into a failure of the command.
fn failure(token: &Token, error: &JoinError) -> Failure {
    match error {
        JoinError::Refused(refusal) => refused(refusal),
        JoinError::Silent { .. } if token.claims().exp <= unix_now() => {
            let what = "the token has expired by the clock of this system, and the access point \
                does not answer";
            refused(Refused::new(Refusal::Expired, what))
        }
        JoinError::Interrupted => Failure::Interrupted(
            "interrupted before this system had \
            joined"
                .into(),
        ),
        error => failed(error),
    }
}

impl Member {
    fn make(
        args: &JoinArgs,
        token: &Token,
        key: &PrivateKey,
        admission: Admission,
    ) -> Result<Member, Failure> {
        let joined = &admission.joined;
        check_way(&admission)?;
        let interface = match &args.interface {
            Some(name) if interface_exists(name) => {
                return Err(failed(format!(
                    "interface {name} exists already; choose another name"
                )));
            }
            Some(name) => name.clone(),
            None => free_interface()?,
        };
        let watch = Watch::default();
        let mut graph = Graph::new();
        let tun = TunConfig {
            mtu: Some(usize::from(joined.mtu)),
            ..TunConfig::of(&interface)
        };
        graph.app("tun", tun);
        let user = UserConfig {
            key: key.clone(),
            point: admission.point,
            point_key: token.claims().key,
            address: joined.address.address(),
            watch: watch.clone(),
        };
        graph.app("tunnel", user);
        for link in ["tun.output -> tunnel.input", "tunnel.output -> tun.input"] {
            graph.link(link).attempt("making a graph")?;
        }
        let runner = GraphRunner::new(PoolConfig::default(), None);
        let mut runner = runner.attempt("starting the engine")?;
        let what = format!("making interface {interface} (needs root)");
        runner.configure(&graph).attempt(what)?;
        let address = joined.address.address();
        ip(&[
            "address",
            "add",
            &format!("{address}/32"),
            "dev",
            &interface,
        ])?;
        let member = Member {
            runner,
            interface,
            watch,
            admission,
            node: None,
        };
        member.route(&member.admission.joined.routes)?;
        Ok(member)
    }

    /// Makes this system a member of the network's DIF, if the token has the right `dif`.
    fn enroll(&mut self, shared: &Shared, token: &Token, interrupt: &Interrupt) -> Outcome {
        let joined = &self.admission.joined;
        let Some(dif) = &joined.dif else {
            return Ok(());
        };
        let access = &token.claims().access;
        let mut node = MemberNode::start(&shared.run_dir(), joined, dif, access)?;
        let begin = Instant::now();
        // The node reaches other members through the tunnel, which this thread runs.
        while !node.is_enrolled()? {
            if interrupt.is_pending().attempt(TAKING_SIGNALS)? {
                return Err(Failure::Interrupted("interrupted".to_owned()));
            }
            if begin.elapsed() > ENROLLMENT {
                return Err(failed(node.why_not(ENROLLMENT)));
            }
            self.run(LOOK)?;
        }
        self.node = Some(node);
        Ok(())
    }

    /// Adds routes to the network's prefixes. An existing route is not replaced: adding then fails.
    fn route(&self, prefixes: &[InterfaceAddress]) -> Result<(), Failure> {
        let source = self.admission.joined.address.address().to_string();
        for prefix in prefixes {
            let to = prefix.to_string();
            ip(&["route", "add", &to, "dev", &self.interface, "src", &source])?;
        }
        Ok(())
    }

    /// Waits for the first answer of the access point. Returns whether it arrived in time.
    fn hears(&mut self, interrupt: &Interrupt) -> Result<bool, Failure> {
        let begin = Instant::now();
        while self.watch.heard() == 0 && begin.elapsed() < HEARS {
            if interrupt.is_pending().attempt(TAKING_SIGNALS)? {
                return Err(Failure::Interrupted("interrupted".to_owned()));
            }
            self.run(LOOK)?;
        }
        Ok(self.watch.heard() > 0)
    }

    fn run(&mut self, time: Duration) -> Result<(), Failure> {
        let time = carina_time::Duration::from_millis(time.as_millis() as u64);
        self.runner.run_for(time).attempt("running the tunnel")
    }

    fn say(&self, shared: &Shared, token: &Token) -> Outcome {
        let (claims, joined) = (token.claims(), &self.admission.joined);
        if shared.json {
            return print_json(&serde_json::json!({
                "vnet": claims.name, "access": claims.access, "user": claims.sub,
                "address": joined.address, "node": joined.node, "mtu": joined.mtu,
                "routes": joined.routes, "until": joined.until, "rate_bps": joined.rate_bps,
                "interface": self.interface, "point": self.admission.point, "dif": joined.dif,
            }));
        }
        if let Some(dif) = &joined.dif {
            print_line(format!(
                "{}: this system is member {} of DIF {}, for programs with the run directory {}",
                claims.name,
                dif.member,
                dif.name,
                shared.run_dir().path().display()
            ))?;
        }
        print_line(format!(
            "{}: {} is {} on {}, through {}, for {} s; Ctrl-C leaves",
            claims.name,
            claims.sub,
            joined.address,
            self.interface,
            self.admission.point,
            joined.until.saturating_sub(unix_now())
        ))
    }

    /// Runs the tunnel until there is a reason to leave.
    fn stay(&mut self, token: &Token, key: &PrivateKey, interrupt: &Interrupt) -> Outcome {
        let (mut heard, mut since) = (self.watch.heard(), Instant::now());
        let mut is_silent = false;
        let mut asked = Instant::now();
        loop {
            self.run(LOOK)?;
            if let Some(node) = &mut self.node {
                node.check()?;
            }
            if interrupt.is_pending().attempt(TAKING_SIGNALS)? {
                return Ok(());
            }
            match self.watch.take_news() {
                Some(Reply::Refused(refusal)) => return Err(refused(refusal)),
                Some(Reply::Joined(joined)) => self.update(joined)?,
                None => {}
            }
            // A message about a changed network may be lost, so the system asks now and then.
            if asked.elapsed() >= LOOK_AGAIN {
                asked = Instant::now();
                self.watch.ask(Request::Join(token.text().to_owned()));
            }
            if unix_now() >= self.admission.joined.until {
                let what = "the token has expired";
                return Err(refused(Refused::new(Refusal::Expired, what)));
            }
            let now = self.watch.heard();
            if now != heard {
                if is_silent {
                    progress("the access point answers again");
                }
                (heard, since, is_silent) = (now, Instant::now(), false);
            } else if since.elapsed() >= SILENCE {
                since = Instant::now();
                if !is_silent {
                    progress("the access point is silent; sending the token again");
                }
                is_silent = true;
                self.ask_anew(token, key, interrupt)?;
            }
        }
    }

    /// Lets the member leave the DIF. Its messages need the tunnel, which runs meanwhile.
    fn leave(&mut self) {
        let Some(mut node) = self.node.take() else {
            return;
        };
        node.begin_to_leave();
        let begin = Instant::now();
        while node.is_running() && begin.elapsed() < LEAVE && self.run(LEAVING).is_ok() {}
    }

    /// Sends the token again after a silence: the access point may have restarted, or may have
    /// revoked the token while its messages could not arrive.
    fn ask_anew(&mut self, token: &Token, key: &PrivateKey, interrupt: &Interrupt) -> Outcome {
        let came = || interrupt.is_pending().unwrap_or(true);
        match join(token, key, ASK, came) {
            Ok(admission) if admission.point != self.admission.point => Err(moved()),
            Ok(admission) => self.update(admission.joined),
            Err(JoinError::Refused(refusal)) => Err(refused(refusal)),
            // The caller checks for Ctrl-C; after silence this is repeated.
            Err(_) => Ok(()),
        }
    }
}

impl Member {
    /// Applies what the access point reports: adds routes to new prefixes and removes those to
    /// prefixes that no longer belong to the network.
    fn update(&mut self, joined: Joined) -> Outcome {
        let before = &self.admission.joined;
        if joined.address != before.address {
            return Err(moved());
        }
        let after = Admission {
            point: self.admission.point,
            joined,
        };
        if let Err(error) = check_way(&after) {
            progress(format!("{error}; routes were not changed"));
            return Ok(());
        }
        let missing = |of: &[InterfaceAddress], among: &[InterfaceAddress]| {
            let mut missing = of.to_vec();
            missing.retain(|prefix| !among.contains(prefix));
            missing
        };
        let (known, now) = (&before.routes, &after.joined.routes);
        let (gone, new) = (missing(known, now), missing(now, known));
        for prefix in &gone {
            ip(&["route", "del", &prefix.to_string(), "dev", &self.interface])?;
        }
        self.route(&new)?;
        if !(gone.is_empty() && new.is_empty()) {
            progress(format!(
                "the network has changed: routes to {} prefixes were added, {} removed",
                new.len(),
                gone.len()
            ));
        }
        self.admission = after;
        Ok(())
    }
}

fn moved() -> Failure {
    failed("the access point has another address now; join again with a new token")
}

/// Refuses a network whose routes would lead packets of the tunnel into the tunnel itself.
fn check_way(admission: &Admission) -> Result<(), Failure> {
    let IpAddr::V4(point) = admission.point.ip() else {
        return Ok(());
    };
    let covers = |route: &&InterfaceAddress| {
        let of_point = InterfaceAddress::new(point, route.bits());
        of_point.is_some_and(|of_point| of_point.prefix() == route.prefix())
    };
    match admission.joined.routes.iter().find(covers) {
        None => Ok(()),
        Some(route) => Err(failed(format!(
            "the access point is at {point}, which is within {route} of the network itself; use \
             a token with another address (`carina vnet token --at`)"
        ))),
    }
}

fn free_interface() -> Result<String, Failure> {
    let mut names = (0..NAMES).map(|number| format!("carina{number}"));
    let free = names.find(|name| !interface_exists(name));
    free.ok_or_else(|| {
        failed(
            "interfaces carina0 to carina99 all exist; choose another name \
        with --interface",
        )
    })
}

/// Runs the program `ip`.
fn ip(words: &[&str]) -> Outcome {
    let mut command = Command::new("ip");
    let output = command.args(words).stdin(Stdio::null()).output();
    let output = output.attempt("running ip (it is in the package iproute2)")?;
    if output.status.success() {
        Ok(())
    } else {
        Err(failed(format!(
            "`ip {}`: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )))
    }
}

const LOOK: Duration = Duration::from_millis(100);
/// Time limit for leaving the DIF.
const LEAVE: Duration = Duration::from_millis(1200);
const LEAVING: Duration = Duration::from_millis(20);
/// Time between two questions whether the network has changed.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Time limit for becoming a member of the DIF.
const ENROLLMENT: Duration = Duration::from_secs(60);
/// Time limit for the first answer in the tunnel.
const HEARS: Duration = Duration::from_secs(10);
/// Time without a packet after which the access point counts as silent; it sends one every 5 s.
const SILENCE: Duration = Duration::from_secs(12);
const ASK: Duration = Duration::from_secs(4);
const NAMES: usize = 100;
const INPUT_MAX: u64 = 64 * 1024;
