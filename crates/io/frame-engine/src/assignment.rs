//! Assignment of apps to workers.

use std::collections::BTreeMap;

use crate::back_pressure::links_with_back_pressure;
use crate::graph::{Graph, LinkName};
use crate::part::Part;

/// The direction of a link, as seen from one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkDirection {
    /// Both ends are in the network.
    Inside,
    /// The link comes from another network.
    In,
    /// The link leads to another network.
    Out,
}

impl LinkDirection {
    /// The direction of a link that has at least one end in the network that runs `part`.
    pub(super) fn of(link: &LinkName, part: &Graph) -> LinkDirection {
        let is_here = |app: &str| part.apps.contains_key(app);
        match (is_here(&link.from.app), is_here(&link.to.app)) {
            (true, false) => LinkDirection::Out,
            (false, true) => LinkDirection::In,
            _ => LinkDirection::Inside,
        }
    }
}

/// Assigns every app to a worker:
///
/// 1. An app that the graph places on a worker runs there.
/// 2. An app that already runs, in `running`, stays where it is.
/// 3. Any other app runs on the worker of the app that supplies its frames; if there are several,
///    of the first by name.
/// 4. An app that gets no frames, or is part of a circle, runs on the worker with the fewest apps.
pub(super) fn assigned(graph: &Graph, running: &Graph) -> Graph {
    let (mut placed, workers) = (graph.clone(), graph.worker_count());
    for (name, app) in &mut placed.apps {
        let stays = || running.worker_of(name).filter(|worker| *worker < workers);
        app.worker = app.worker.or_else(stays);
    }
    loop {
        let open = || placed.apps.iter().filter(|(_, app)| app.worker.is_none());
        let feeders = |name: &str| feeders(&placed, name);
        let fed = open().find_map(|(name, _)| {
            let worker = feeders(name).iter().find_map(|app| placed.worker_of(app))?;
            Some((name.clone(), worker))
        });
        let first = || {
            let (name, _) = open()
                .find(|(name, _)| feeders(name).is_empty())
                .or_else(|| open().next())?;
            Some((name.clone(), least_loaded(&placed, workers)))
        };
        let Some((name, worker)) = fed.or_else(first) else {
            return placed;
        };
        placed.place(&name, worker);
    }
}

/// The apps that supply frames to an app.
fn feeders<'a>(graph: &'a Graph, app: &str) -> Vec<&'a str> {
    let links = graph.links.iter().filter(|link| link.to.app == app);
    links.map(|link| link.from.app.as_str()).collect()
}

fn least_loaded(graph: &Graph, workers: usize) -> usize {
    let mut loads = vec![0; workers];
    for worker in graph.apps.values().filter_map(|app| app.worker) {
        loads[worker] += 1;
    }
    let least = (0..workers).min_by_key(|worker| loads[*worker]);
    least.unwrap_or(0)
}

/// Splits a graph, in which all apps have workers, into one part for each worker.
pub(super) fn parts(graph: &Graph, workers: usize) -> Vec<Part> {
    let back_pressure = links_with_back_pressure(graph);
    let part = |worker: usize| {
        let is_here = |app: &str| graph.worker_of(app) == Some(worker);
        let mut part = Graph {
            workers: Some(workers),
            ..Graph::default()
        };
        let apps = graph.apps.iter().filter(|(name, _)| is_here(name));
        part.apps = apps
            .map(|(name, app)| (name.clone(), app.clone()))
            .collect();
        let links = graph.links.iter();
        let links = links.filter(|link| is_here(&link.from.app) || is_here(&link.to.app));
        part.links = links.cloned().collect();
        Part::of(part, back_pressure.clone())
    };
    (0..workers).map(part).collect()
}

/// The links that lead from one worker to another, with the numbers of both workers.
pub(super) fn crossing(graph: &Graph) -> BTreeMap<LinkName, (usize, usize)> {
    let ends = |link: &LinkName| {
        let from = graph.worker_of(&link.from.app)?;
        let to = graph.worker_of(&link.to.app)?;
        (from != to).then(|| (link.clone(), (from, to)))
    };
    graph.links.iter().filter_map(ends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::{AppConfig, AppContext, AppError, FrameApp, PortList};

    #[derive(Clone, Debug, PartialEq)]
    struct Any;

    struct AnyApp;

    impl AppConfig for Any {
        const KIND: &'static str = "any";
        const INPUTS: PortList = PortList::Any;
        const OUTPUTS: PortList = PortList::Any;
        type App = AnyApp;

        fn build(&self, _: &mut AppContext<'_>) -> Result<AnyApp, AppError> {
            Ok(AnyApp)
        }
    }

    impl FrameApp for AnyApp {}

    fn graph(apps: &str, links: &[&str]) -> Graph {
        let mut graph = Graph::new();
        for app in apps.split(' ') {
            graph.app(app, Any);
        }
        for link in links {
            let (from, to) = link.split_once('>').unwrap();
            graph.link(&format!("{from}.{to} -> {to}.{from}")).unwrap();
        }
        graph
    }

    fn places(graph: &Graph) -> Vec<(&str, Option<usize>)> {
        let apps = graph.apps().map(|(name, _)| name);
        apps.map(|name| (name, graph.worker_of(name))).collect()
    }

    #[test]
    fn apps_follow_the_app_whose_frames_they_get() {
        let mut graph = graph("a b c d e", &["a>b", "b>c", "d>e"]);
        graph.workers(2).place("c", 1);
        let placed = assigned(&graph, &Graph::new());
        let expected = [("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 1)];
        let expected = expected.map(|(name, worker)| (name, Some(worker)));
        assert_eq!(places(&placed), expected);
        let crossing = crossing(&placed);
        assert_eq!(crossing.len(), 1);
        assert_eq!(crossing[&"b.c -> c.b".parse().unwrap()], (0, 1));
    }

    #[test]
    fn apps_that_run_stay_and_circles_are_placed() {
        let mut graph = graph("a b c", &["a>b", "b>c", "c>a"]);
        graph.workers(2);
        let mut running = graph.clone();
        running.place("b", 1);
        let placed = assigned(&graph, &running);
        assert!(places(&placed).iter().all(|(_, worker)| *worker == Some(1)));
        // A worker that no longer exists keeps no app.
        graph.workers(1);
        let placed = assigned(&graph, &running);
        assert!(places(&placed).iter().all(|(_, worker)| *worker == Some(0)));
    }

    #[test]
    fn parts_have_their_apps_and_every_link_at_them() {
        let mut graph = graph("a b c", &["a>b", "b>c"]);
        graph.place("a", 0).place("b", 1).place("c", 1);
        let parts = parts(&graph, 2);
        let directions = |part: &Part| {
            let links = part.graph.links.iter();
            links
                .map(|link| LinkDirection::of(link, &part.graph))
                .collect::<Vec<_>>()
        };
        assert_eq!(directions(&parts[0]), [LinkDirection::Out]);
        assert_eq!(
            directions(&parts[1]),
            [LinkDirection::In, LinkDirection::Inside]
        );
    }
}
