//! The routing policy `static`: routes are configured as a parameter. It sends no messages.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use carina_time::Instant;

use crate::api::{Delta, PendingDelta, Route, Routing, State, replace, take_delta};
use crate::error::RoutingError;
use crate::message::{Address, Message};
use crate::parameters::{address, check_names, value};

/// Parameters of `static`: name, default and meaning.
pub(crate) const PARAMETERS: &[(&str, &str, &str)] = &[(
    "routes",
    "",
    "`DST via NEXT [NEXT ...] [alt NEXT ...]`, addresses, separated by `;`",
)];

/// Configured routes. A next hop is used only while it is a neighbour. Alternates are used when all
/// next hops of a route have failed.
pub(crate) struct StaticRoutes {
    own: Address,
    configured: BTreeMap<Address, Configured>,
    neighbours: BTreeMap<Address, u32>,
    table: BTreeMap<Address, Route>,
    pending: PendingDelta,
    /// Messages of neighbours, which this policy ignores.
    ignored: u64,
}

struct Configured {
    next: BTreeSet<Address>,
    alternates: Vec<Address>,
}

impl StaticRoutes {
    /// Creates the policy.
    ///
    /// # Errors
    /// A parameter is unknown or its value is invalid.
    pub(crate) fn new(params: &BTreeMap<String, String>) -> Result<StaticRoutes, RoutingError> {
        Ok(StaticRoutes {
            own: 0,
            configured: parse(params)?,
            neighbours: BTreeMap::new(),
            table: BTreeMap::new(),
            pending: PendingDelta::new(),
            ignored: 0,
        })
    }

    fn refresh(&mut self) {
        let is_up = |next: &&Address| self.neighbours.contains_key(*next);
        let mut wanted = BTreeMap::new();
        for (dst, configured) in &self.configured {
            let mut next: Vec<Address> = configured.next.iter().filter(is_up).copied().collect();
            let mut alternates: Vec<Address> = configured
                .alternates
                .iter()
                .filter(is_up)
                .copied()
                .collect();
            if next.is_empty() {
                if alternates.is_empty() {
                    continue;
                }
                next.push(alternates.remove(0));
            }
            let route = Route {
                dst: *dst,
                next,
                alternates,
                cost: 0,
            };
            wanted.insert(*dst, route);
        }
        for (neighbour, cost) in &self.neighbours {
            // A configured route takes precedence: it may deliberately lead to a neighbour over a
            // longer path.
            wanted.entry(*neighbour).or_insert_with(|| Route {
                dst: *neighbour,
                next: Vec::from([*neighbour]),
                alternates: Vec::new(),
                cost: u64::from(*cost),
            });
        }
        wanted.remove(&self.own);
        replace(&mut self.table, wanted, &mut self.pending);
    }
}

impl Routing for StaticRoutes {
    fn set_own(&mut self, _now: Instant, address: Address, _name: &str) {
        self.own = address;
        self.refresh();
    }

    fn handle_link_up(&mut self, _now: Instant, neighbour: Address, cost: u32) {
        if neighbour != 0 {
            self.neighbours.insert(neighbour, cost.max(1));
            self.refresh();
        }
    }

    fn handle_link_down(&mut self, _now: Instant, neighbour: Address) {
        self.neighbours.remove(&neighbour);
        self.refresh();
    }

    fn handle_message(&mut self, _now: Instant, _from: Address, _message: Message) {
        self.ignored += 1;
    }

    fn handle_leave(&mut self, _now: Instant) {}

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_message(&mut self, _now: Instant) -> Option<(Address, Message)> {
        None
    }

    fn poll_routes(&mut self) -> Option<Delta> {
        take_delta(&self.table, &mut self.pending)
    }

    fn table(&self) -> &BTreeMap<Address, Route> {
        &self.table
    }

    fn set_params(
        &mut self,
        _now: Instant,
        params: &BTreeMap<String, String>,
    ) -> Result<(), RoutingError> {
        self.configured = parse(params)?;
        self.refresh();
        Ok(())
    }

