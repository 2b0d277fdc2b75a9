//! Drawings of networks: systems as boxes with a text, and links between the boxes, as SVG.
//!
//! A network with tiers, such as a fat tree, is drawn in rows; another one by forces, or at the
//! places that the caller gives.

mod tiers;

use std::collections::BTreeMap;
use std::f64::consts::TAU;

/// A network to draw: systems, and the links between them.
#[derive(Debug, Clone, Default)]
pub struct Drawing {
    /// The systems, each drawn as a box.
    pub systems: Vec<DrawnSystem>,
    /// The links, each drawn as a line. An end that is not a system is drawn as a junction with its
    /// name.
    pub edges: Vec<DrawnEdge>,
}

/// A system of a drawing, drawn as a box.
#[derive(Debug, Clone)]
pub struct DrawnSystem {
    /// Name of the system: the first line of text in its box. Edges refer to the system by this
    /// name.
    pub name: String,
    /// Text below the name.
    pub text: String,
    /// Whether the system is a virtual machine; its box then has sharp corners.
    pub is_machine: bool,
    /// Whether the system runs; otherwise its frame is dashed.
    pub is_up: bool,
}

/// A link of a drawing, drawn as a line.
#[derive(Debug, Clone)]
pub struct DrawnEdge {
    /// The names of the systems or junctions at the two ends.
    pub ends: [String; 2],
    /// Text beside the line.
    pub text: String,
    /// Whether the link carries frames; otherwise its line is dashed.
    pub is_up: bool,
}

impl Drawing {
    /// Draws the systems and links as an SVG picture with a title. Returns the text of the SVG
    /// file.
    #[must_use]
    pub fn svg(&self, title: &str) -> String {
        self.svg_at(title, &BTreeMap::new())
    }

    /// Like [`Drawing::svg`], with systems at these places: to the right and down, in any unit.
    /// Systems without a place are put beside their neighbours.
    #[must_use]
    pub fn svg_at(&self, title: &str, known: &BTreeMap<String, (f64, f64)>) -> String {
        let mut points: Vec<&str> = self
            .systems
            .iter()
            .map(|system| system.name.as_str())
            .collect();
        for end in self.edges.iter().flat_map(|edge| &edge.ends) {
            if !points.contains(&end.as_str()) {
                points.push(end);
            }
        }
        let places = layout(&points, &self.edges, known);
        let width = places.values().map(|at| at.0).fold(0.0, f64::max) + 2.0 * MARGIN;
        let height = places.values().map(|at| at.1).fold(0.0, f64::max) + 2.0 * MARGIN;
        let at = |name: &str| {
            let (x, y) = places.get(name).copied().unwrap_or_default();
            (x + MARGIN, y + MARGIN)
        };
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"sans-serif\" font-size=\"13\" text-anchor=\"middle\">\n\
             <title>{}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
            escaped(title)
        );
        for edge in &self.edges {
            let ends = [at(&edge.ends[0]), at(&edge.ends[1])];
            text.push_str(&line(edge, ends));
        }
        for name in points {
            let system = self.systems.iter().find(|system| system.name == name);
            text.push_str(&match system {
                Some(system) => boxed(system, at(name)),
                None => junction(name, at(name)),
            });
        }
        text + "</svg>\n"
    }
}

fn line(edge: &DrawnEdge, [(ax, ay), (bx, by)]: [(f64, f64); 2]) -> String {
    let (mx, my) = (f64::midpoint(ax, bx), f64::midpoint(ay, by) - 4.0);
    format!(
        "<line x1=\"{ax:.1}\" y1=\"{ay:.1}\" x2=\"{bx:.1}\" y2=\"{by:.1}\" stroke=\"#607080\" \
         stroke-width=\"2\"{}/><text x=\"{mx:.1}\" y=\"{my:.1}\" fill=\"#405060\" \
         font-size=\"11\">{}</text>\n",
        dashes(edge.is_up),
        escaped(&edge.text)
    )
}

fn junction(name: &str, (x, y): (f64, f64)) -> String {
    format!(
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"40\" height=\"14\" fill=\"#90a0b0\"/>\
         <text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"11\">{}</text>\n",
        x - 20.0,
        y - 7.0,
        y + 4.0,
        escaped(name)
    )
}

