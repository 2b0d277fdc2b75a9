//! What a node is given at its start: environment, files and commands.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use carina_time::Duration;
use serde::{Deserialize, Serialize};

use super::kind::Kind;
use super::limits::{
    COMMAND_BYTES_MAX, COMMANDS_MAX, DEADLINE_MAX, FILE_BYTES_MAX, FILES_BYTES_MAX, FILES_MAX,
    PATH_BYTES_MAX, VARIABLES_MAX,
};
use super::{OWN_IMAGE, Span};

/// A file that a node gets before its commands run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeFile {
    /// Absolute path of the file in the node. Its directories are made.
    pub path: String,
    /// The text that Carina writes into the file; `None` if `source` names a file with the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Path of a file whose text the node's file gets, relative to the directory of the document.
    /// The command that reads the document replaces it by `content`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Permissions as octal digits, such as `0755`; `None` for `0644`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// Environment, files and commands that a node gets when it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// For a namespace: the root of its file system. `None`: that of the host, with the host's
    /// name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<String>,
    /// Environment variables of commands.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Files that are written before the commands run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<NodeFile>,
    /// Shell commands that run one after the other when the node's links work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exec: Vec<String>,
    /// Longest time for each command; `None` for 60 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec_deadline: Option<Span>,
}

/// Why a node cannot be given something at its start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The name of an environment variable is not well-formed.
    #[error(
        "environment: `{0}` is no name of a variable: give letters, digits and `_`, no digit first"
    )]
    Variable(String),
    /// A text contains a character that no file or argument can have.
    #[error("{0} has a control character other than tab and line break, or is empty")]
    Text(String),
    /// The document gives a node more commands, files or other things than a node can have.
    #[error("{what}: there are {count}; at most {max} are possible")]
    TooMany {
        /// Name of the elements that are too many, such as files.
        what: &'static str,
        /// Number of these elements that the document gives the node.
        count: usize,
        /// Largest number of these elements for a node.
        max: usize,
    },
    /// A path in the node is not absolute, or has `.` or `..`.
    #[error("files: path `{0}` must be absolute, without `.`, `..`, `:`, `,` and `/` at its end")]
    Path(String),
    /// The path `source` of a file is absolute, or leads out of the document's directory.
    #[error("files: source `{0}` must be a relative path without `..`, beside the document")]
    Source(String),
    /// A file has both a content and a source, or neither.
    #[error("files: `{0}` must have exactly one of content and source")]
    Content(String),
    /// The permissions of a file are not octal.
    #[error("files: mode `{0}` must be three or four octal digits, such as 0644")]
    Mode(String),
    /// The deadline of commands is out of range.
    #[error("exec_deadline is {0}; must be more than 0s and at most {DEADLINE_MAX}")]
    Deadline(Span),
    /// The file system is neither `host` nor a directory.
    #[error(
        "filesystem `{0}` must be \"host\", or the absolute path of a directory without `.` and \
         `..`, such as an unpacked image"
    )]
    Filesystem(String),
    /// A node that is no namespace has a file system of its own already.
    #[error("filesystem is for kind = \"namespace\"; a VM has its own, a bridge needs none")]
    NotNamespace,
    /// The files of a namespace would be files of the host.
    #[error(
        "files in a namespace need a file system of its own: give filesystem = \"host\", a layer \
         over that of the host"
    )]
    HostFiles,
    /// No agent executes commands in a machine of this image.
    #[error("image {0:?} executes no commands: exec, files and environment need image \"carina\"")]
    NoAgent(String),
}

impl Start {
    /// Whether the node has no environment, file, command or file system of its own.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Start::default()
    }

    /// Longest time for each command.
    #[must_use]
    pub fn deadline(&self) -> std::time::Duration {
        let span = self.exec_deadline.map(|limit| limit.duration());
        let span = span.unwrap_or(Duration::from_nanos(60_000_000_000));
        std::time::Duration::from_nanos(span.as_nanos())
    }

    /// Checks sizes, names and paths, and that a node of this kind and image can be given this.
    ///
    /// # Errors
    /// The first value that no node can be given.
    pub fn check(&self, kind: Kind, image: &str) -> Result<(), StartError> {
        self.check_values()?;
        match kind {
            Kind::Vm if image != OWN_IMAGE && !self.is_empty() => {
                return Err(StartError::NoAgent(beginning(image)));
            }
            Kind::Vm | Kind::Bridge if self.filesystem.is_some() => {
                return Err(StartError::NotNamespace);
            }
            Kind::Namespace | Kind::Bridge
                if !self.files.is_empty() && self.filesystem.is_none() =>
            {
                return Err(StartError::HostFiles);
            }
            Kind::Vm | Kind::Namespace | Kind::Bridge => {}
        }
        Ok(())
    }

    fn check_values(&self) -> Result<(), StartError> {
        for (what, count, max) in [
            ("environment", self.environment.len(), VARIABLES_MAX),
            ("files", self.files.len(), FILES_MAX),
            ("exec", self.exec.len(), COMMANDS_MAX),
        ] {
            few(what, count, max)?;
        }
        for (name, value) in &self.environment {
            if !is_variable(name) {
                return Err(StartError::Variable(beginning(name)));
            }
            few("bytes of a variable", value.len(), COMMAND_BYTES_MAX)?;
            plain(&format!("environment: the value of {name}"), value)?;
        }
        for command in &self.exec {
            few("bytes of a command", command.len(), COMMAND_BYTES_MAX)?;
            if command.trim().is_empty() {
                return Err(StartError::Text("exec: a command".to_owned()));
            }
            plain("exec: a command", command)?;
        }
        if let Some(deadline) = self.exec_deadline
            && (deadline > DEADLINE_MAX || deadline.duration().as_nanos() == 0)
        {
            return Err(StartError::Deadline(deadline));
        }
        if let Some(filesystem) = &self.filesystem
            && filesystem != HOST
            && !is_path(filesystem)
        {
            return Err(StartError::Filesystem(beginning(filesystem)));
        }
        let mut bytes = 0;
        for file in &self.files {
            file.check()?;
            bytes += file.content.as_ref().map_or(0, String::len);
        }
        few("bytes of all files of a node", bytes, FILES_BYTES_MAX)
    }
}

