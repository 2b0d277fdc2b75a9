//! `carina dif map`: draws members and links of a DIF as text, DOT or SVG.

use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::TAU;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use carina_api::DifName;
use carina_api::control::RibObject;
use carina_text::table::Table;
use serde::Serialize;

use super::show::ago_text;
use crate::Shared;
use crate::failure::{Attempt, Outcome};
use crate::report::{print_json, print_line};

/// Options of `carina dif map`: the DIF to draw, as which member knows it, and in which format.
#[derive(Debug, clap::Args)]
pub(crate) struct MapArgs {
    /// Name of the DIF to draw
    name: DifName,
    /// Member whose view of the DIF is drawn, by name or address [default: the member of this
    /// system]
    #[arg(long)]
    member: Option<String>,
    /// Write the picture to this file as SVG [default: print it as text]
    #[arg(long, value_name = "FILE", conflicts_with = "dot")]
    svg: Option<PathBuf>,
    /// Print the graph in the DOT language of Graphviz, for `dot -Tpng`
    #[arg(long)]
    dot: bool,
}

/// The members and links of a DIF that are drawn.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Picture {
    /// Names of members by address.
    members: BTreeMap<u64, String>,
    /// Addresses of members without a route: they ended without leaving, or are cut off.
    unreachable: BTreeSet<u64>,
    /// Cost of each link, by the addresses of its ends, the lower one first. Only links that both
    /// ends report as up: other members keep the report of an ended member for a while.
    links: BTreeMap<Pair, u64>,
    /// Milliseconds since the member whose RIB is drawn last heard each of its neighbours, by
    /// address.
    heard_ago_ms: BTreeMap<u64, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair(u64, u64);

impl Serialize for Pair {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}-{}", self.0, self.1))
    }
}

/// Time between two reads while some members are unreachable.
const LOOK: Duration = Duration::from_millis(50);

/// Draws the members and links of a DIF, as one member knows them: as text, for Graphviz or as SVG.
///
/// # Errors
/// There is no such DIF or member, or the file cannot be written.
pub(super) fn run(shared: &Shared, args: &MapArgs) -> Outcome {
    let node = shared.control();
    let read = |path: &str| {
        node.rib(Some(args.name.as_str()), args.member.as_deref(), path, 1)
            .attempt(format!("reading {path} of DIF {}", args.name))
    };
    let until = Instant::now() + shared.wait_limit();
    let mut picture = loop {
        let picture = Picture::new(&read("/members")?, &read("/routing/links")?);
        // A member that has just joined may not have computed all routes yet.
        if picture.unreachable.is_empty() || Instant::now() >= until {
            break picture;
        }
        std::thread::sleep(LOOK);
    };
    picture.hear(&read("/neighbours")?);
    if let Some(file) = &args.svg {
        std::fs::write(file, picture.svg(args.name.as_str()))
            .attempt(format!("writing {}", file.display()))?;
        return if shared.json {
            print_json(&picture)
        } else {
            print_line(format!(
                "{}: {} members, {} links",
                file.display(),
                picture.members.len(),
                picture.links.len()
            ))
        };
    }
    match (shared.json, args.dot) {
        (true, _) => print_json(&picture),
        (_, true) => print_line(picture.dot(args.name.as_str())),
        _ => print_line(picture.text()),
    }
}

impl Picture {
    fn new(members: &[RibObject], links: &[RibObject]) -> Picture {
        let mut picture = Picture::default();
        for object in members {
            let Some(name) = object.name_below("/members/") else {
                continue;
            };
            if let Some(address) = object.fields.get("address").and_then(|a| a.as_u64()) {
                picture.members.insert(address, name);
                if is_false(object, "is_reachable") {
                    picture.unreachable.insert(address);
                }
            }
        }
        let mut reported: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for object in links {
            let ends = object.path.strip_prefix("/routing/links/");
            let ends = ends.and_then(|ends| ends.split_once('-'));
            let Some((Ok(a), Ok(b))) = ends.map(|(a, b)| (a.parse(), b.parse())) else {
                continue;
            };
            let cost = object.fields.get("cost").and_then(|cost| cost.as_u64());
            if !is_false(object, "is_up") {
                reported.insert((a, b), cost.unwrap_or(1));
            }
        }
        for ((a, b), forward) in &reported {
            if let (true, Some(back)) = (a < b, reported.get(&(*b, *a))) {
                picture.links.insert(Pair(*a, *b), *forward.max(back));
            }
        }
        picture
    }