fn boxed(system: &DrawnSystem, (x, y): (f64, f64)) -> String {
    let (fill, corner) = if system.is_machine {
        ("#d8ecd8", 0)
    } else {
        ("#dce8f6", 8)
    };
    let (left, top) = (x - BOX.0 / 2.0, y - BOX.1 / 2.0);
    format!(
        "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{}\" height=\"{}\" rx=\"{corner}\" \
         fill=\"{fill}\" stroke=\"#2060a0\"{}/><text x=\"{x:.1}\" y=\"{:.1}\" \
         font-weight=\"bold\">{}</text><text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"10\">{}</text>\n",
        BOX.0,
        BOX.1,
        dashes(system.is_up),
        y - 2.0,
        escaped(&system.name),
        y + 13.0,
        escaped(&system.text)
    )
}

fn dashes(is_up: bool) -> &'static str {
    if is_up {
        ""
    } else {
        " stroke-dasharray=\"5 4\""
    }
}

/// Positions of the points, from 0 to the right and downwards.
fn layout<'a>(
    points: &[&'a str],
    edges: &[DrawnEdge],
    known: &BTreeMap<String, (f64, f64)>,
) -> BTreeMap<&'a str, (f64, f64)> {
    let numbers: BTreeMap<&str, usize> = points.iter().copied().zip(0..).collect();
    let index = |name: &String| numbers.get(name.as_str()).copied();
    let lines: Vec<(usize, usize)> = edges
        .iter()
        .filter_map(|edge| Some((index(&edge.ends[0])?, index(&edge.ends[1])?)))
        .collect();
    let next = tiers::neighbours(points.len(), &lines);
    let places = if points.iter().any(|point| known.contains_key(*point)) {
        let known = points.iter().map(|point| known.get(*point).copied());
        scaled(&known.collect::<Vec<_>>(), &next)
    } else if let Some(tiers) = tiers::tiers_of(points, &next) {
        let rows = tiers::placed(points, &next, &tiers).into_iter();
        rows.map(|(x, y)| (x * SPACING, y * SPACING)).collect()
    } else {
        by_forces(points.len(), &lines)
    };
    let left = places.iter().map(|at| at.0).fold(f64::INFINITY, f64::min);
    let top = places.iter().map(|at| at.1).fold(f64::INFINITY, f64::min);
    let moved = places.iter().map(|at| (at.0 - left, at.1 - top));
    points.iter().copied().zip(moved).collect()
}

/// Scales known places, so that half of the points are at least a line's length from all others.
/// Points without a place are put beside their neighbours.
fn scaled(known: &[Option<(f64, f64)>], next: &tiers::Neighbours) -> Vec<(f64, f64)> {
    let placed: Vec<(f64, f64)> = known.iter().flatten().copied().collect();
    let nearest = |one: &(f64, f64)| {
        let others = placed.iter().map(|other| distance(*one, *other));
        others
            .filter(|far| *far > 0.0)
            .fold(f64::INFINITY, f64::min)
    };
    let mut nearest: Vec<f64> = placed.iter().map(nearest).collect();
    nearest.sort_by(f64::total_cmp);
    let median = nearest.get(nearest.len() / 2).copied().unwrap_or(1.0);
    let scale = if median.is_finite() {
        SPACING / median
    } else {
        1.0
    };
    let mut places = Vec::new();
    for (point, place) in known.iter().enumerate() {
        places.push(
            place
                .map(|(x, y)| (x * scale, y * scale))
                .unwrap_or_else(|| {
                    let beside = next[point].iter().filter_map(|other| known[*other]);
                    let mut beside: Vec<(f64, f64)> = beside.collect();
                    if beside.is_empty() {
                        beside.clone_from(&placed);
                    }
                    let count = beside.len().max(1) as f64;
                    let sum = beside
                        .iter()
                        .fold((0.0, 0.0), |sum, at| (sum.0 + at.0, sum.1 + at.1));
                    // Each in another direction.
                    let angle = point as f64;
                    let (x, y) = (sum.0 / count * scale, sum.1 / count * scale);
                    (x + SPACING * angle.cos(), y + SPACING * angle.sin())
                }),
        );
    }
    places
}

