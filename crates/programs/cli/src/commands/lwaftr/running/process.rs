//! The process of an AFTR: the running graph, and the requests of clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use carina_frame::PoolConfig;
use carina_frame_engine::counter_file;
use carina_graph::runner::GraphRunner;
use carina_lwaftr::alarms::{Alarms, OperatorState, Purge};
use carina_lwaftr::channel::{Asked, Request, Verb};
use carina_lwaftr::claim::Claims;
use carina_lwaftr::counters::Counters;
use carina_lwaftr::exchange::Exchange;
use carina_lwaftr::live::{Edit, EditError, Live, Used};
use carina_lwaftr::monitor::Monitor;
use carina_lwaftr::path::Path as ConfigPath;
use carina_lwaftr::tree::{self, Node};
use carina_nfv::port::{PortSpec, frame_bytes_for};
use carina_sys::EventFd;
use carina_time::Duration;
use serde_json::json;

use super::claims::claim;
use super::{RunArgs, load, of_all_workers};
use crate::data_plane::runner_failure;
use crate::failure::{Attempt, Failure, failed, refused, usage};
use crate::report::progress;

/// A running AFTR, and its configuration.
pub(super) struct Process<'a> {
    args: &'a RunArgs,
    runner: GraphRunner,
    exchange: Arc<Exchange>,
    counters: PathBuf,
    claims: Claims,
    live: Live,
    monitor: Monitor,
    alarms: Alarms,
    began: Instant,
    next_look: Instant,
    has_ended: bool,
}

/// How often counters are evaluated for alarms.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