    /// Reads when each neighbour of the drawing member was last heard.
    fn hear(&mut self, neighbours: &[RibObject]) {
        let number = |object: &RibObject, field: &str| object.fields.get(field)?.as_u64();
        self.heard_ago_ms = neighbours
            .iter()
            .filter_map(|object| {
                let address = number(object, "address")?;
                Some((address, number(object, "heard_ago_ms")?))
            })
            .collect();
    }

    fn name(&self, address: u64) -> String {
        let known = self.members.get(&address).cloned();
        let name = known.unwrap_or_else(|| format!("address {address}"));
        if self.unreachable.contains(&address) {
            format!("{name} (unreachable)")
        } else {
            name
        }
    }

    /// The addresses of all members, and of all ends of links.
    fn addresses(&self) -> BTreeSet<u64> {
        let ends = self.links.keys().flat_map(|pair| [pair.0, pair.1]);
        self.members.keys().copied().chain(ends).collect()
    }

    fn text(&self) -> String {
        let mut table = Table::new(["ADDRESS", "MEMBER", "NEIGHBOURS", "HEARD"]);
        for address in self.addresses() {
            let mut neighbours = Vec::new();
            for (pair, cost) in &self.links {
                let other = match *pair {
                    Pair(a, b) if a == address => b,
                    Pair(a, b) if b == address => a,
                    Pair(..) => continue,
                };
                let cost = match cost {
                    1 => String::new(),
                    cost => format!(" (cost {cost})"),
                };
                neighbours.push(format!("{}{cost}", self.name(other)));
            }
            let neighbours = neighbours.join(", ");
            let heard = self.heard_ago_ms.get(&address);
            let heard = heard.map_or_else(String::new, |ms| ago_text(*ms));
            table.row([address.to_string(), self.name(address), neighbours, heard]);
        }
        table.to_string()
    }

    fn dot(&self, dif: &str) -> String {
        let mut text = format!("graph \"{}\" {{\n", quoted(dif));
        for address in self.addresses() {
            let label = format!("{}\\n{address}", quoted(&self.name(address)));
            let _ = writeln!(text, "  {address} [label=\"{label}\"];");
        }
        for (Pair(a, b), cost) in &self.links {
            let _ = writeln!(text, "  {a} -- {b} [label=\"{cost}\"];");
        }
        text + "}"
    }

    /// Draws members on a circle and links between them.
    fn svg(&self, dif: &str) -> String {
        let addresses = self.addresses();
        let count = addresses.len().max(1) as f64;
        let radius = (count * SPACING / TAU).max(SPACING);
        let size = 2.0 * (radius + MARGIN);
        let place = |index: usize| {
            let angle = TAU * index as f64 / count - TAU / 4.0;
            let middle = size / 2.0;
            (middle + radius * angle.cos(), middle + radius * angle.sin())
        };
        let places: BTreeMap<u64, (f64, f64)> = addresses
            .iter()
            .enumerate()
            .map(|(index, address)| (*address, place(index)))
            .collect();
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {size:.0} {size:.0}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<title>DIF {}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
            escaped(dif)
        );
        for (Pair(a, b), cost) in &self.links {
            let ((ax, ay), (bx, by)) = (places[a], places[b]);
            let width = 1.0 + 2.0 / (*cost).max(1) as f64;
            let _ = writeln!(
                text,
                "<line x1=\"{ax:.1}\" y1=\"{ay:.1}\" x2=\"{bx:.1}\" y2=\"{by:.1}\" \
                 stroke=\"#607080\" stroke-width=\"{width:.1}\"><title>cost {cost}</title></line>"
            );
        }
        for (address, (x, y)) in &places {
            let name = escaped(&self.name(*address));
            let below = y + 30.0;
            let _ = writeln!(
                text,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"14\" fill=\"#2060a0\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"white\" \
                 font-size=\"11\">{address}</text>\
                 <text x=\"{x:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{name}</text>",
                y + 4.0
            );
        }
        text + "</svg>\n"
    }
}

