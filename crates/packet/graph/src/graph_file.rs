//! Graphs in files: TOML with a list of links, and a table for each app.
//!
//! ```toml
//! links = ["source.output -> hop.input", "hop.output -> sink.input"]
//!
//! [apps.source]
//! kind = "source"
//! size = 64
//!
//! [apps.hop]
//! kind = "hop"
//!
//! [apps.sink]
//! kind = "sink"
//! ```
//!
//! `worker = 1` in an app's table makes worker 1 run the app. At the top, `workers = 2` sets the
//! number of workers, and `cpus = [2, 3]` the processor of each. [`Workers`] places apps without
//! `worker`.
//!
//! [`Workers`]: carina_frame_engine::Workers
//!
//! `kind` is the name of a kind of app ([`KINDS`]). The other keys of the table are the app's
//! configuration, as the head of its module describes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carina_apps::arp::ArpConfig;
use carina_apps::bridge::BridgeConfig;
use carina_apps::esp::EspConfig;
use carina_apps::esp_tunnel::EspTunnelConfig;
use carina_apps::gre::GreConfig;
use carina_apps::hop::HopConfig;
use carina_apps::icmp_echo::IcmpEchoConfig;
use carina_apps::impair::ImpairConfig;
use carina_apps::ipfix::IpfixConfig;
use carina_apps::ipip::IpipConfig;
use carina_apps::join::JoinConfig;
use carina_apps::l2tpv3::L2tpv3Config;
use carina_apps::mac_mux::MacMuxConfig;
use carina_apps::nd::NdConfig;
use carina_apps::pcap_filter::PcapFilterConfig;
use carina_apps::pcap_read::PcapReadConfig;
use carina_apps::pcap_write::PcapWriteConfig;
use carina_apps::rate_limiter::RateLimiterConfig;
use carina_apps::repeater::RepeaterConfig;
use carina_apps::route4::Route4Config;
use carina_apps::route6::Route6Config;
use carina_apps::rss::RssConfig;
use carina_apps::sample::SampleConfig;
use carina_apps::shaper::ShaperConfig;
use carina_apps::sink::SinkConfig;
use carina_apps::source::SourceConfig;
use carina_apps::split::SplitConfig;
use carina_apps::tee::TeeConfig;
use carina_apps::truncate::TruncateConfig;
use carina_apps::tunnel::TunnelConfig;
use carina_apps::tunnel_mux::TunnelMuxConfig;
use carina_apps::vlan_mux::VlanMuxConfig;
use carina_apps::vlan_tag::VlanTagConfig;
use carina_apps::vlan_untag::VlanUntagConfig;
use carina_apps::vxlan::VxlanConfig;
use carina_frame_engine::{AnyConfig, AppConfig, Graph, GraphError, WORKERS_MAX};
use carina_text::toml_fault::{TomlFault, line_of_keys, words_of};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A kind of app that graph files can use.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Name of the kind of app, as files of graphs write it.
    pub name: &'static str,
    /// Keys whose values are paths of files that belong to the configuration.
    files: &'static [&'static str],
    read: fn(toml::Table) -> Result<Arc<dyn AnyConfig>, toml::de::Error>,
}

