//! Graphs in files: TOML with a table for each app, and a list of links.
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
//! `kind` is the name of a kind of app ([`KINDS`]); the other keys of the table are its
//! configuration, as the app's page has them.

use std::collections::BTreeMap;
use std::sync::Arc;

use carina_engine::frames::{AnyConfig, AppConfig, Graph, GraphError};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::arp::ArpConfig;
use crate::bridge::BridgeConfig;
use crate::hop::HopConfig;
use crate::icmp_echo::IcmpEchoConfig;
use crate::join::JoinConfig;
use crate::repeater::RepeaterConfig;
use crate::route4::Route4Config;
use crate::sample::SampleConfig;
use crate::sink::SinkConfig;
use crate::source::SourceConfig;
use crate::split::SplitConfig;
use crate::tee::TeeConfig;
use crate::truncate::TruncateConfig;
use crate::vlan_mux::VlanMuxConfig;
use crate::vlan_tag::VlanTagConfig;
use crate::vlan_untag::VlanUntagConfig;

/// A kind of app that files can name.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    read: fn(toml::Table) -> Result<Arc<dyn AnyConfig>, toml::de::Error>,
}

/// All kinds of apps that files can name.
pub const KINDS: [Kind; 16] = [
    kind::<ArpConfig>(),
    kind::<BridgeConfig>(),
    kind::<HopConfig>(),
    kind::<IcmpEchoConfig>(),
    kind::<JoinConfig>(),
    kind::<RepeaterConfig>(),
    kind::<Route4Config>(),
    kind::<SampleConfig>(),
    kind::<SinkConfig>(),
    kind::<SourceConfig>(),
    kind::<SplitConfig>(),
    kind::<TeeConfig>(),
    kind::<TruncateConfig>(),
    kind::<VlanMuxConfig>(),
    kind::<VlanTagConfig>(),
    kind::<VlanUntagConfig>(),
];

const fn kind<C: AppConfig + DeserializeOwned>() -> Kind {
    Kind {
        name: C::KIND,
        read: |table| Ok(Arc::new(table.try_into::<C>()?)),
    }
}

/// Why a file is no graph.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphFileError {
    /// It is not TOML, or has other keys than `links` and `apps`.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// An app has no kind.
    #[error("apps.{app}: kind is missing; it is one of {}", kind_names())]
    NoKind {
        /// The app.
        app: String,
    },
    /// There is no such kind.
    #[error("apps.{app}: kind = {kind:?}: must be one of {}", kind_names())]
    Kind {
        /// The app.
        app: String,
        /// The word.
        kind: String,
    },
    /// The configuration of an app is wrong.
    #[error("apps.{app} ({kind}): {reason}")]
    App {
        /// The app.
        app: String,
        /// Its kind.
        kind: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A link or a name is wrong.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

fn kind_names() -> String {
    KINDS.map(|kind| kind.name).join(", ")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    links: Vec<String>,
    #[serde(default)]
    apps: BTreeMap<String, toml::Table>,
}

/// Reads a graph and checks it.
///
/// # Errors
/// The text is not TOML, an app is unknown or its configuration wrong, or a link leads nowhere.
pub fn read_graph(text: &str) -> Result<Graph, GraphFileError> {
    let file: File = toml::from_str(text)?;
    let mut graph = Graph::new();
    for (name, table) in file.apps {
        let config = read_app(&name, table)?;
        graph.app_of(&name, config);
    }
    for link in &file.links {
        graph.link(link)?;
    }
    graph.check()?;
    Ok(graph)
}

fn read_app(name: &str, mut table: toml::Table) -> Result<Arc<dyn AnyConfig>, GraphFileError> {
    let app = || name.to_owned();
    let word = match table.remove("kind") {
        Some(toml::Value::String(word)) => word,
        Some(other) => {
            let kind = format!("of type {}", other.type_str());
            return Err(GraphFileError::Kind { app: app(), kind });
        }
        None => return Err(GraphFileError::NoKind { app: app() }),
    };
    let Some(kind) = KINDS.iter().find(|kind| kind.name == word) else {
        let kind = word;
        return Err(GraphFileError::Kind { app: app(), kind });
    };
    (kind.read)(table).map_err(|error| GraphFileError::App {
        app: app(),
        kind: kind.name,
        reason: error.message().to_owned(),
    })
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
    fn wrong_files_are_refused_with_what_would_be_right() {
        let refusal = |text: &str| read_graph(text).unwrap_err().to_string();
        assert!(refusal("[apps.a]\nsize = 5\n").starts_with("apps.a: kind is missing; it is one"));
        assert!(
            refusal("[apps.a]\nkind = \"sauce\"\n").contains("\"sauce\": must be one of arp, ")
        );
        let error = refusal("[apps.a]\nkind = \"source\"\nsise = 5\n");
        assert!(
            error.starts_with("apps.a (source): unknown field `sise`"),
            "{error}"
        );
        assert!(refusal("apps = 5").contains("line 1"));
        assert!(refusal("link = []").contains("unknown field `link`"));
        let error = refusal("links = [\"a.x -> b.input\"]\n[apps.b]\nkind = \"sink\"\n");
        assert_eq!(error, "link a.x -> b.input: there is no app a");
    }

    #[test]
    fn kinds_are_in_the_order_of_their_names() {
        assert!(KINDS.is_sorted_by_key(|kind| kind.name));
    }
}