impl NodeFile {
    /// Permissions of the file.
    #[must_use]
    pub fn mode(&self) -> u32 {
        let mode = self.mode.as_deref().unwrap_or("0644");
        u32::from_str_radix(mode, 8).unwrap_or(0o644) & 0o7777
    }

    fn check(&self) -> Result<(), StartError> {
        if !is_path(&self.path) {
            return Err(StartError::Path(beginning(&self.path)));
        }
        match (&self.content, &self.source) {
            (Some(content), None) => {
                few("bytes of a file", content.len(), FILE_BYTES_MAX)?;
                plain(&format!("files: {}", self.path), content)?;
            }
            (None, Some(source)) if !is_beside(source) => {
                return Err(StartError::Source(beginning(source)));
            }
            (None, Some(_)) => {}
            _ => return Err(StartError::Content(self.path.clone())),
        }
        let mode = self.mode.as_deref().unwrap_or("0644");
        let is_octal = mode.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
        if !is_octal || !(3..=4).contains(&mode.len()) {
            return Err(StartError::Mode(beginning(mode)));
        }
        Ok(())
    }
}

/// Value of `filesystem` for a layer over the host's own file system.
pub const HOST: &str = "host";

/// Whether a text is an absolute path with only plain names, which cannot lead elsewhere.
fn is_path(text: &str) -> bool {
    let names = text.strip_prefix('/').map(|names| names.split('/'));
    let is_name = |name: &str| !matches!(name, "" | "." | "..");
    // Options of mounts separate values by these characters.
    let is_plain = |c: char| !(c.is_control() || matches!(c, ':' | ',' | '\\'));
    text.len() <= PATH_BYTES_MAX
        && text.chars().all(is_plain)
        && names.is_some_and(|mut names| names.all(is_name))
}

/// Whether a text is a relative path that stays below its directory.
fn is_beside(text: &str) -> bool {
    let mut parts = Path::new(text).components();
    !text.is_empty()
        && text.len() <= PATH_BYTES_MAX
        && !text.chars().any(char::is_control)
        && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

fn is_variable(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let begins = name.chars().next().is_some_and(is_letter);
    begins && name.len() <= 256 && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

fn plain(what: &str, text: &str) -> Result<(), StartError> {
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if text.chars().all(is_plain) {
        return Ok(());
    }
    Err(StartError::Text(what.to_owned()))
}

fn few(what: &'static str, count: usize, max: usize) -> Result<(), StartError> {
    if count <= max {
        return Ok(());
    }
    Err(StartError::TooMany { what, count, max })
}

/// The beginning of an untrusted text, with control characters replaced so that it can be printed.
fn beginning(text: &str) -> String {
    let printable = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c });
    printable.take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, source: &str) -> Start {
        let file = NodeFile {
            path: path.to_owned(),
            source: Some(source.to_owned()),
            ..NodeFile::default()
        };
        Start {
            filesystem: Some(HOST.to_owned()),
            files: vec![file],
            ..Start::default()
        }
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let check = |start: &Start| start.check(Kind::Namespace, OWN_IMAGE);
        check(&file("/etc/frr/frr.conf", "r1/frr.conf")).unwrap();
        for path in ["etc/x", "/etc/../x", "/", "/etc/", "/a//b", "/a\nb", ""] {
            let refused = check(&file(path, "x")).unwrap_err();
            assert!(matches!(refused, StartError::Path(_)), "{path}: {refused}");
        }
        for source in ["/etc/shadow", "../x", "a/../../x", ""] {
            let refused = check(&file("/x", source)).unwrap_err();
            assert!(matches!(refused, StartError::Source(_)), "{source}");
        }
    }

    #[test]
    fn what_a_node_cannot_have_is_refused() {
        let given = Start {
            exec: vec!["true".to_owned()],
            environment: [("A".to_owned(), "b".to_owned())].into(),
            ..Start::default()
        };
        given.check(Kind::Vm, OWN_IMAGE).unwrap();
        given.check(Kind::Namespace, OWN_IMAGE).unwrap();
        assert!(given.check(Kind::Vm, "debian").is_err());
        let mut files = file("/x", "x");
        assert_eq!(
            files.check(Kind::Vm, OWN_IMAGE),
            Err(StartError::NotNamespace)
        );
        files.filesystem = None;
        files.check(Kind::Vm, OWN_IMAGE).unwrap();
        assert_eq!(
            files.check(Kind::Namespace, OWN_IMAGE),
            Err(StartError::HostFiles)
        );
        for name in ["", "1A", "A=B", "A B", "é"] {
            let wrong = Start {
                environment: [(name.to_owned(), String::new())].into(),
                ..Start::default()
            };
            assert!(wrong.check(Kind::Vm, OWN_IMAGE).is_err(), "{name}");
        }
        let long = Start {
            exec: vec!["x".repeat(COMMAND_BYTES_MAX + 1)],
            ..Start::default()
        };
        assert!(long.check(Kind::Vm, OWN_IMAGE).is_err());
    }
}
