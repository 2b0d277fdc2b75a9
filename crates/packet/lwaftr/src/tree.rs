//! A configuration as a tree of statements, whose parts are addressed by paths.

use crate::path::{Path, Step};
use crate::text::{ReadError, Reader, Statement};

/// A statement, with the statements inside its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The statement's first word.
    pub keyword: String,
    /// The value; `None` for a statement with a block.
    pub value: Option<String>,
    /// The statements inside the block.
    pub members: Vec<Node>,
}

/// Why a path does not lead to one part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// No part has this name and these keys.
    #[error("{0} does not exist")]
    DoesNotExist(String),
    /// Several entries of a list have this name and these keys; the second value is their number.
    #[error("{0} matches {1} entries: select one by keys in brackets, or by [position()=N]")]
    Several(String, usize),
    /// The operation does not apply to a part of this kind: a block would replace a value or a
    /// value a block, the path leads through a value or names no list to add to, or the whole tree
    /// would be removed. The second value continues the sentence "PATH is".
    #[error("{0} is {1}")]
    Kind(String, &'static str),
}

impl Node {
    /// Parses all statements of a text.
    ///
    /// # Errors
    /// The text is not well formed.
    pub fn read_all(text: &str) -> Result<Vec<Node>, ReadError> {
        let mut reader = Reader::new(text);
        Node::read_block(&mut reader)
    }

    fn read_block(reader: &mut Reader<'_>) -> Result<Vec<Node>, ReadError> {
        let mut nodes = Vec::new();
        while let Some(Statement { keyword, value, .. }) = reader.statement()? {
            let (keyword, value) = (keyword.to_owned(), value.map(|value| value.into_owned()));
            let members = match value {
                // The reader bounds this recursion.
                None => Node::read_block(reader)?,
                Some(_) => Vec::new(),
            };
            nodes.push(Node {
                keyword,
                value,
                members,
            });
        }
        Ok(nodes)
    }

    /// Writes statements as text.
    #[must_use]
    pub fn write_all(nodes: &[Node]) -> String {
        let mut text = String::new();
        for node in nodes {
            node.write(0, &mut text);
        }
        text
    }

    fn write(&self, depth: usize, text: &mut String) {
        let indent = 2 * depth;
        let line = match &self.value {
            Some(value) => format!("{:indent$}{} {};\n", "", self.keyword, quoted(value)),
            None => format!("{:indent$}{} {{\n", "", self.keyword),
        };
        text.push_str(&line);
        if self.value.is_none() {
            for member in &self.members {
                member.write(depth + 1, text);
            }
            text.push_str(&format!("{:indent$}}}\n", ""));
        }
    }

    fn has_keys(&self, step: &Step) -> bool {
        step.keys.iter().all(|(key, value)| {
            let mut members = self.members.iter();
            members.any(|member| member.keyword == *key && member.value.as_ref() == Some(value))
        })
    }

    /// The contents of the node as text: its value, or its block without the braces.
    #[must_use]
    pub fn contents(&self) -> String {
        match &self.value {
            Some(value) => value.clone(),
            None => Node::write_all(&self.members),
        }
    }
}

