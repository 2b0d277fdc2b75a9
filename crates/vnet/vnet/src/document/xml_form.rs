//! Reads and writes a document in XML, as in `vnet.xsd`: every value is an attribute, and a list is
//! an attribute with words separated by spaces.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::str::FromStr;

use quick_xml::escape::escape;
use serde_json::Value;

use super::fault::{DocumentError, Lines, Place};
use super::xml_tree::{Element, parse, wrong};
use super::{AccessPoint, Document, End, Header, Link, Nics, Node, NodeFile, Test};

const NODE: &[&str] = &[
    "kind",
    "image",
    "cpus",
    "memory",
    "boot",
    "location",
    "apart-from",
    "filesystem",
    "exec-deadline",
    "position",
];

pub(super) fn read(text: &str) -> Result<(Document, Lines), DocumentError> {
    let root = parse(text)?;
    if root.name != "vnet" {
        let message = format!("the root element is <{}>; must be <vnet>", root.name);
        return Err(wrong(root.line, message));
    }
    let parts = ["defaults", "node", "link", "access", "test"];
    root.has_only(&["name", "lease", "on-insufficient"], &parts)?;
    let mut document = Document {
        vnet: Header {
            name: root.need("name")?.to_owned(),
            lease: root.read("lease")?,
            on_insufficient: root.word("on-insufficient")?.unwrap_or_default(),
        },
        defaults: Node::default(),
        node: BTreeMap::new(),
        link: Vec::new(),
        access: BTreeMap::new(),
        test: Vec::new(),
    };
    let mut lines = Lines::from([(Place::Header, root.line)]);
    for part in &root.children {
        let place = read_part(&mut document, part)?;
        if lines.insert(place, part.line).is_some() {
            return Err(twice(part));
        }
    }
    Ok((document, lines))
}

fn read_part(document: &mut Document, part: &Element) -> Result<Place, DocumentError> {
    Ok(match part.name.as_str() {
        "defaults" => {
            document.defaults = node(part, NODE)?;
            Place::Defaults
        }
        "node" => {
            let name = part.need("name")?.to_owned();
            let node = node(part, &[&["name"], NODE].concat())?;
            document.node.insert(name.clone(), node);
            Place::Node(name)
        }
        "link" => {
            document.link.push(link(part)?);
            Place::Link(document.link.len() - 1)
        }
        "access" => {
            let keys = [
                "name", "node", "attach", "location", "card", "users", "rate",
            ];
            part.has_only(&keys, &[])?;
            let name = part.need("name")?.to_owned();
            let access = AccessPoint {
                node: part.need("node")?.to_owned(),
                attach: part.word("attach")?.unwrap_or_default(),
                location: part.words("location"),
                card: part.read("card")?.unwrap_or_default(),
                users: part.words("users"),
                rate: part.read("rate")?,
            };
            document.access.insert(name.clone(), access);
            Place::Access(name)
        }
        _ => {
            document.test.push(test(part)?);
            Place::Test(document.test.len() - 1)
        }
    })
}

fn twice(part: &Element) -> DocumentError {
    let name = part.text("name").map(|name| format!(" `{name}`"));
    let name = name.unwrap_or_default();
    wrong(
        part.line,
        format!("a second <{}>{name}; one is possible", part.name),
    )
}

fn node(part: &Element, keys: &[&str]) -> Result<Node, DocumentError> {
    let children = ["nics", "label", "environment", "file", "exec"];
    part.has_only(keys, &children)?;
    let mut node = Node {
        kind: part.word("kind")?,
        image: part.text("image").map(str::to_owned),
        cpus: part.read("cpus")?,
        memory: part.read("memory")?,
        boot: part.word("boot")?,
        location: part.words("location"),
        nics: None,
        apart_from: part.words("apart-from"),
        filesystem: part.text("filesystem").map(str::to_owned),
        exec_deadline: part.read("exec-deadline")?,
        position: part.read("position")?,
        ..Node::default()
    };
    for child in &part.children {
        if read_start(child, &mut node)? {
            continue;
        }
        let is_second = if child.name == "nics" {
            child.has_only(&["count", "via"], &[])?;
            let nics = Nics {
                count: child.need_read("count")?,
                via: child.word("via")?.unwrap_or_default(),
            };
            node.nics.replace(nics).is_some()
        } else {
            child.has_only(&["name", "value"], &[])?;
            let (name, value) = (child.need("name")?, child.need("value")?);
            let before = node.labels.insert(name.to_owned(), value.to_owned());
            before.is_some()
        };
        if is_second {
            return Err(twice(child));
        }
    }
    Ok(node)
}

