//! Why nothing came of an import, and why a single line was not carried over.

use std::borrow::Cow;

use carina_api::NameError;

/// Why an import has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file is not JSON.
    #[error("{file}: {source}")]
    Json {
        /// Its name.
        file: String,
        /// What is wrong, with its line.
        source: JsonError,
    },
    /// A file is not YAML, or of YAML what is not read.
    #[error("{file}: {source}")]
    Yaml {
        /// Its name.
        file: String,
        /// What is wrong, with its line.
        source: YamlError,
    },
    /// A file is no `.lab` file.
    #[error("{file}: {source}")]
    Lab {
        /// Its name.
        file: String,
        /// What is wrong, with its place.
        source: carina_topology::TopologyError,
    },
    /// A file says nothing of which a document could be made.
    #[error("{file}: {reason}")]
    Document {
        /// Its name.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A node would refuse the configuration that was made.
    #[error("the result is not a configuration: {reason}\n{toml}")]
    Configuration {
        /// What a node says of it.
        reason: String,
        /// The configuration.
        toml: String,
    },
}

/// Where and why a text is not JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {expected}, and there is {found:?}")]
pub struct JsonError {
    /// The line, counted from 1.
    pub line: usize,
    /// What would be right.
    pub expected: &'static str,
    /// What stands there instead.
    pub found: String,
}

/// Where and why a text is not YAML as it is read here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct YamlError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl YamlError {
    pub(crate) fn new(line: usize, what: impl Into<String>) -> YamlError {
        let what = what.into();
        YamlError { line, what }
    }
}

/// Why something is not carried over, in words for a [`Note`](crate::Note).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Reason(Cow<'static, str>);

impl From<&'static str> for Reason {
    fn from(words: &'static str) -> Reason {
        Reason(words.into())
    }
}

impl From<String> for Reason {
    fn from(words: String) -> Reason {
        Reason(words.into())
    }
}

impl From<NameError> for Reason {
    fn from(error: NameError) -> Reason {
        Reason(error.to_string().into())
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> String {
        reason.0.into_owned()
    }
}