/// A value as it is written in a file, in quotes if it needs them.
#[must_use]
pub fn quoted(value: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:/+".contains(letter);
    let begins_comment = value.contains("//") || value.contains("/*");
    if !value.is_empty() && value.chars().all(is_plain) && !begins_comment {
        return value.to_owned();
    }
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

/// The indices of the nodes that a step matches.
fn places(nodes: &[Node], step: &Step) -> Vec<usize> {
    let named = nodes.iter().enumerate();
    let named = named.filter(|(_, node)| node.keyword == step.name && node.has_keys(step));
    let places: Vec<usize> = named.map(|(at, _)| at).collect();
    match step.position {
        Some(position) => places.get(position - 1).copied().into_iter().collect(),
        None => places,
    }
}

/// The index of the one node that a step matches.
fn place(nodes: &[Node], step: &Step, path: &Path) -> Result<usize, TreeError> {
    match places(nodes, step)[..] {
        [] => Err(TreeError::DoesNotExist(path.to_string())),
        [at] => Ok(at),
        ref several => Err(TreeError::Several(path.to_string(), several.len())),
    }
}

/// The block that contains the last step of a path, and this step; `None` for the empty path.
fn block_of<'a>(
    nodes: &'a mut Vec<Node>,
    path: &'a Path,
) -> Result<Option<(&'a mut Vec<Node>, &'a Step)>, TreeError> {
    let Some((last, before)) = path.steps.split_last() else {
        return Ok(None);
    };
    let mut block = nodes;
    for step in before {
        let at = place(block, step, path)?;
        if block[at].value.is_some() {
            let fault = "inside of a value, which has no members";
            return Err(TreeError::Kind(path.to_string(), fault));
        }
        block = &mut block[at].members;
    }
    Ok(Some((block, last)))
}

/// The part that a path names, as text: a value; the members of a container or of a single list
/// entry; or whole entries, if the path matches several.
///
/// # Errors
/// The path matches nothing or leads through a value, or a step before its last one matches several
/// entries.
pub fn get(nodes: &mut Vec<Node>, path: &Path) -> Result<String, TreeError> {
    let Some((block, last)) = block_of(nodes, path)? else {
        return Ok(Node::write_all(nodes));
    };
    match places(block, last)[..] {
        [] => Err(TreeError::DoesNotExist(path.to_string())),
        [at] => Ok(block[at].contents()),
        ref several => {
            let all: Vec<Node> = several.iter().map(|at| block[*at].clone()).collect();
            Ok(Node::write_all(&all))
        }
    }
}

/// Sets the contents of the part that a path names, and creates a missing member.
///
/// # Errors
/// The path matches several entries, its container or entry does not exist, or a value would
/// replace a block or a block a value.
pub fn set(nodes: &mut Vec<Node>, path: &Path, contents: Contents) -> Result<(), TreeError> {
    let Some((block, last)) = block_of(nodes, path)? else {
        let Contents::Block(members) = contents else {
            return Err(TreeError::Kind("/".to_owned(), "a block"));
        };
        *nodes = members;
        return Ok(());
    };
    let new = contents.node(&last.name);
    match places(block, last)[..] {
        [] if last.keys.is_empty() && last.position.is_none() => block.push(new),
        [] => return Err(TreeError::DoesNotExist(path.to_string())),
        [at] if block[at].value.is_some() != new.value.is_some() => {
            let fault = match new.value {
                Some(_) => "a block, but a value is given",
                None => "a value, but a block is given",
            };
            return Err(TreeError::Kind(path.to_string(), fault));
        }
        [at] => block[at] = new,
        ref several => return Err(TreeError::Several(path.to_string(), several.len())),
    }
    Ok(())
}

/// Adds an entry to the list that a path names.
///
/// # Errors
/// The container of the list does not exist, or the last step of the path has keys.
pub fn add(nodes: &mut Vec<Node>, path: &Path, contents: Contents) -> Result<(), TreeError> {
    match block_of(nodes, path)? {
        Some((block, last)) if last.keys.is_empty() && last.position.is_none() => {
            block.push(contents.node(&last.name));
            Ok(())
        }
        _ => {
            let fault = "not a list: give the name of a list, without keys";
            Err(TreeError::Kind(path.to_string(), fault))
        }
    }
}

/// Removes the part that a path names.
///
/// # Errors
/// The path matches nothing or several entries, or is empty.
pub fn remove(nodes: &mut Vec<Node>, path: &Path) -> Result<(), TreeError> {
    let Some((block, last)) = block_of(nodes, path)? else {
        let fault = "the whole configuration: give the path of an entry of a list, or of a leaf";
        return Err(TreeError::Kind("/".to_owned(), fault));
    };
    let at = place(block, last, path)?;
    block.remove(at);
    Ok(())
}

/// New contents of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// The new value of a leaf.
    Value(String),
    /// The new members of a container or list entry.
    Block(Vec<Node>),
}

