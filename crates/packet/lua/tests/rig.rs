//! A Lua app with a probe at each port, in simulated time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carina_frame::{Pool, PoolConfig};
use carina_frame_engine::counter_file::{self, CounterFile};
use carina_frame_engine::{Graph, Network, Notice};
use carina_graph::graph_file::read_graph_in;
use carina_time::Instant;

use crate::probes::{Collector, Feeder, Waiting};

/// A network with the app `app`, and probes at its ports.
pub(crate) struct Rig {
    pub network: Network,
    directory: tempfile::TempDir,
    inputs: Vec<String>,
    outputs: Vec<String>,
    fed: BTreeMap<String, Waiting>,
    seen: BTreeMap<String, Waiting>,
    keys: String,
    now: Instant,
}

impl Rig {
    /// Runs a script with one input and one output.
    pub(crate) fn new(script: &str) -> Rig {
        Rig::with(script, "", &["input"], &["output"])
    }

    /// Runs a script with further keys in its table, and with these ports.
    pub(crate) fn with(script: &str, keys: &str, inputs: &[&str], outputs: &[&str]) -> Rig {
        let (rig, made) = Rig::try_with(script, keys, inputs, outputs);
        made.unwrap_or_else(|error| panic!("{error}"));
        rig
    }

    /// Like [`Rig::with`], for a script that may be invalid.
    pub(crate) fn try_with(
        script: &str,
        keys: &str,
        inputs: &[&str],
        outputs: &[&str],
    ) -> (Rig, Result<(), String>) {
        let directory = tempfile::tempdir().unwrap();
        let pool = Pool::new(PoolConfig {
            frames: 4096,
            frame_bytes: 2048,
        });
        let file = CounterFile::create(&directory.path().join("counters")).unwrap();
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut rig = Rig {
            network: Network::new(pool.unwrap(), file).unwrap(),
            directory,
            inputs: owned(inputs),
            outputs: owned(outputs),
            fed: BTreeMap::new(),
            seen: BTreeMap::new(),
            keys: keys.to_owned(),
            now: Instant::from_millis(1000),
        };
        let made = rig.load(script);
        (rig, made)
    }

    /// The directory of the graph.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Replaces the running script.
    pub(crate) fn load(&mut self, script: &str) -> Result<(), String> {
        std::fs::write(self.directory().join("app.lua"), script).unwrap();
        let mut links = String::new();
        for port in &self.inputs {
            links += &format!("\"in-{port}.output -> app.{port}\", ");
        }
        for port in &self.outputs {
            links += &format!("\"app.{port} -> out-{port}.input\", ");
        }
        let mut text =
            format!("links = [{links}]\n[apps.app]\nkind = \"lua\"\nfile = \"app.lua\"\n");
        text += &format!("{}\n", self.keys);
        for port in &self.inputs {
            text += &format!("[apps.in-{port}]\nkind = \"source\"\n");
        }
        for port in &self.outputs {
            text += &format!("[apps.out-{port}]\nkind = \"sink\"\n");
        }
        let read = read_graph_in(&text, self.directory(), &[carina_lua::KIND]);
        let (graph, files) = read.map_err(|error| error.to_string())?;
        assert_eq!(files, [self.directory().join("app.lua")]);
        let (inputs, outputs) = (self.inputs.clone(), self.outputs.clone());
        let inputs: Vec<_> = inputs
            .iter()
            .map(|port| (format!("in-{port}"), &**port))
            .collect();
        let outputs: Vec<_> = outputs
            .iter()
            .map(|port| (format!("out-{port}"), &**port))
            .collect();
        self.configure(graph, &inputs, &outputs)
    }

    /// Runs a graph of `examples/lua`, with probes in place of the apps of these names.
    pub(crate) fn example(
        file: &str,
        inputs: &[(&'static str, &'static str)],
        outputs: &[(&'static str, &'static str)],
    ) -> Rig {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../examples/lua")
            .join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let kinds: Vec<_> = carina_ports::KINDS
            .into_iter()
            .chain([carina_lua::KIND])
            .collect();
        let (graph, _) = read_graph_in(&text, path.parent().unwrap(), &kinds).unwrap();
        let (mut rig, _) = Rig::try_with("return { push = function() end }", "", &[], &[]);
        let owned = |pairs: &[(&'static str, &'static str)]| -> Vec<(String, &'static str)> {
            pairs
                .iter()
                .map(|(app, port)| ((*app).to_owned(), *port))
                .collect()
        };
        rig.configure(graph, &owned(inputs), &owned(outputs))
            .unwrap();
        rig
    }

