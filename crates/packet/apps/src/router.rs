//! What `route4` and `route6` share: a router by longest prefix, over a table of its version of IP.

use std::any::Any;
use std::fmt::Display;
use std::path::PathBuf;

use carina_engine::frames::{
    AppConfig, AppContext, AppError, FrameApp, Opened, PortList, PortNames, Ports, made,
};
use serde::{Deserialize, Serialize};

use crate::prefix::{Address, Prefix};
use crate::route_lines::read_lines;
use crate::route_outputs::{OTHER, RouteCounters, RouteOutputs};

/// A version of IP that can be routed.
pub trait Routed: Address {
    /// The kind of the app.
    const KIND: &'static str;
    /// The counter of frames of other protocols.
    const DROP_OTHER: &'static str;

    /// Finds the number of the longest prefix.
    type Table: Send + 'static;

    /// The table of these prefixes, each with a number; of equal prefixes the last one holds.
    ///
    /// # Errors
    /// The table has no room for them.
    fn table(
        routes: impl IntoIterator<Item = (Prefix<Self>, u16)>,
    ) -> Result<Self::Table, AppError>;

    /// What the table has for the destination of a frame; `None` for one of another protocol.
    fn find(table: &Self::Table, frame: &[u8]) -> Option<u16>;
}

/// The configuration of a router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound = "A: Address")]
pub struct RouterConfig<A> {
    /// Routes.
    #[serde(default = "Vec::new")]
    pub routes: Vec<Route<A>>,
    /// More routes, one a line.
    #[serde(default)]
    pub file: Option<PathBuf>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound = "A: Address")]
pub struct Route<A> {
    /// The destinations for which it holds.
    pub prefix: Prefix<A>,
    /// Name of the output.
    pub output: String,
}

/// The app.
pub struct RouterApp<A: Routed> {
    table: A::Table,
    outputs: RouteOutputs,
    counters: RouteCounters,
}

impl<A: Routed> AppConfig for RouterConfig<A> {
    const KIND: &'static str = A::KIND;
    const INPUTS: PortList = PortList::INPUT;
    const OUTPUTS: PortList = PortList::Any;
    const OPENS: bool = true;

    type App = RouterApp<A>;

    fn open(&self, context: &mut AppContext<'_>) -> Option<Opened> {
        made(self, context)
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<RouterApp<A>, AppError> {
        let mut routes = self.routes.clone();
        if let Some(path) = &self.file {
            let at = |error: &dyn Display| format!("{}: {error}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| at(&error))?;
            let lines = read_lines(&text).map_err(|error| at(&error))?;
            let route = |(prefix, output)| Route { prefix, output };
            routes.extend(lines.into_iter().map(route));
        }
        let outputs = RouteOutputs::new(routes.iter().map(|route| &route.output));
        let numbered = routes
            .iter()
            .map(|route| (route.prefix, outputs.number(&route.output)));
        Ok(RouterApp {
            table: A::table(numbered)?,
            outputs,
            counters: RouteCounters {
                no_route: context.counter("drop_no_route"),
                other: context.counter(A::DROP_OTHER),
                no_link: context.counter("drop_no_link"),
            },
        })
    }
}

impl<A: Routed> FrameApp for RouterApp<A> {
    fn dismantle(self: Box<Self>) -> Option<Box<dyn Any + Send>> {
        Some(self)
    }

    fn rewired(&mut self, ports: &PortNames<'_>) {
        self.outputs.rewired(ports);
    }

    fn push(&mut self, ports: &mut Ports<'_>) {
        let table = &self.table;
        self.outputs.push(ports, &self.counters, |frame| {
            A::find(table, frame).unwrap_or(OTHER)
        });
    }
}