/// The stock kinds of apps. The kinds of ports are in `carina_ports`.
pub const KINDS: [Kind; 34] = [
    Kind::of::<ArpConfig>(),
    Kind::of::<BridgeConfig>(),
    Kind::of::<EspConfig>(),
    Kind::of::<EspTunnelConfig>(),
    Kind::of::<TunnelConfig<GreConfig>>(),
    Kind::of::<HopConfig>(),
    Kind::of::<IcmpEchoConfig>(),
    Kind::of::<ImpairConfig>(),
    Kind::of::<IpfixConfig>(),
    Kind::of::<TunnelConfig<IpipConfig>>(),
    Kind::of::<JoinConfig>(),
    Kind::of::<TunnelConfig<L2tpv3Config>>(),
    Kind::of::<MacMuxConfig>(),
    Kind::of::<NdConfig>(),
    Kind::of::<PcapFilterConfig>(),
    Kind::of::<PcapReadConfig>(),
    Kind::of::<PcapWriteConfig>(),
    Kind::of::<RateLimiterConfig>(),
    Kind::of::<RepeaterConfig>(),
    Kind::of::<Route4Config>(),
    Kind::of::<Route6Config>(),
    Kind::of::<RssConfig>(),
    Kind::of::<SampleConfig>(),
    Kind::of::<ShaperConfig>(),
    Kind::of::<SinkConfig>(),
    Kind::of::<SourceConfig>(),
    Kind::of::<SplitConfig>(),
    Kind::of::<TeeConfig>(),
    Kind::of::<TruncateConfig>(),
    Kind::of::<TunnelMuxConfig>(),
    Kind::of::<VlanMuxConfig>(),
    Kind::of::<VlanTagConfig>(),
    Kind::of::<VlanUntagConfig>(),
    Kind::of::<TunnelConfig<VxlanConfig>>(),
];

impl Kind {
    /// The kind of app that `C` configures.
    #[must_use]
    pub const fn of<C: AppConfig + DeserializeOwned>() -> Kind {
        Kind {
            name: C::KIND,
            files: &[],
            read: |table| Ok(Arc::new(table.try_into::<C>()?)),
        }
    }

    /// Declares keys whose values are paths of files that belong to the configuration. A relative
    /// path starts at the directory of the graph's file. A change of such a file counts as a change
    /// of the graph.
    #[must_use]
    pub const fn with_files(self, keys: &'static [&'static str]) -> Kind {
        Kind {
            files: keys,
            ..self
        }
    }

    /// Makes the paths of files in an app's configuration complete, and returns them.
    fn files(&self, table: &mut toml::Table, directory: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for key in self.files {
            if let Some(toml::Value::String(path)) = table.get_mut(*key) {
                let whole = directory.join(&*path);
                // A path that is not UTF-8 cannot be put back into the table, so the written one
                // stays.
                if let Some(text) = whole.to_str() {
                    text.clone_into(path);
                }
                files.push(whole);
            }
        }
        files
    }
}

/// Why a graph file is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphFileError {
    /// The text is not TOML, or has unknown keys at the top.
    #[error("line {line}: {text}")]
    Toml {
        /// Number of the wrong line, from 1.
        line: usize,
        /// The fault on that line, as text.
        text: String,
    },
    /// The table of an app has no key `kind`.
    #[error("apps.{app}: kind is missing; it is one of {known}")]
    NoKind {
        /// Name of the app whose table has no key `kind`.
        app: String,
        /// Names of all known kinds of app, as a list in text.
        known: String,
    },
    /// `worker` is not a valid number of a worker.
    #[error("apps.{app}: worker = {value}: must be a whole number from 0 to {}", WORKERS_MAX - 1)]
    Worker {
        /// Name of the app with the invalid `worker`.
        app: String,
        /// The value that the file gives to `worker`.
        value: String,
    },
    /// The kind of an app is unknown.
    #[error("apps.{app}: kind = {kind:?}: must be one of {known}")]
    Kind {
        /// Name of the app with the unknown kind.
        app: String,
        /// The value that the file gives to `kind`, which names no known kind of app.
        kind: String,
        /// Names of all known kinds of app, as a list in text.
        known: String,
    },
    /// The configuration of an app is invalid.
    #[error("{}apps.{app} ({kind}): {reason}", at_line(*line))]
    App {
        /// The line in the graph's file, from 1; `None` if it is not known.
        line: Option<usize>,
        /// Name of the app whose configuration is invalid.
        app: String,
        /// Name of the kind of the app.
        kind: &'static str,
        /// What is wrong in the configuration, as text.
        reason: String,
    },
    /// A link or the name of an app is invalid.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

fn at_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}: "))
}