/// Reads a child of a node that belongs to its start; false if the child is another one.
fn read_start(child: &Element, node: &mut Node) -> Result<bool, DocumentError> {
    match child.name.as_str() {
        "environment" => {
            child.has_only(&["name", "value"], &[])?;
            let value = child.text("value").unwrap_or_default().to_owned();
            let name = child.need("name")?.to_owned();
            if node.environment.insert(name, value).is_some() {
                return Err(twice(child));
            }
        }
        "file" => {
            child.has_only(&["path", "content", "source", "mode"], &[])?;
            let text = |key: &str| child.text(key).map(str::to_owned);
            node.files.push(NodeFile {
                path: child.need("path")?.to_owned(),
                content: text("content"),
                source: text("source"),
                mode: text("mode"),
            });
        }
        "exec" => {
            child.has_only(&["command"], &[])?;
            node.exec.push(child.need("command")?.to_owned());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

const LINK: &[&str] = &[
    "rate",
    "delay-max",
    "loss-max",
    "as",
    "path",
    "addresses",
    "addresses6",
    "mtu",
    "delay",
    "jitter",
    "loss",
    "duplicate",
    "reorder",
    "corrupt",
    "down",
    "down-every",
];

fn link(part: &Element) -> Result<Link, DocumentError> {
    part.has_only(LINK, &["end"])?;
    let end = |child: &Element| {
        child.has_only(&["node", "interface"], &[])?;
        Ok(End {
            node: child.need("node")?.to_owned(),
            interface: child.text("interface").map(str::to_owned),
        })
    };
    let ends: Vec<End> = part.children.iter().map(end).collect::<Result<_, _>>()?;
    let ends = <[End; 2]>::try_from(ends).map_err(|ends| {
        let message = format!(
            "a link has {} ends; must be two <end node=\"…\"/>",
            ends.len()
        );
        wrong(part.line, message)
    })?;
    Ok(Link {
        delay_max: part.read("delay-max")?,
        loss_max: part.read("loss-max")?,
        carrier: part.word("as")?.unwrap_or_default(),
        path: part.word("path")?.unwrap_or_default(),
        addresses: read_pair(part, "addresses")?,
        addresses6: read_pair(part, "addresses6")?,
        mtu: part.read("mtu")?,
        delay: part.read("delay")?,
        jitter: part.read("jitter")?,
        loss: part.read("loss")?,
        duplicate: part.read("duplicate")?,
        reorder: part.read("reorder")?,
        corrupt: part.read("corrupt")?,
        down: read_words(part, "down")?,
        down_every: part.read("down-every")?,
        ..Link::new(ends, part.need_read("rate")?)
    })
}

fn test(part: &Element) -> Result<Test, DocumentError> {
    part.has_only(&["ping", "rtt-max", "throughput", "rate-min"], &[])?;
    Ok(Test {
        ping: pair(part, "ping")?,
        rtt_max: part.read("rtt-max")?,
        throughput: pair(part, "throughput")?,
        rate_min: part.read("rate-min")?,
    })
}

fn pair(part: &Element, key: &str) -> Result<Option<[String; 2]>, DocumentError> {
    if part.text(key).is_none() {
        return Ok(None);
    }
    let words = <[String; 2]>::try_from(part.words(key));
    let pair = words.map_err(|words| {
        let message = format!(
            "{key} has {} words; must be two with a space between, one for each end",
            words.len()
        );
        wrong(part.line, message)
    })?;
    Ok(Some(pair))
}

/// Parses an optional attribute that has a value for each end of a link.
fn read_pair<T: FromStr<Err: Display>>(
    part: &Element,
    key: &str,
) -> Result<Option<[T; 2]>, DocumentError> {
    let read = |text: &str| {
        let value = text.parse();
        value.map_err(|error: T::Err| wrong(part.line, format!("{key}: {error}")))
    };
    let pair = pair(part, key)?;
    let values = pair.map(|[one, other]| Ok([read(&one)?, read(&other)?]));
    values.transpose()
}

/// Parses an attribute with any number of words.
fn read_words<T: FromStr<Err: Display>>(
    part: &Element,
    key: &str,
) -> Result<Vec<T>, DocumentError> {
    let words = part.words(key).into_iter();
    let values = words.map(|word| {
        let value = word.parse();
        value.map_err(|error: T::Err| wrong(part.line, format!("{key}: {error}")))
    });
    values.collect()
}

pub(super) fn write(document: &Document) -> String {
    let value = serde_json::to_value(document).expect("a document has text keys only");
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    line(&mut text, 0, "vnet", &[], &value["vnet"], false);
    if let defaults @ Value::Object(_) = &value["defaults"] {
        part(&mut text, "defaults", &[], defaults);
    }
    for (name, node) in objects(&value["node"]) {
        part(&mut text, "node", &[("name", name)], node);
    }
    for link in value["link"].as_array().into_iter().flatten() {
        line(&mut text, 1, "link", &[], link, false);
        for end in link["ends"].as_array().into_iter().flatten() {
            let end = End::from(end.as_str().unwrap_or_default().to_owned());
            let mut keys = vec![("node", end.node.as_str())];
            keys.extend(
                end.interface
                    .as_ref()
                    .map(|name| ("interface", name.as_str())),
            );
            line(&mut text, 2, "end", &keys, &Value::Null, true);
        }
        text.push_str("  </link>\n");
    }
    for (name, access) in objects(&value["access"]) {
        line(&mut text, 1, "access", &[("name", name)], access, true);
    }
    for test in value["test"].as_array().into_iter().flatten() {
        line(&mut text, 1, "test", &[], test, true);
    }
    text.push_str("</vnet>\n");
    text
}

fn objects(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Writes an element for a node, or for the defaults of all nodes.
fn part(text: &mut String, name: &str, keys: &[(&str, &str)], value: &Value) {
    let children = ["nics", "labels", "environment", "files", "exec"];
    let is_empty = children.iter().all(|key| value[key].is_null());
    line(text, 1, name, keys, value, is_empty);
    if is_empty {
        return;
    }
    if let nics @ Value::Object(_) = &value["nics"] {
        line(text, 2, "nics", &[], nics, true);
    }
    for (label, value) in objects(&value["labels"]) {
        let value = value.as_str().unwrap_or_default();
        let keys = [("name", label.as_str()), ("value", value)];
        line(text, 2, "label", &keys, &Value::Null, true);
    }
    for (name, value) in objects(&value["environment"]) {
        let keys = [
            ("name", name.as_str()),
            ("value", value.as_str().unwrap_or_default()),
        ];
        line(text, 2, "environment", &keys, &Value::Null, true);
    }
    for file in value["files"].as_array().into_iter().flatten() {
        line(text, 2, "file", &[], file, true);
    }
    for command in value["exec"].as_array().into_iter().flatten() {
        let keys = [("command", command.as_str().unwrap_or_default())];
        line(text, 2, "exec", &keys, &Value::Null, true);
    }
    writeln!(text, "  </{name}>").expect("a string grows");
}

/// A value as it stands in an attribute. A reader of XML turns a plain line break or tab into a
/// space. (XML 1.0, section 3.3.3)
fn escaped(value: &str) -> String {
    let escaped = escape(value).replace('\n', "&#10;");
    escaped.replace('\t', "&#9;")
}

/// Writes the start tag of an element: the attributes `keys`, and those fields of `value` that are
/// plain values or lists of words.
fn line(
    text: &mut String,
    depth: usize,
    name: &str,
    keys: &[(&str, &str)],
    value: &Value,
    is_empty: bool,
) {
    write!(text, "{}<{name}", "  ".repeat(depth)).expect("a string grows");
    for (key, value) in keys {
        write!(text, " {key}=\"{}\"", escaped(value)).expect("a string grows");
    }
    for (key, value) in objects(value) {
        let value = match value {
            Value::String(value) => value.clone(),
            Value::Number(value) => value.to_string(),
            Value::Bool(value) => value.to_string(),
            Value::Array(words) if !matches!(key.as_str(), "ends" | "files" | "exec") => {
                let words = words.iter().filter_map(Value::as_str);
                words.collect::<Vec<_>>().join(" ")
            }
            _ => continue,
        };
        let key = key.replace('_', "-");
        write!(text, " {key}=\"{}\"", escaped(&value)).expect("a string grows");
    }
    text.push_str(if is_empty { "/>\n" } else { ">\n" });
}
