//! Errors of an import, and reasons why a single line is not translated.

use std::borrow::Cow;

use carina_api::NameError;

/// Why an import fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file is not valid JSON.
    #[error("{file}: {source}")]
    Json {
        /// Name of the file that is not JSON.
        file: String,
        /// What is wrong, with the line.
        source: JsonError,
    },
    /// A file is not valid YAML, or uses a part of YAML that Carina's reader does not support.
    #[error("{file}: {source}")]
    Yaml {
        /// Name of the file that is not YAML.
        file: String,
        /// What is wrong, with the line.
        source: YamlError,
    },
    /// A file is not a valid `.lab` file.
    #[error("{file}: {source}")]
    Lab {
        /// Name of the invalid `.lab` file.
        file: String,
        /// What is wrong, with the line.
        source: carina_topology::TopologyError,
    },
    /// A file cannot be expressed as a document.
    #[error("{file}: {reason}")]
    Document {
        /// Name of the file that no document can express.
        file: String,
        /// Why no document can express the file.
        reason: String,
    },
    /// A node would refuse the resulting configuration.
    #[error("the imported configuration is invalid: {reason}\n{toml}")]
    Configuration {
        /// Why the node's parser would refuse the configuration.
        reason: String,
        /// The configuration that the import has made, as TOML.
        toml: String,
    },
}

/// Why a text is not valid JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {expected}, found {found:?}")]
pub struct JsonError {
    /// Number of the line where the text is not JSON, counted from 1.
    pub line: usize,
    /// What valid JSON would have at this place.
    pub expected: &'static str,
    /// The characters that the file has at this place.
    pub found: String,
}

/// Why Carina's reader refuses a text as YAML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct YamlError {
    /// Number of the line that the reader refuses, counted from 1.
    pub line: usize,
    /// What is not supported, or not valid, at that line.
    pub what: String,
}

impl YamlError {
    pub(crate) fn new(line: usize, what: impl Into<String>) -> YamlError {
        let what = what.into();
        YamlError { line, what }
    }
}

/// Why a setting was not translated; the text of a [`Note`](crate::Note).
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