    /// Runs only the app `app` of a graph of `examples/lua`. Probes replace its neighbours; `ports`
    /// has the neighbours' names with the app's ports.
    pub(crate) fn between(file: &str, app: &str, ports: &[(&'static str, &'static str)]) -> Rig {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../examples/lua")
            .join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let (_, table) = text.split_once(&format!("[apps.{app}]\n")).unwrap();
        let table = table.split("\n[").next().unwrap();
        let (mut links, mut probes) = (String::new(), String::new());
        for (name, port) in ports {
            links += &format!("\"in-{name}.output -> {app}.{port}\", ");
            links += &format!("\"{app}.{port} -> out-{name}.input\", ");
            probes += &format!("[apps.in-{name}]\nkind = \"source\"\n");
            probes += &format!("[apps.out-{name}]\nkind = \"sink\"\n");
        }
        let text = format!("links = [{links}]\n[apps.{app}]\n{table}\n{probes}");
        let directory = path.parent().unwrap();
        let (graph, _) = read_graph_in(&text, directory, &[carina_lua::KIND]).unwrap();
        let (mut rig, _) = Rig::try_with("return { push = function() end }", "", &[], &[]);
        let probes = |head: &str| -> Vec<(String, &'static str)> {
            ports
                .iter()
                .map(|(name, port)| (format!("{head}-{name}"), *port))
                .collect()
        };
        rig.configure(graph, &probes("in"), &probes("out")).unwrap();
        rig
    }

    fn configure(
        &mut self,
        mut graph: Graph,
        inputs: &[(String, &str)],
        outputs: &[(String, &str)],
    ) -> Result<(), String> {
        for (app, port) in inputs {
            let waiting = self.fed.entry((*port).to_owned()).or_default();
            graph.app(app, Feeder(Arc::clone(waiting)));
        }
        for (app, port) in outputs {
            let seen = self.seen.entry((*port).to_owned()).or_default();
            graph.app(app, Collector(Arc::clone(seen)));
        }
        let configured = self.network.configure(&graph);
        configured.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Feeds frames to an input, and breathes.
    pub(crate) fn feed(&mut self, port: &str, frames: impl IntoIterator<Item = Vec<u8>>) {
        self.fed[port].lock().unwrap().extend(frames);
        self.breathe();
    }

    /// Breathes until all fed frames have passed.
    pub(crate) fn breathe(&mut self) {
        for _ in 0..3 {
            self.network.breathe(self.now);
        }
    }

    /// Lets time pass, and breathes.
    pub(crate) fn pass_ms(&mut self, millis: u64) {
        self.now += carina_time::Duration::from_millis(millis);
        self.breathe();
    }

    /// Takes the frames that came out of an output.
    pub(crate) fn out(&self, port: &str) -> Vec<Vec<u8>> {
        self.seen[port].lock().unwrap().drain(..).collect()
    }

    /// Sends one frame through the only input, and takes what comes out of the only output.
    pub(crate) fn through(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.feed("input", [frame.to_vec()]);
        self.out("output")
    }

    /// The value of a counter of the app.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let name = if name.contains('/') {
            name.to_owned()
        } else {
            format!("app/{name}")
        };
        let path: PathBuf = self.directory().join("counters");
        let all = counter_file::read(&path).unwrap();
        let found = all.iter().find(|reading| reading.name == name);
        found
            .unwrap_or_else(|| panic!("no counter {name} in {all:?}"))
            .value
    }

    /// The app's notices, one line each.
    pub(crate) fn notices(&self) -> Vec<String> {
        let notices = self.network.notices().take().0;
        notices
            .into_iter()
            .map(|Notice { app, text, .. }| format!("{app}: {text}"))
            .collect()
    }

    /// The reason why the app was stopped.
    pub(crate) fn stopped(&self) -> String {
        let notices = self.network.notices().take().0;
        let stops: Vec<_> = notices
            .into_iter()
            .filter(|notice| notice.has_stopped)
            .collect();
        assert_eq!(stops.len(), 1, "{stops:?}");
        stops[0].text.clone()
    }
}