impl GraphFileError {
    /// Adds the line of the fault to the error of an app in this text.
    fn in_text(mut self, text: &str) -> GraphFileError {
        if let GraphFileError::App {
            line, app, reason, ..
        } = &mut self
        {
            // Reasons begin with a key. If a reason names none, the line of the app's table is
            // used.
            let reason = reason.strip_prefix("unknown field `").unwrap_or(reason);
            let end = reason.find(|c: char| !(c.is_ascii_alphanumeric() || "_.".contains(c)));
            let path = &reason[..end.unwrap_or(0)];
            let keys = ["apps", app].into_iter().chain(path.split('.'));
            *line = Some(line_of_keys(text, &keys.collect::<Vec<_>>()));
        }
        self
    }
}

fn kind_names(more: &[Kind]) -> String {
    let mut names: Vec<&str> = KINDS.iter().chain(more).map(|kind| kind.name).collect();
    names.sort_unstable();
    names.join(", ")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    workers: Option<usize>,
    #[serde(default)]
    cpus: Vec<usize>,
    #[serde(default)]
    links: Vec<String>,
    #[serde(default)]
    apps: BTreeMap<String, toml::Table>,
}

/// Reads a graph, and checks it.
///
/// # Errors
/// The text is not TOML, the configuration of an app is invalid, or a link leads nowhere.
pub fn read_graph(text: &str) -> Result<Graph, GraphFileError> {
    read_graph_of(text, &[])
}

/// Like [`read_graph`], for files that may use `more` kinds of apps in addition to the stock kinds.
///
/// # Errors
/// As for [`read_graph`].
pub fn read_graph_of(text: &str, more: &[Kind]) -> Result<Graph, GraphFileError> {
    Ok(read_graph_in(text, Path::new(""), more)?.0)
}

/// Like [`read_graph_of`], for a file in `directory`. Also returns the other files that belong to
/// the graph ([`Kind::with_files`]).
///
/// # Errors
/// As for [`read_graph`].
pub fn read_graph_in(
    text: &str,
    directory: &Path,
    more: &[Kind],
) -> Result<(Graph, Vec<PathBuf>), GraphFileError> {
    let file: File = toml::from_str(text).map_err(|error| {
        let TomlFault { line, text } = TomlFault::of(text, &error);
        GraphFileError::Toml { line, text }
    })?;
    let mut graph = Graph::new();
    let mut files = Vec::new();
    if let Some(count) = file.workers {
        graph.workers(count);
    }
    graph.cpus(&file.cpus);
    for (name, mut table) in file.apps {
        let worker = table.remove("worker");
        let read = read_app_in(&name, table, directory, more);
        let (config, of_app) = read.map_err(|error| error.in_text(text))?;
        files.extend(of_app);
        graph.app_of(&name, config);
        if let Some(worker) = worker {
            graph.place(&name, worker_number(&name, &worker)?);
        }
    }
    for link in &file.links {
        graph.link(link)?;
    }
    graph.check()?;
    Ok((graph, files))
}

fn worker_number(app: &str, value: &toml::Value) -> Result<usize, GraphFileError> {
    let number = value
        .as_integer()
        .and_then(|number| usize::try_from(number).ok());
    let number = number.filter(|number| *number < WORKERS_MAX);
    number.ok_or_else(|| GraphFileError::Worker {
        app: app.to_owned(),
        value: match value.as_integer() {
            Some(number) => number.to_string(),
            None => format!("of type {}", value.type_str()),
        },
    })
}

/// Reads the configuration of one app: a table with `kind` and the keys of that kind.
///
/// # Errors
/// The kind is neither a stock kind nor in `more`, or the configuration is invalid.
pub fn read_app(
    name: &str,
    table: toml::Table,
    more: &[Kind],
) -> Result<Arc<dyn AnyConfig>, GraphFileError> {
    Ok(read_app_in(name, table, Path::new(""), more)?.0)
}

