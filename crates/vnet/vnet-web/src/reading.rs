//! Reads documents that a person pastes, in any form.

use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use carina_api::{ErrorBody, ErrorCode};
use carina_vnet::document::{Document, Form};
use serde::Serialize;

use crate::answers::{answered, refusal};

/// A document, and the form that was detected.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReadDocument {
    /// `toml`, `xml` or `json`.
    pub form: String,
    /// The document that was read.
    pub document: Document,
}

/// `POST /v1/read`: parses the document in a text.
pub(super) async fn read(body: Bytes) -> Response {
    answered(read_text(&body))
}

fn read_text(body: &[u8]) -> Result<ReadDocument, ErrorBody> {
    let bad = |what: String| ErrorBody::new(ErrorCode::BadRequest, what);
    let text = std::str::from_utf8(body).map_err(|error| bad(error.to_string()))?;
    let form = form_of(text);
    let document = Document::read(text, form).map_err(|error| bad(format!("{form}: {error}")))?;
    Ok(ReadDocument {
        form: form.to_string(),
        document,
    })
}

/// The form of a text, detected by its first character.
fn form_of(text: &str) -> Form {
    match text.trim_start().chars().next() {
        Some('<') => Form::Xml,
        Some('{') => Form::Json,
        _ => Form::Toml,
    }
}

/// Answers with a document written in the given form.
///
/// # Errors
/// There is no such form, or there is no document.
pub fn written(document: Result<Document, ErrorBody>, form: &str) -> Response {
    let form = form.parse::<Form>();
    let form = form.map_err(|error| ErrorBody::new(ErrorCode::BadRequest, error.to_string()));
    match document.and_then(|document| Ok(document.write(form?))) {
        Ok(text) => text.into_response(),
        Err(error) => refusal(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_in_each_form() {
        let toml = "[vnet]\nname = \"x\"\n[node.a]\n";
        let document = Document::read(toml, Form::Toml).unwrap();
        for form in Form::ALL {
            let text = document.write(form);
            let read = read_text(text.as_bytes()).unwrap();
            assert_eq!(
                (read.form, read.document),
                (form.to_string(), document.clone())
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let error = read_text(b"[vnet]\nname = \"x\"\n[node.a]\ncolour = 1\n").unwrap_err();
        assert!(error.message.contains("colour"), "{error:?}");
        assert!(read_text(b"\xff").is_err());
        assert!(read_text(b"").is_err());
    }
}
