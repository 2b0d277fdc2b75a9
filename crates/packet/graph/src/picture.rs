//! Draws a graph: apps as boxes in the order in which frames pass them, links as lines with labels.

use std::collections::BTreeMap;
use std::fmt::Write;

use carina_frame_engine::{Graph, LinkName};

/// The graph as an SVG picture. `labels` has texts for some links, such as their rates.
#[must_use]
pub fn svg(title: &str, graph: &Graph, labels: &BTreeMap<LinkName, String>) -> String {
    let places = layout(graph);
    let right = places.values().map(|at| at.0).fold(0.0, f64::max);
    let bottom = places.values().map(|at| at.1).fold(0.0, f64::max);
    let (width, height) = (right + BOX.0 + 2.0 * MARGIN, bottom + BOX.1 + 2.0 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"13\" text-anchor=\"middle\">\n\
         <title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#607080\"/></marker>\
         </defs>\n",
        escaped(title)
    );
    for link in graph.links() {
        let ends = [&link.from.app, &link.to.app].map(|app| places.get(app.as_str()).copied());
        if let [Some(from), Some(to)] = ends {
            line(&mut text, link, from, to, labels.get(link));
        }
    }
    for (name, kind) in graph.apps() {
        let (x, y) = places.get(name).copied().unwrap_or_default();
        let (left, top) = (x + MARGIN, y + MARGIN);
        let kind = match graph.worker_of(name) {
            Some(worker) => format!("{kind}, worker {worker}"),
            None => kind.to_owned(),
        };
        let middle = left + BOX.0 / 2.0;
        let _ = writeln!(
            text,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{}\" height=\"{}\" rx=\"6\" \
             fill=\"#dce8f6\" stroke=\"#2060a0\"/><text x=\"{middle:.1}\" y=\"{:.1}\" \
             font-weight=\"bold\">{}</text><text x=\"{middle:.1}\" y=\"{:.1}\" \
             font-size=\"11\">{}</text>",
            BOX.0,
            BOX.1,
            top + 18.0,
            escaped(name),
            top + 34.0,
            escaped(&kind)
        );
    }
    text + "</svg>\n"
}

fn line(
    text: &mut String,
    link: &LinkName,
    from: (f64, f64),
    to: (f64, f64),
    label: Option<&String>,
) {
    let (ax, ay) = (from.0 + MARGIN + BOX.0, from.1 + MARGIN + BOX.1 / 2.0);
    let (bx, by) = (to.0 + MARGIN, to.1 + MARGIN + BOX.1 / 2.0);
    // A line back to the left runs below the boxes.
    let path = if bx > ax {
        let middle = f64::midpoint(ax, bx);
        format!("M{ax:.1} {ay:.1}C{middle:.1} {ay:.1} {middle:.1} {by:.1} {bx:.1} {by:.1}")
    } else {
        let low = ay.max(by) + BOX.1;
        format!(
            "M{ax:.1} {ay:.1}C{:.1} {low:.1} {:.1} {low:.1} {bx:.1} {by:.1}",
            ax + GAP.0,
            bx - GAP.0
        )
    };
    let (x, y) = (f64::midpoint(ax, bx), f64::midpoint(ay, by) - 5.0);
    let ports = format!("{} → {}", link.from.port, link.to.port);
    let words = label.map_or_else(|| ports.clone(), Clone::clone);
    let _ = writeln!(
        text,
        "<path d=\"{path}\" fill=\"none\" stroke=\"#607080\" stroke-width=\"1.5\" \
         marker-end=\"url(#tip)\"><title>{}</title></path><text x=\"{x:.1}\" y=\"{y:.1}\" \
         font-size=\"10\" fill=\"#405060\">{}</text>",
        escaped(&ports),
        escaped(&words)
    );
}

/// The upper left corner of each app. An app's column is the longest path to it from an app without
/// inputs. The search takes at most as many rounds as there are apps, so it also ends for a circle
/// of links.
fn layout(graph: &Graph) -> BTreeMap<&str, (f64, f64)> {
    let mut columns: BTreeMap<&str, usize> = graph.apps().map(|(name, _)| (name, 0)).collect();
    let last = columns.len().saturating_sub(1);
    for _ in 0..last {
        for link in graph.links() {
            let behind = columns
                .get(link.from.app.as_str())
                .map_or(0, |column| column + 1);
            if let Some(column) = columns.get_mut(link.to.app.as_str())
                && behind <= last
            {
                *column = behind.max(*column);
            }
        }
    }
    let mut rows: BTreeMap<usize, usize> = BTreeMap::new();
    let mut places = BTreeMap::new();
    for (name, column) in columns {
        let row = rows.entry(column).or_default();
        let (x, y) = (
            column as f64 * (BOX.0 + GAP.0),
            *row as f64 * (BOX.1 + GAP.1),
        );
        places.insert(name, (x, y));
        *row += 1;
    }
    places
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

const BOX: (f64, f64) = (110.0, 44.0);
const GAP: (f64, f64) = (110.0, 30.0);
const MARGIN: f64 = 30.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph_file::read_graph;

    #[test]
    fn chain_goes_from_left_to_right_and_shows_its_labels() {
        let text = "links = [\"a.o -> b.input\", \"b.x -> c.i\", \"b.y -> c.j\"]\n\
                    [apps.a]\nkind = \"source\"\n[apps.b]\nkind = \"tee\"\n\
                    [apps.c]\nkind = \"sink\"\n";
        let graph = read_graph(text).unwrap();
        let places = layout(&graph);
        assert!(places["a"].0 < places["b"].0 && places["b"].0 < places["c"].0);
        let link: LinkName = "a.o -> b.input".parse().unwrap();
        let labels = BTreeMap::from([(link, "5 Mpps & more".to_owned())]);
        let picture = svg("t", &graph, &labels);
        assert!(picture.contains("5 Mpps &amp; more") && picture.contains("y → j"));
        // A path for each link, and one for the arrowhead.
        assert_eq!(picture.matches("<path d=\"M").count(), 3 + 1);
    }

    #[test]
    fn circle_of_links_has_a_picture() {
        let text = "links = [\"a.p -> b.q\", \"b.q -> a.p\"]\n[apps.a]\nkind = \"bridge\"\n\
                    [apps.b]\nkind = \"bridge\"\n";
        let picture = svg("t", &read_graph(text).unwrap(), &BTreeMap::new());
        assert!(picture.ends_with("</svg>\n"));
    }
}