/// Positions of the points by a force-directed layout that starts on a circle: lines attract their
/// ends, points repel each other, and the steps get smaller.
fn by_forces(points: usize, lines: &[(usize, usize)]) -> Vec<(f64, f64)> {
    let count = points.max(1) as f64;
    let radius = SPACING * count.sqrt();
    let mut places: Vec<(f64, f64)> = (0..points)
        .map(|index| {
            let angle = TAU * index as f64 / count;
            (radius * angle.cos(), radius * angle.sin())
        })
        .collect();
    for step in 0..STEPS {
        let reach = SPACING * (1.0 - f64::from(step) / f64::from(STEPS));
        let mut forces = vec![(0.0, 0.0); places.len()];
        let mut push = |a: usize, b: usize, force: f64, places: &[(f64, f64)]| {
            let (dx, dy) = (places[a].0 - places[b].0, places[a].1 - places[b].1);
            let far = dx.hypot(dy).max(1.0);
            let (x, y) = (dx / far * force, dy / far * force);
            forces[a] = (forces[a].0 + x, forces[a].1 + y);
            forces[b] = (forces[b].0 - x, forces[b].1 - y);
        };
        for a in 0..places.len() {
            for b in 0..a {
                let far = distance(places[a], places[b]).max(1.0);
                push(a, b, SPACING * SPACING / far, &places);
            }
        }
        for (a, b) in lines {
            let far = distance(places[*a], places[*b]);
            push(*a, *b, -far * far / SPACING, &places);
        }
        for (place, force) in places.iter_mut().zip(forces) {
            let size = f64::hypot(force.0, force.1).max(1e-9);
            let go = size.min(reach) / size;
            *place = (place.0 + force.0 * go, place.1 + force.1 * go);
        }
    }
    places
}

fn distance(a: (f64, f64), b: (f64, f64)) -> f64 {
    (a.0 - b.0).hypot(a.1 - b.1)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Desired length of a line, margin of the picture, and size of a box, in units of the picture.
const SPACING: f64 = 120.0;
const MARGIN: f64 = 70.0;
const BOX: (f64, f64) = (96.0, 40.0);
const STEPS: u32 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing(names: &[&str], lines: &[(&str, &str)]) -> Drawing {
        let systems = names.iter().map(|name| DrawnSystem {
            name: (*name).to_owned(),
            text: String::new(),
            is_machine: false,
            is_up: true,
        });
        let edges = lines.iter().map(|(one, other)| DrawnEdge {
            ends: [(*one).to_owned(), (*other).to_owned()],
            text: String::new(),
            is_up: true,
        });
        Drawing {
            systems: systems.collect(),
            edges: edges.collect(),
        }
    }

    /// Where the name of a system is written.
    fn place(svg: &str, name: &str) -> (f64, f64) {
        let line = svg.lines().find(|line| line.contains(&format!(">{name}<")));
        let text = line.and_then(|line| line.split("<text ").nth(1)).unwrap();
        let number = |key: &str| {
            let value = text.split(&format!("{key}=\"")).nth(1).unwrap();
            value.split('"').next().unwrap().parse().unwrap()
        };
        (number("x"), number("y"))
    }

    #[test]
    fn systems_are_where_the_caller_places_them() {
        let drawing = drawing(&["a", "b", "c", "d"], &[("a", "d")]);
        let known = [("a", (0.0, 0.0)), ("b", (2.0, 0.0)), ("c", (0.0, 1.0))];
        let known = known.map(|(name, at)| (name.to_owned(), at)).into();
        let svg = drawing.svg_at("x", &known);
        let [a, b, c] = ["a", "b", "c"].map(|name| place(&svg, name));
        assert_eq!((a.1, a.0), (b.1, c.0), "{svg}");
        assert!((b.0 - a.0 - 2.0 * (c.1 - a.1)).abs() < 1.0, "{svg}");
        assert!((c.1 - a.1 - SPACING).abs() < 1.0, "{svg}");
        // The fourth one is beside its neighbour.
        assert!(distance(a, place(&svg, "d")) < 1.5 * SPACING, "{svg}");
    }

    #[test]
    fn tiers_are_rows() {
        let names = ["spine1", "spine2", "leaf1", "leaf2", "h1", "h2"];
        let lines = [
            ("spine1", "leaf1"),
            ("spine1", "leaf2"),
            ("spine2", "leaf1"),
            ("spine2", "leaf2"),
            ("leaf1", "h1"),
            ("leaf2", "h2"),
        ];
        let svg = drawing(&names, &lines).svg("x");
        let at = |name: &str| place(&svg, name);
        assert_eq!(at("spine1").1, at("spine2").1);
        assert!(at("spine1").1 < at("leaf1").1 && at("leaf2").1 < at("h2").1);
        assert!((at("leaf1").0 < at("leaf2").0) == (at("h1").0 < at("h2").0));
    }
}