impl Contents {
    /// Parses contents: a block in braces, statements that end with a semicolon or a brace, or else
    /// a value, with or without quotes.
    ///
    /// # Errors
    /// The text begins as a block, but is not well formed.
    pub fn read(text: &str) -> Result<Contents, ReadError> {
        let text = text.trim();
        let inner = text
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'));
        match inner {
            Some(inner) => Node::read_all(inner).map(Contents::Block),
            None if text.ends_with([';', '}']) => Node::read_all(text).map(Contents::Block),
            None => {
                let bare = ['"', '\''].into_iter().find_map(|quote| {
                    let rest = text.strip_prefix(quote)?;
                    rest.strip_suffix(quote)
                });
                Ok(Contents::Value(bare.unwrap_or(text).to_owned()))
            }
        }
    }

    fn node(self, keyword: &str) -> Node {
        let (value, members) = match self {
            Contents::Value(value) => (Some(value), Vec::new()),
            Contents::Block(members) => (None, members),
        };
        Node {
            keyword: keyword.to_owned(),
            value,
            members,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "a {\n  b 1;\n  l {\n    k x;\n    v \"p q\";\n  }\n  l {\n    k y;\n  }\n}\n";

    fn tree() -> Vec<Node> {
        Node::read_all(TEXT).unwrap()
    }

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    #[test]
    fn tree_is_written_as_it_was_read() {
        assert_eq!(Node::write_all(&tree()), TEXT);
        assert_eq!(get(&mut tree(), &Path::default()).unwrap(), TEXT);
    }

    #[test]
    fn paths_name_values_members_and_entries() {
        for (at, found) in [
            ("/a/b", "1"),
            ("/a/l[k=x]", "k x;\nv \"p q\";\n"),
            ("/a/l[k=x]/v", "p q"),
            ("/a/l[position()=2]/k", "y"),
            ("/a/l", "l {\n  k x;\n  v \"p q\";\n}\nl {\n  k y;\n}\n"),
        ] {
            assert_eq!(get(&mut tree(), &path(at)).unwrap(), found, "{at}");
        }
        for (at, fault) in [
            ("/a/c", "/a/c does not exist"),
            ("/a/l[k=z]", "does not exist"),
            ("/a/l/k", "/a/l/k matches 2 entries"),
            ("/a/b/c", "inside of a value"),
        ] {
            let error = get(&mut tree(), &path(at)).unwrap_err().to_string();
            assert!(error.contains(fault), "{error}");
        }
    }

    #[test]
    fn members_are_set_added_and_removed() {
        let mut nodes = tree();
        let contents = |text| Contents::read(text).unwrap();
        set(&mut nodes, &path("/a/b"), contents("2")).unwrap();
        set(&mut nodes, &path("/a/c"), contents("'x y'")).unwrap();
        set(&mut nodes, &path("/a/l[k=y]"), contents("{ k w; }")).unwrap();
        add(&mut nodes, &path("/a/l"), contents("k v; m { n 1; }")).unwrap();
        remove(&mut nodes, &path("/a/l[k=x]")).unwrap();
        assert_eq!(
            Node::write_all(&nodes),
            "a {\n  b 2;\n  l {\n    k w;\n  }\n  c \"x y\";\n  l {\n    k v;\n    m {\n      \
             n 1;\n    }\n  }\n}\n"
        );
        let wrong = [
            set(&mut nodes, &path("/a/b"), contents("{ k 1; }")),
            set(&mut nodes, &path("/a/l"), contents("{ k 1; }")),
            set(&mut nodes, &path("/a/l[k=q]"), contents("{ k q; }")),
            add(&mut nodes, &path("/a/l[k=w]"), contents("{ k q; }")),
            remove(&mut nodes, &path("/")),
        ];
        let words = [
            "a value, but a block is given",
            "matches 2",
            "does not exist",
            "not a list",
            "the whole configuration",
        ];
        for (result, words) in wrong.into_iter().zip(words) {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
