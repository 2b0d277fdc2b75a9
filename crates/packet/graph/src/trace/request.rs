//! The request of a reader.
//!
//! ```text
//!   snap 96                        bytes to copy of each frame (default: all)
//!   link eth1.output -> hop.input  a link to trace; may be repeated (default: all links)
//!   link hop.output                the link at a port
//!   link hop.output as r1 -> r2    a link, and the name to give it in the file
//! ```

use std::fmt;
use std::str::FromStr;

use carina_frame_engine::{Graph, GraphError, LinkName, PortName};
use carina_wire::pcapng::INTERFACES_MAX;

/// What a reader asks the process of a graph to copy: which links, and how much of each frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceRequest {
    /// Largest number of bytes to copy of each frame, at least 1; `None` copies all.
    pub snap_bytes: Option<u32>,
    /// The links to trace, each as `APP.PORT -> APP.PORT` or by the port at one of its ends. ` as
    /// NAME` behind it gives the link another name in the file. An empty list means all links.
    pub links: Vec<String>,
}

/// Why the process of a graph refuses to copy the frames that a reader requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// A line of the request begins with neither `snap` nor `link`; holds the line.
    #[error("{0:?}: a line must be `snap BYTES` or `link LINK`")]
    Line(String),
    /// The number after `snap`, of bytes to copy from each frame, is not valid; holds the text.
    #[error("snap {0:?}: must be 1 to {max} bytes", max = u32::MAX)]
    Snap(String),
    /// The name of a link or port is not well formed.
    #[error(transparent)]
    Name(#[from] GraphError),
    /// The graph has no such link.
    #[error("the graph has no link {link}; its links are {known}")]
    Unknown {
        /// The link that was requested.
        link: String,
        /// The links that the graph has, as a list in text.
        known: String,
    },
    /// A port name is both an input and an output with links, so it does not identify one link.
    #[error("{0} is both an input and an output; name one of its links as APP.PORT -> APP.PORT")]
    TwoLinks(PortName),
    /// More links were requested than one capture file can describe; holds their number.
    #[error("{0} links: at most {INTERFACES_MAX} can be traced at a time; name the links to trace")]
    TooMany(usize),
}

impl FromStr for TraceRequest {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<TraceRequest, RequestError> {
        let mut request = TraceRequest::default();
        for line in text.split_terminator('\n') {
            match line.split_once(' ') {
                Some(("snap", bytes)) => {
                    let number = bytes.parse().ok().filter(|number| *number > 0);
                    let number = number.ok_or_else(|| RequestError::Snap(bytes.to_owned()))?;
                    request.snap_bytes = Some(number);
                }
                Some(("link", link)) => request.links.push(link.to_owned()),
                _ => return Err(RequestError::Line(line.to_owned())),
            }
        }
        Ok(request)
    }
}

impl fmt::Display for TraceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(bytes) = self.snap_bytes {
            writeln!(f, "snap {bytes}")?;
        }
        // A line break within a name would begin another line of the request.
        let links = self.links.iter().map(|link| link.replace('\n', " "));
        links
            .into_iter()
            .try_for_each(|link| writeln!(f, "link {link}"))
    }
}

impl TraceRequest {
    /// The requested links of `graph`, or all its links if the request names none, each once, in
    /// the order of their names, and with the names that they get in the file.
    ///
    /// # Errors
    /// A name is malformed, the graph has no such link, a port that is both an input and an output
    /// names two links, or there are too many links.
    pub fn links_of(&self, graph: &Graph) -> Result<Vec<(LinkName, String)>, RequestError> {
        let under_own_name = |link: &LinkName| (link.clone(), link.to_string());
        let named = |text: &String| match text.split_once(AS) {
            Some((link, name)) => Ok((find(link, graph)?, name.to_owned())),
            None => find(text, graph).map(|link| under_own_name(&link)),
        };
        let mut links: Vec<(LinkName, String)> = if self.links.is_empty() {
            graph.links().map(under_own_name).collect()
        } else {
            self.links.iter().map(named).collect::<Result<_, _>>()?
        };
        links.sort();
        links.dedup_by(|one, other| one.0 == other.0);
        match links.len() {
            0..=INTERFACES_MAX => Ok(links),
            count => Err(RequestError::TooMany(count)),
        }
    }
}

