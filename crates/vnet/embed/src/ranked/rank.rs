//! Measures for ranking hosts and nodes.

use crate::request::Request;
use crate::residual::Residual;

/// A measure of a node of a graph, from its processors and the rates of its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Global resource capacity: processors, plus shares of the neighbours' capacity in proportion
    /// to the rate of the link to them (L. Gong, Y. Wen, Z. Zhu, T. Lee, *Toward profit-seeking
    /// virtual network embedding algorithm via global resource capacity*, 2014).
    GlobalResourceCapacity,
    /// Node resource management: processors times the sum of the rates of all links (P. Zhang, H.
    /// Yao, Y. Liu, *Virtual network embedding based on computing, network, and storage resource
    /// constraints*, 2018).
    NodeResource,
    /// Random walk: how often a walk visits the node that prefers nodes with many processors and
    /// high rates (X. Cheng and others, *Virtual network embedding through topology-aware node
    /// ranking*, 2011).
    RandomWalk,
}

impl Measure {
    /// The hosts, sorted by falling measure.
    pub(crate) fn hosts(self, residual: &Residual) -> Vec<u32> {
        let cpu = residual.hosts().iter().map(|host| host.cpu as f64);
        let links = residual.substrate().links().iter().zip(residual.rates());
        let links = links.map(|(link, rate)| (link.ends.map(|host| host.index()), *rate as f64));
        self.order(&Weighted::new(cpu.collect(), links.collect()))
    }

    /// The nodes of a request, sorted by falling measure.
    pub(crate) fn nodes(self, request: &Request) -> Vec<u32> {
        let cpu = request.nodes().iter().map(|node| node.cpu as f64);
        let links = request.links().iter();
        let links = links.map(|link| (link.ends.map(|node| node.index()), link.rate as f64));
        self.order(&Weighted::new(cpu.collect(), links.collect()))
    }

    fn order(self, graph: &Weighted) -> Vec<u32> {
        let values = match self {
            Measure::GlobalResourceCapacity => graph.global_resource_capacity(),
            Measure::NodeResource => graph.node_resource(),
            Measure::RandomWalk => graph.random_walk(),
        };
        let mut order: Vec<u32> = (0..values.len() as u32).collect();
        order.sort_by(|a, b| values[*b as usize].total_cmp(&values[*a as usize]));
        order
    }
}

/// A graph with processors at its nodes and rates at its links.
struct Weighted {
    cpu: Vec<f64>,
    links: Vec<([usize; 2], f64)>,
    /// For each node, the sum of the rates of its links.
    around: Vec<f64>,
}

impl Weighted {
    fn new(cpu: Vec<f64>, links: Vec<([usize; 2], f64)>) -> Weighted {
        let mut around = vec![0.0; cpu.len()];
        for (ends, rate) in &links {
            ends.iter().for_each(|end| around[*end] += rate);
        }
        Weighted { cpu, links, around }
    }

    fn node_resource(&self) -> Vec<f64> {
        let both = self.cpu.iter().zip(&self.around);
        both.map(|(cpu, around)| cpu * around).collect()
    }

    fn global_resource_capacity(&self) -> Vec<f64> {
        let own = shares(&self.cpu);
        iterate(own.clone(), |values, next| {
            for (value, own) in next.iter_mut().zip(&own) {
                *value = (1.0 - DAMPING) * own;
            }
            for ([a, b], rate) in &self.links {
                for (to, from) in [(*a, *b), (*b, *a)] {
                    next[to] += DAMPING * ratio(*rate, self.around[from]) * values[from];
                }
            }
        })
    }

    fn random_walk(&self) -> Vec<f64> {
        let worth = self.node_resource();
        let jump = shares(&worth);
        // For each node, the sum of its neighbours' values.
        let mut beside = vec![0.0; worth.len()];
        for ([a, b], _) in &self.links {
            beside[*a] += worth[*b];
            beside[*b] += worth[*a];
        }
        iterate(jump.clone(), |values, next| {
            let all: f64 = values.iter().sum();
            for (value, jump) in next.iter_mut().zip(&jump) {
                *value = (1.0 - DAMPING) * all * jump;
            }
            for ([a, b], _) in &self.links {
                for (to, from) in [(*a, *b), (*b, *a)] {
                    next[to] += DAMPING * ratio(worth[to], beside[from]) * values[from];
                }
            }
        })
    }
}

/// Repeats a step until the values converge, at most [`STEPS_MAX`] times.
fn iterate(mut values: Vec<f64>, mut step: impl FnMut(&[f64], &mut [f64])) -> Vec<f64> {
    let mut next = vec![0.0; values.len()];
    for _ in 0..STEPS_MAX {
        step(&values, &mut next);
        let change = |(old, new): (&f64, &f64)| (old - new).abs();
        let changed: f64 = values.iter().zip(&next).map(change).sum();
        std::mem::swap(&mut values, &mut next);
        if changed < STAYS {
            break;
        }
    }
    values
}

/// The values divided by their sum.
fn shares(values: &[f64]) -> Vec<f64> {
    let sum: f64 = values.iter().sum();
    values.iter().map(|value| ratio(*value, sum)).collect()
}

fn ratio(part: f64, all: f64) -> f64 {
    if all > 0.0 { part / all } else { 0.0 }
}

/// The weight of neighbours relative to the node itself, as both publications have it.
const DAMPING: f64 = 0.85;

const STAYS: f64 = 1e-6;
const STEPS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    /// A star with node 0 in the middle of 1, 2 and 3; node 3 has the most processors.
    fn star() -> Weighted {
        let links = vec![([0, 1], 10.0), ([0, 2], 20.0), ([0, 3], 10.0)];
        Weighted::new(vec![4.0, 4.0, 4.0, 5.0], links)
    }

    #[test]
    fn measures_rank_the_middle_of_a_star_first() {
        let order = |measure: Measure| measure.order(&star());
        assert_eq!(order(Measure::GlobalResourceCapacity), [0, 2, 3, 1]);
        assert_eq!(order(Measure::NodeResource), [0, 2, 3, 1]);
        assert_eq!(order(Measure::RandomWalk), [0, 2, 3, 1]);
    }

    #[test]
    fn capacity_is_the_fixed_point_of_its_equation() {
        let graph = star();
        let values = graph.global_resource_capacity();
        let sum: f64 = values.iter().sum();
        assert!((sum - 1.0).abs() < 1e-3, "{values:?}");
        // The middle node gets the whole capacity of its three neighbours, which have no other
        // neighbour.
        let middle = 0.15 * 4.0 / 17.0 + 0.85 * (values[1] + values[2] + values[3]);
        assert!((values[0] - middle).abs() < 1e-4, "{values:?}");
    }

    #[test]
    fn graph_without_links_is_ranked_by_processors() {
        let graph = Weighted::new(vec![1.0, 3.0, 2.0], vec![]);
        let order = Measure::GlobalResourceCapacity.order(&graph);
        assert_eq!(order, [1, 2, 0]);
        assert_eq!(Measure::RandomWalk.order(&graph).len(), 3);
    }
}
