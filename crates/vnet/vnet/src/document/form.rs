//! The text formats of a document: TOML, XML and JSON.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::fault::{DocumentError, Lines};
use super::limits::TEXT_MAX;
use super::{Document, checker, toml_form, xml_form};

/// A text format of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// TOML, `.toml`.
    Toml,
    /// XML by `vnet.xsd`, `.xml`.
    Xml,
    /// JSON, `.json`, with the same fields as TOML.
    Json,
}

/// The error for text that names none of the formats.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a format of documents: give toml, xml or json")]
pub struct FormError(String);

impl Form {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Toml, Self::Xml, Self::Json];

    /// The format by the extension of a file's name; `None` if the extension is unknown or absent.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        path.extension()?.to_str()?.parse().ok()
    }
}

impl FromStr for Form {
    type Err = FormError;

    fn from_str(text: &str) -> Result<Self, FormError> {
        let named = |form: &Self| form.to_string() == text;
        let form = Self::ALL.into_iter().find(named);
        form.ok_or_else(|| FormError(text.to_owned()))
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Toml => "toml",
            Self::Xml => "xml",
            Self::Json => "json",
        })
    }
}

pub(super) fn read(text: &str, form: Form) -> Result<Document, DocumentError> {
    if text.len() > TEXT_MAX {
        return Err(DocumentError::TooLong(text.len()));
    }
    let (document, lines) = match form {
        Form::Toml => toml_form::read(text)?,
        Form::Xml => xml_form::read(text)?,
        Form::Json => (from_json(text)?, Lines::new()),
    };
    check(&document, &lines)?;
    Ok(document)
}

pub(super) fn check(document: &Document, lines: &Lines) -> Result<(), DocumentError> {
    let findings = checker::findings(document, lines);
    if findings.is_empty() {
        Ok(())
    } else {
        Err(DocumentError::Wrong(findings))
    }
}

pub(super) fn write(document: &Document, form: Form) -> String {
    match form {
        Form::Toml => toml_form::write(document),
        Form::Xml => xml_form::write(document),
        Form::Json => {
            let text = serde_json::to_string_pretty(document);
            text.expect("a document has text keys only") + "\n"
        }
    }
}

/// The message of a JSON error without line and column: a program has written the JSON on one line.
#[must_use]
pub fn json_words(error: &serde_json::Error) -> String {
    let words = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match words.strip_suffix(&place) {
        Some(words) => words.to_owned(),
        None => words,
    }
}

fn from_json(text: &str) -> Result<Document, DocumentError> {
    serde_json::from_str(text).map_err(|error| DocumentError::Text {
        line: error.line(),
        message: json_words(&error),
    })
}