impl<'a> Process<'a> {
    pub(super) fn start(args: &'a RunArgs, counters: &Path) -> Result<Process<'a>, Failure> {
        let sides = args.ports()?.into_iter().map(|(_, port)| port);
        let ports: Vec<PortSpec> = sides.chain(&args.mirror).cloned().collect();
        let used = read(args)?;
        let softwires = used.table.len();
        let mut claims = Claims::default();
        let places = args.places(&used.config)?;
        let fresh = claims.more(&places, claim).map_err(failed)?;
        claims.replace(&places, fresh);
        let pool = PoolConfig {
            frames: args.frames,
            frame_bytes: frame_bytes_for(&ports).max(args.longest),
        };
        let mut runner = GraphRunner::new(pool, Some(counters)).map_err(runner_failure)?;
        if !args.cpu.is_empty() {
            runner.run_on(&args.cpu);
        }
        let monitor = Monitor::None;
        let exchange = Exchange::new();
        let graph = args.graph(&used, monitor, &exchange)?;
        runner.configure(&graph).map_err(refused)?;
        progress(format!("{softwires} softwires"));
        let now = Instant::now();
        Ok(Process {
            args,
            runner,
            exchange,
            counters: counters.to_owned(),
            claims,
            live: Live::new(used, args.behaviour.rules().reserves_two_to_the_bits),
            monitor,
            alarms: Alarms::new(&std::process::id().to_string()),
            began: now,
            next_look: now + LOOK_EVERY,
            has_ended: false,
        })
    }

    /// Whether a client has asked the process to end.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Forwards packets for the duration `time`, or until another thread signals `event`.
    pub(super) fn run_until(&mut self, event: &EventFd, time: Duration) -> Result<(), Failure> {
        self.runner
            .run_until(event, time)
            .attempt("running the AFTR")
    }

    /// Reads the file again and applies it. A file with errors is reported and changes nothing.
    pub(super) fn follow(&mut self) {
        let before = self.live.used();
        let followed = read(self.args).and_then(|used| self.replace(used));
        match followed {
            Ok(()) => {
                let after = self.live.used();
                let what = if before.config == after.config {
                    "another table"
                } else {
                    "another configuration"
                };
                let (before, after) = (before.table.len(), after.table.len());
                progress(format!("{what}: {after} softwires, {before} before"));
            }
            Err(failure) => progress(format!("{failure}; the AFTR was not changed")),
        }
    }

    fn replace(&mut self, used: Used) -> Result<(), Failure> {
        self.change(|live| {
            live.replace(used);
            Ok(())
        })
    }

    /// Makes a change of the configuration, and undoes it if the graph cannot run with it.
    fn change(
        &mut self,
        change: impl FnOnce(&mut Live) -> Result<(), EditError>,
    ) -> Result<(), Failure> {
        let before = self.live.used();
        change(&mut self.live).map_err(failed)?;
        let configured = self.configure();
        if configured.is_err() {
            self.live.replace(before);
        }
        configured
    }

    fn configure(&mut self) -> Result<(), Failure> {
        let used = self.live.used();
        let places = self.args.places(&used.config)?;
        let fresh = self.claims.more(&places, claim).map_err(failed)?;
        let graph = self.args.graph(&used, self.monitor, &self.exchange)?;
        self.runner.configure(&graph).map_err(failed)?;
        self.claims.replace(&places, fresh);
        Ok(())
    }

    /// Carries out a request, and answers it.
    pub(super) fn answer(&mut self, asked: Asked) {
        let result = self.handle(&asked.request);
        asked.answer(result);
    }

    fn handle(&mut self, request: &Request) -> Result<String, Failure> {
        let path = || {
            let text = request.path.as_deref().unwrap_or("/");
            text.parse::<ConfigPath>().map_err(failed)
        };
        let value = request.value.as_deref();
        let needed = || value.ok_or_else(|| usage("the request needs a value"));
        let edit = match request.verb {
            Verb::Get => return self.live.get(&path()?).map_err(failed),
            Verb::GetState => return self.state(&path()?),
            Verb::Set => Edit::Set,
            Verb::Add => Edit::Add,
            Verb::Remove => Edit::Remove,
            Verb::Load => {
                let loaded = used(load(Path::new(needed()?), self.args.behaviour)?);
                return self.replace(loaded).map(|()| String::new());
            }
            Verb::Monitor => return self.set_monitor(needed()?).map(|()| String::new()),
            Verb::Alarms => return Ok(json!(self.alarms.list()).to_string()),
            Verb::PurgeAlarms => {
                let purge: Purge = serde_json::from_str(needed()?).attempt("which alarms")?;
                return Ok(self.alarms.purge(&purge, unix_time_s()).to_string());
            }
            Verb::CompressAlarms => return Ok(self.alarms.compress(needed()?).to_string()),
            Verb::SetAlarms => {
                let state: OperatorState = serde_json::from_value(json!(needed()?))
                    .attempt("reading the operator state")?;
                let kind = request.path.as_deref().unwrap_or_default();
                return Ok(self.alarms.set_operator_state(kind, state).to_string());
            }
            Verb::Shutdown => {
                self.has_ended = true;
                return Ok(String::new());
            }
        };
        let path = path()?;
        self.change(|live| live.edit(edit, &path, value))?;
        Ok(String::new())
    }

    fn set_monitor(&mut self, text: &str) -> Result<(), Failure> {
        if self.args.mirror.is_none() {
            return Err(usage("the AFTR has no mirror: start it with --mirror PORT"));
        }
        let before = self.monitor;
        self.monitor = text.parse().map_err(failed)?;
        let configured = self.configure();
        if configured.is_err() {
            self.monitor = before;
        }
        configured
    }

    /// The AFTR's counters that a path names, such as `/softwire-state/in-ipv4-packets`, as text.
    fn state(&self, path: &ConfigPath) -> Result<String, Failure> {
        let readings = counter_file::read(&self.counters).attempt("reading counters")?;
        let names = Counters::names();
        let counts = of_all_workers(&readings).into_iter();
        let counts = counts.filter(|(name, _)| names.contains(name));
        let leaves = counts.map(|(keyword, value)| Node {
            keyword,
            value: Some(value.to_string()),
            members: Vec::new(),
        });
        let state = Node {
            keyword: "softwire-state".to_owned(),
            value: None,
            members: leaves.collect(),
        };
        tree::get(&mut vec![state], path).map_err(failed)
    }

    /// Once a second, evaluates the conditions of the alarms, and reports alarms that were raised
    /// or cleared.
    pub(super) fn watch_alarms(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        let Ok(readings) = counter_file::read(&self.counters) else {
            return;
        };
        let counts = of_all_workers(&readings);
        let value = |name: &str| counts.get(name).copied();
        let passed = u64::try_from((now - self.began).as_nanos()).unwrap_or(u64::MAX);
        let at = carina_time::Instant::ZERO + Duration::from_nanos(passed);
        for alarm in self.alarms.observe(at, unix_time_s(), value) {
            let what = if alarm.is_cleared {
                "cleared"
            } else {
                "raised"
            };
            let mut name = alarm.alarm_type_id.clone();
            if !alarm.alarm_type_qualifier.is_empty() {
                name = format!("{name}/{}", alarm.alarm_type_qualifier);
            }
            progress(format!("alarm {what}: {name}: {}", alarm.alarm_text));
        }
    }
}

/// Reads the configuration file.
fn read(args: &RunArgs) -> Result<Used, Failure> {
    load(&args.conf, args.behaviour).map(used)
}

fn used(loaded: carina_lwaftr::file::Loaded) -> Used {
    Used {
        config: Arc::new(loaded.config),
        table: Arc::new(loaded.table),
    }
}

fn unix_time_s() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH);
    passed.map_or(0, |passed| passed.as_secs())
}