/// Whether a field of the object is false. A missing field counts as true.
fn is_false(object: &RibObject, field: &str) -> bool {
    object.fields.get(field).and_then(|flag| flag.as_bool()) == Some(false)
}

fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Distance between two members on the circle, in units of the picture.
const SPACING: f64 = 110.0;
const MARGIN: f64 = 90.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn object(path: &str, field: &str, value: u64) -> RibObject {
        RibObject {
            path: path.to_owned(),
            class: String::new(),
            fields: [(field.to_owned(), value.into())].into(),
        }
    }

    fn flagged(path: &str, field: (&str, u64), flag: (&str, bool)) -> RibObject {
        let mut object = object(path, field.0, field.1);
        object.fields.insert(flag.0.to_owned(), flag.1.into());
        object
    }

    fn picture() -> Picture {
        let members = [
            object("/members/a%2F1", "address", 1),
            object("/members/b<2>", "address", 2),
        ];
        let links = [
            object("/routing/links/1-2", "cost", 1),
            object("/routing/links/2-1", "cost", 1),
            object("/routing/links/2-3", "cost", 5),
            object("/routing/links/3-2", "cost", 4),
        ];
        let mut picture = Picture::new(&members, &links);
        let mut neighbour = object("/neighbours/b<2>", "address", 2);
        neighbour
            .fields
            .insert("heard_ago_ms".to_owned(), 250.into());
        picture.hear(&[object("/neighbours", "x", 1), neighbour]);
        picture
    }

    /// The view of the first of three members in a row. The third one was killed if `third` is its
    /// name, and has left in order if `third` is `None`.
    fn line_of_three(third: Option<&str>) -> Picture {
        let reachable = |path: &str, address: u64, is_reachable: bool| {
            flagged(path, ("address", address), ("is_reachable", is_reachable))
        };
        let link = |path: &str, is_up: bool| flagged(path, ("cost", 1), ("is_up", is_up));
        let mut members = vec![
            reachable("/members/n.a", 1, true),
            reachable("/members/n.b", 16, true),
        ];
        members.extend(third.map(|name| reachable(&format!("/members/{name}"), 256, false)));
        let links = [
            link("/routing/links/1-16", true),
            link("/routing/links/16-1", true),
            // The neighbour reports the link as down; the last report of a killed member stays.
            link("/routing/links/16-256", false),
            link("/routing/links/256-16", third.is_some()),
        ];
        Picture::new(&members, &links)
    }

    #[test]
    fn links_of_a_member_that_left_or_died_are_not_drawn() {
        let left = line_of_three(None);
        assert_eq!(left.links, [(Pair(1, 16), 1)].into());
        assert_eq!(left.addresses(), [1, 16].into());
        let died = line_of_three(Some("n.c"));
        assert_eq!(died.links, [(Pair(1, 16), 1)].into());
        assert_eq!(died.unreachable, [256].into());
        assert!(died.text().contains("n.c (unreachable)"), "{}", died.text());
        assert!(!left.text().contains("256"), "{}", left.text());
    }

    #[test]
    fn links_are_drawn_once_and_strangers_by_address() {
        let picture = picture();
        assert_eq!(picture.links.len(), 2);
        let text = picture.text();
        assert!(
            text.contains("a/1, address 3 (cost 5)  250 ms ago"),
            "{text}"
        );
        let dot = picture.dot("n\"et");
        assert!(dot.starts_with("graph \"n\\\"et\" {"), "{dot}");
        assert!(dot.contains("1 -- 2"), "{dot}");
    }

    #[test]
    fn a_picture_is_well_formed_whatever_the_names() {
        let svg = picture().svg("a&b");
        assert!(
            svg.contains("b&lt;2&gt;") && svg.contains("DIF a&amp;b"),
            "{svg}"
        );
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("<line").count(), 2);
        assert!(Picture::default().svg("empty").ends_with("</svg>\n"));
    }
}
