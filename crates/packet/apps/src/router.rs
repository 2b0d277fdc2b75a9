//! A router by longest prefix for either IP version: the part that `route4` and `route6` share.

use std::any::Any;
use std::fmt::Display;
use std::path::PathBuf;

use carina_frame_engine::{
    AppConfig, AppContext, AppError, FrameApp, Opened, PortList, PortNames, Ports, made,
};
use serde::{Deserialize, Serialize};

use crate::prefix::{Address, Prefix};
use crate::route_lines::read_lines;
use crate::route_outputs::{OTHER, RouteCounters, RouteOutputs};

/// An IP version for which there is a routing table, and so an app `route4` or `route6`.
pub trait Routed: Address {
    /// Name of the kind of app.
    const KIND: &'static str;
    /// Name of the counter of frames of other protocols.
    const DROP_OTHER: &'static str;

    /// The routing table.
    type Table: Send + 'static;

    /// Builds the table of these prefixes with their numbers. Of equal prefixes, the last one is
    /// used.
    ///
    /// # Errors
    /// The table cannot hold the routes.
    fn table(
        routes: impl IntoIterator<Item = (Prefix<Self>, u16)>,
    ) -> Result<Self::Table, AppError>;

    /// Looks up the destination of a frame; `None` for a frame of another protocol.
    fn find(table: &Self::Table, frame: &[u8]) -> Option<u16>;
}

/// The configuration of the apps `route4` and `route6`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound = "A: Address")]
pub struct RouterConfig<A> {
    /// Routes in the configuration itself. The app also has the routes in `file`.
    #[serde(default = "Vec::new")]
    pub routes: Vec<Route<A>>,
    /// File with further routes, one per line; `None` for no file.
    #[serde(default)]
    pub file: Option<PathBuf>,
}

/// A route of the app `route4` or `route6`: packets to a prefix leave at an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound = "A: Address")]
pub struct Route<A> {
    /// The destination addresses of the route.
    pub prefix: Prefix<A>,
    /// Name of the app's output to which the packets go.
    pub output: String,
}

/// The running app `route4` or `route6`: sends packets to the output of the longest prefix that
/// matches their destination.
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