fn read_app_in(
    name: &str,
    mut table: toml::Table,
    directory: &Path,
    more: &[Kind],
) -> Result<(Arc<dyn AnyConfig>, Vec<PathBuf>), GraphFileError> {
    let app = || name.to_owned();
    let wrong = |kind| GraphFileError::Kind {
        app: app(),
        kind,
        known: kind_names(more),
    };
    let word = match table.remove("kind") {
        Some(toml::Value::String(word)) => word,
        Some(other) => {
            return Err(wrong(format!("of type {}", other.type_str())));
        }
        None => {
            let known = kind_names(more);
            return Err(GraphFileError::NoKind { app: app(), known });
        }
    };
    let mut kinds = KINDS.iter().chain(more);
    let Some(kind) = kinds.find(|kind| kind.name == word) else {
        return Err(wrong(word));
    };
    let files = kind.files(&mut table, directory);
    let wrong = |reason| GraphFileError::App {
        line: None,
        app: app(),
        kind: kind.name,
        reason,
    };
    let config = (kind.read)(table).map_err(|error| wrong(words_of(&error).1))?;
    config
        .check_any()
        .map_err(|error| wrong(error.to_string()))?;
    Ok((config, files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graph_is_read_with_defaults() {
        let text = "links = [\"a.output -> b.input\"]\n[apps.a]\nkind = \"source\"\nrate = 5\n\
                    [apps.b]\nkind = \"sink\"\n";
        let graph = read_graph(text).unwrap();
        let apps: Vec<_> = graph.apps().collect();
        assert_eq!(apps, [("a", "source"), ("b", "sink")]);
        assert_eq!(graph.links().count(), 1);
    }

    #[test]
    fn apps_and_workers_have_their_places() {
        let apps = "[apps.a]\nkind = \"sink\"\nworker = 1\n[apps.b]\nkind = \"sink\"\n";
        let graph = read_graph(&format!("cpus = [4, 5, 6]\n{apps}")).unwrap();
        assert_eq!(
            (graph.worker_of("a"), graph.worker_of("b")),
            (Some(1), None)
        );
        assert_eq!(graph.worker_count(), 3);
        let refusal = |text: &str| read_graph(text).unwrap_err().to_string();
        assert_eq!(
            refusal(&apps.replace("= 1", "= -1")),
            "apps.a: worker = -1: must be a whole number from 0 to 63"
        );
        assert_eq!(
            refusal(&format!("workers = 1\n{apps}")),
            "app a: there is no worker 1; workers are numbered from 0 to 0"
        );
        let error = refusal(&format!("workers = 3\ncpus = [4, 5]\n{apps}"));
        assert!(
            error.starts_with("processors [4, 5] for 3 workers"),
            "{error}"
        );
    }

    #[test]
    fn wrong_files_are_refused_with_what_would_be_right() {
        let refusal = |text: &str| read_graph(text).unwrap_err().to_string();
        assert!(refusal("[apps.a]\nsize = 5\n").starts_with("apps.a: kind is missing; it is one"));
        assert!(
            refusal("[apps.a]\nkind = \"sauce\"\n").contains("\"sauce\": must be one of arp, ")
        );
        let error = refusal("[apps.a]\nkind = \"source\"\nsise = 5\n");
        assert!(
            error.starts_with("line 3: apps.a (source): unknown field `sise`"),
            "{error}"
        );
        assert_eq!(refusal("\napps = 5"), "line 2: apps = 5: must be a table");
        let error = refusal("[apps.a]\nkind = \"source\"\n\nrate = \"5\"\n");
        assert_eq!(
            error,
            "line 4: apps.a (source): rate = \"5\": must be a whole number, 0 or more, without quotes"
        );
        let error = refusal("[apps.a]\nkind = \"source\"\n\nsize = 5\n");
        assert!(
            error.starts_with("line 4: apps.a (source): size = 5: must be "),
            "{error}"
        );
        assert!(refusal("link = []").contains("unknown field `link`"));
        let error = refusal("links = [\"a.x -> b.input\"]\n[apps.b]\nkind = \"sink\"\n");
        assert_eq!(error, "link a.x -> b.input: there is no app a");
    }

    #[test]
    fn kinds_are_in_the_order_of_their_names() {
        assert!(KINDS.is_sorted_by_key(|kind| kind.name));
    }
}