/// Separates a link from its name in the file; no name of a port has spaces.
const AS: &str = " as ";

/// The link of a graph that a text identifies.
fn find(text: &str, graph: &Graph) -> Result<LinkName, RequestError> {
    let found: Vec<&LinkName> = if text.contains("->") {
        let name: LinkName = text.parse()?;
        graph.links().filter(|link| **link == name).collect()
    } else {
        let port: PortName = text.trim().parse()?;
        let ends = |link: &&LinkName| link.from == port || link.to == port;
        let found: Vec<_> = graph.links().filter(ends).collect();
        if found.len() > 1 {
            return Err(RequestError::TwoLinks(port));
        }
        found
    };
    found.first().map(|link| (*link).clone()).ok_or_else(|| {
        let known: Vec<String> = graph.links().map(ToString::to_string).collect();
        RequestError::Unknown {
            link: text.to_owned(),
            known: if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph_file::read_graph;

    const GRAPH: &str = "links = [\"a.output -> b.input\", \"b.output -> c.input\", \
                         \"d.output -> c.output\"]\n[apps.a]\nkind = \"source\"\n\
                         [apps.b]\nkind = \"hop\"\n[apps.c]\nkind = \"sink\"\n\
                         [apps.d]\nkind = \"source\"\n";

    fn request(links: &[&str]) -> TraceRequest {
        TraceRequest {
            snap_bytes: Some(96),
            links: links.iter().map(|link| (*link).to_owned()).collect(),
        }
    }

    #[test]
    fn requests_are_read_as_they_were_written() {
        for asked in [request(&[]), request(&["a.o -> b.i", "c.o"])] {
            assert_eq!(asked.to_string().parse::<TraceRequest>(), Ok(asked));
        }
        let forged = request(&["a.o\nsnap 1"]).to_string();
        assert_eq!(forged, "snap 96\nlink a.o snap 1\n");
        let refusal = |text: &str| text.parse::<TraceRequest>().unwrap_err().to_string();
        assert!(refusal("snap 0").starts_with("snap \"0\": must be 1 to"));
        assert!(refusal("what\n").starts_with("\"what\": a line must be"));
    }

    #[test]
    fn links_are_named_whole_or_by_a_port() {
        let graph = read_graph(GRAPH).unwrap();
        let links = |wanted: &[&str]| {
            let found = request(wanted).links_of(&graph);
            let names =
                |links: Vec<(LinkName, String)>| links.into_iter().map(|link| link.1).collect();
            found.map(names).map_err(|error| error.to_string())
        };
        let all: Vec<String> = graph.links().map(ToString::to_string).collect();
        assert_eq!(links(&[]), Ok(all.clone()));
        assert_eq!(
            links(&["b.output", "a.output->b.input"]),
            Ok(all[..2].to_vec())
        );
        assert_eq!(links(&["b.output", "c.input"]), Ok(all[1..2].to_vec()));
        let named = ["b.output as r1 -> r2", "a.output as r1 as r2"];
        assert_eq!(
            links(&named),
            Ok(vec!["r1 as r2".to_owned(), "r1 -> r2".to_owned()])
        );
        let unknown = links(&["a.o"]).unwrap_err();
        assert_eq!(
            unknown,
            format!(
                "the graph has no link a.o; its links are {}",
                all.join(", ")
            )
        );
        assert!(links(&["a"]).unwrap_err().contains("a link is written"));
    }

    #[test]
    fn port_of_two_links_names_neither() {
        let mut graph = Graph::new();
        for link in ["b.output -> c.input", "d.output -> b.output"] {
            graph.link(link).unwrap();
        }
        let error = request(&["b.output"]).links_of(&graph).unwrap_err();
        assert!(matches!(error, RequestError::TwoLinks(_)), "{error}");
    }
}