    fn show(&self, _now: Instant) -> State {
        State {
            links: Vec::new(),
            counters: Vec::from([("messages_ignored", self.ignored)]),
        }
    }
}

fn parse(params: &BTreeMap<String, String>) -> Result<BTreeMap<Address, Configured>, RoutingError> {
    check_names(params, PARAMETERS)?;
    let routes: String = value(params, PARAMETERS, "routes")?;
    let mut configured = BTreeMap::new();
    for text in routes.split(';').map(str::trim) {
        if text.is_empty() {
            continue;
        }
        let (dst, route) = parse_route(text).map_err(|error| RoutingError::Route {
            error: error.into(),
            route: text.into(),
        })?;
        if configured.insert(dst, route).is_some() {
            return Err(RoutingError::SameDestination(dst));
        }
    }
    Ok(configured)
}

fn parse_route(text: &str) -> Result<(Address, Configured), RoutingError> {
    let mut words = text.split_whitespace();
    let dst = address(words.next().unwrap_or_default())?;
    if words.next() != Some("via") {
        return Err(RoutingError::NoVia);
    }
    let mut route = Configured {
        next: BTreeSet::new(),
        alternates: Vec::new(),
    };
    let mut is_alternate = false;
    for word in words {
        if word == "alt" && !is_alternate {
            is_alternate = true;
            continue;
        }
        let next = address(word)?;
        if route.next.contains(&next) || route.alternates.contains(&next) {
            return Err(RoutingError::SameNextHop(next));
        }
        if is_alternate {
            route.alternates.push(next);
        } else {
            route.next.insert(next);
        }
    }
    if route.next.is_empty() {
        return Err(RoutingError::NoNextHop);
    }
    Ok((dst, route))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;

    fn made(routes: &str) -> Result<StaticRoutes, String> {
        StaticRoutes::new(&BTreeMap::from([("routes".into(), routes.into())]))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn static_next_hops_need_adjacency_and_alternates_replace_them() {
        let mut routing = made("9 via 2 3 alt 4; 8 via 5").expect("good routes");
        routing.set_own(Instant::ZERO, 1, "a");
        assert!(routing.table().is_empty());
        for neighbour in [2, 3, 4] {
            routing.handle_link_up(Instant::ZERO, neighbour, 7);
        }
        assert_eq!(routing.table()[&9].next, vec![2, 3]);
        assert_eq!(routing.table()[&9].alternates, vec![4]);
        assert_eq!(routing.table()[&2].cost, 7);
        assert!(!routing.table().contains_key(&8));
        routing.handle_link_down(Instant::ZERO, 2);
        routing.handle_link_down(Instant::ZERO, 3);
        assert_eq!(routing.table()[&9].next, vec![4]);
        let delta = routing.poll_routes().expect("changes");
        assert_eq!(delta.removed, vec![2, 3]);
        assert_eq!(delta.changed.len(), 2);
        assert_eq!(routing.poll_routes(), None);
    }

    #[test]
    fn bad_routes_are_refused_with_the_place() {
        for (routes, word) in [
            ("9", "via"),
            ("9 via", "no next hop"),
            ("9 via 0", "`0`"),
            ("x via 1", "`x`"),
            ("9 via 2 2", "twice"),
            ("9 via 2; 9 via 3", "two routes"),
        ] {
            let error = made(routes).err().expect("a bad route");
            assert!(error.contains(word), "{routes}: {error}");
        }
        let unknown = BTreeMap::from([("rotues".into(), "".into())]);
        assert!(StaticRoutes::new(&unknown).is_err());
    }

    #[test]
    fn bad_change_of_parameters_changes_nothing() {
        let mut routing = made("9 via 2").expect("good routes");
        routing.handle_link_up(Instant::ZERO, 2, 1);
        let bad = BTreeMap::from([("routes".into(), "9 to 3".into())]);
        assert!(routing.set_params(Instant::ZERO, &bad).is_err());
        assert_eq!(routing.table()[&9].next, vec![2]);
        routing
            .set_params(Instant::ZERO, &BTreeMap::new())
            .expect("defaults");
        assert!(!routing.table().contains_key(&9));
    }
}
