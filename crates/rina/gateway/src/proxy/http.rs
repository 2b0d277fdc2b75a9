//! The proxy's side of HTTP/1.1 (RFC 9112): CONNECT (RFC 9110 §9.3.6) and requests in
//! absolute-form.
//!
//! A request in absolute-form is the only one of its connection: the proxy adds `Connection:
//! close`, and the server's answer ends the connection. So bytes for one server never reach
//! another.

use std::fmt::Write;

use thiserror::Error;

use crate::proxy::body::{Body, is_text};
use crate::proxy::destination::Destination;

/// A complete head of an HTTP request, parsed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HttpRequest {
    /// CONNECT: the proxy connects to the destination and copies bytes in both directions.
    Tunnel(Destination),
    /// A request in absolute form, which the proxy forwards to the server that it names.
    Forward {
        to: Destination,
        /// The head of the request as the proxy sends it to the server.
        head: Vec<u8>,
        body: Body,
    },
}

/// Why the proxy answers an HTTP request with an error.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum HttpError {
    #[error("the head of the request is longer than {HEAD_BYTES_MAX} bytes")]
    TooLong,
    #[error("the request line {0:?} is none of METHOD TARGET HTTP/1.1")]
    RequestLine(String),
    #[error("{0} is not supported: HTTP/1.1 and HTTP/1.0 are")]
    Version(String),
    #[error(
        "the target {0:?} is for a server, not for a proxy: give the client this address as its \
         HTTP proxy"
    )]
    Origin(String),
    #[error("the target {0:?} has no valid host and port")]
    Authority(String),
    #[error("the scheme of {0:?} is not supported: http is; for https use CONNECT")]
    Scheme(String),
    #[error("the header field {0:?} is malformed")]
    Field(String),
    #[error("the length of the request's body is ambiguous: {0}")]
    Framing(&'static str),
    #[error("the transfer coding {0:?} is not supported: chunked is")]
    Coding(String),
    #[error("the method TRACE is not forwarded")]
    Trace,
}

impl HttpError {
    /// The status code and its reason phrase (RFC 9110 §15).
    pub(crate) fn status(&self) -> (u16, &'static str) {
        match self {
            HttpError::TooLong => (431, "Request Header Fields Too Large"),
            HttpError::Version(_) => (505, "HTTP Version Not Supported"),
            HttpError::Coding(_) | HttpError::Trace => (501, "Not Implemented"),
            _ => (400, "Bad Request"),
        }
    }
}

/// Removes the head of a request from `input`, and parses it. `None` if the head is incomplete.
///
/// # Errors
/// The request is malformed or not supported.
pub(crate) fn take_request(input: &mut Vec<u8>) -> Result<Option<HttpRequest>, HttpError> {
    // RFC 9112 §2.2: a server ignores an empty line in front of a request.
    let empty = input
        .chunks_exact(2)
        .take_while(|two| two == b"\r\n")
        .count();
    let start = 2 * empty.min(EMPTY_LINES_MAX);
    let end = input[start..]
        .windows(4)
        .position(|four| four == b"\r\n\r\n");
    let Some(end) = end else {
        return match input.len() - start {
            length if length >= HEAD_BYTES_MAX + 4 => Err(HttpError::TooLong),
            _ => early(&input[start..]).map_or(Ok(None), Err),
        };
    };
    if end > HEAD_BYTES_MAX {
        return Err(HttpError::TooLong);
    }
    let head: Vec<u8> = input
        .drain(..start + end + 4)
        .skip(start)
        .take(end)
        .collect();
    // Bytes above 127 are allowed in field values; each becomes one character and back.
    let head: String = head.into_iter().map(char::from).collect();
    parse(&head).map(Some)
}

/// Finds a fault in the start of an incomplete request. A client that speaks TLS, for example,
/// never completes one.
fn early(input: &[u8]) -> Option<HttpError> {
    let first = input.first()?;
    let is_method = is_token_byte(*first);
    (!is_method && *first != b'\r').then(|| {
        let shown = String::from_utf8_lossy(&input[..input.len().min(SHOWN_MAX)]);
        HttpError::RequestLine(shown.into_owned())
    })
}

fn parse(head: &str) -> Result<HttpRequest, HttpError> {
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let wrong = || HttpError::RequestLine(line.chars().take(SHOWN_MAX).collect());
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = parts[..] else {
        return Err(wrong());
    };
    let is_printable = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_token(method) || target.is_empty() || !is_printable(target) || !is_printable(version) {
        return Err(wrong());
    }
    if !["HTTP/1.1", "HTTP/1.0"].contains(&version) {
        return if version.starts_with("HTTP/") {
            Err(HttpError::Version(version.to_owned()))
        } else {
            Err(wrong())
        };
    }
    let fields = lines.map(field).collect::<Result<Vec<_>, _>>()?;
    if method == "CONNECT" {
        let to = Destination::from_authority(target, None);
        return to
            .map(HttpRequest::Tunnel)
            .ok_or_else(|| HttpError::Authority(target.to_owned()));
    }
    if method == "TRACE" {
        return Err(HttpError::Trace);
    }
    let (authority, path) = absolute(method, target)?;
    let to = Destination::from_authority(authority, Some(HTTP_PORT))
        .ok_or_else(|| HttpError::Authority(target.to_owned()))?;
    let body = body(&fields, version)?;
    let mut forwarded = format!("{method} {path} {version}\r\nHost: {}\r\n", host_field(&to));
    for (name, value) in kept(&fields) {
        // Writing to a string cannot fail.
        let _ = write!(forwarded, "{name}: {value}\r\n");
    }
    let number = &version["HTTP/".len()..];
    let _ = write!(
        forwarded,
        "Connection: close\r\nVia: {number} carina\r\n\r\n"
    );
    let head = forwarded.chars().map(|byte| byte as u8).collect();
    Ok(HttpRequest::Forward { to, head, body })
}

/// Parses a header field to its name and its value.
fn field(line: &str) -> Result<(&str, &str), HttpError> {
    let wrong = || HttpError::Field(line.chars().take(SHOWN_MAX).collect());
    let (name, value) = line.split_once(':').ok_or_else(wrong)?;
    let value = value.trim_matches([' ', '\t']);
    if !is_token(name) || !value.chars().all(|byte| is_text(byte as u8)) {
        return Err(wrong());
    }
    Ok((name, value))
}

/// Splits a target in absolute form into its authority and its path.
fn absolute<'a>(method: &str, target: &'a str) -> Result<(&'a str, String), HttpError> {
    let Some((scheme, rest)) = target.split_once("://") else {
        return Err(HttpError::Origin(target.to_owned()));
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return if target.starts_with('/') {
            Err(HttpError::Origin(target.to_owned()))
        } else {
            Err(HttpError::Scheme(target.to_owned()))
        };
    }
    if rest.contains('#') {
        return Err(HttpError::Authority(target.to_owned()));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let path = match &rest[end..] {
        // RFC 9112 §3.2.4
        "" if method == "OPTIONS" => "*".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        query => format!("/{query}"),
    };
    Ok((&rest[..end], path))
}

/// Returns the value of the field `Host` for a destination: without the port if it is the default
/// of the scheme.
fn host_field(to: &Destination) -> String {
    let shown = to.to_string();
    match shown.strip_suffix(":80") {
        Some(host) if to.port == HTTP_PORT => host.to_owned(),
        _ => shown,
    }
}

/// Determines from the header fields how the end of the body is found (RFC 9112 §6.3).
fn body(fields: &[(&str, &str)], version: &str) -> Result<Body, HttpError> {
    let values = |wanted: &str| {
        let is_it = |(name, _): &&(&str, &str)| name.eq_ignore_ascii_case(wanted);
        fields
            .iter()
            .filter(is_it)
            .map(|(_, value)| *value)
            .collect::<Vec<_>>()
    };
    match (
        &values("transfer-encoding")[..],
        &values("content-length")[..],
    ) {
        ([], []) => Ok(Body::Length(0)),
        ([], [length]) => {
            let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
            let length = length.parse::<u64>().ok().filter(|_| is_number);
            let length = length.ok_or(HttpError::Framing("Content-Length is not a number"))?;
            Ok(Body::Length(length))
        }
        // RFC 9112 §6.1: the framing of such a message is faulty.
        ([_], []) if version == "HTTP/1.0" => {
            Err(HttpError::Framing("HTTP/1.0 has no Transfer-Encoding"))
        }
        ([coding], []) if coding.eq_ignore_ascii_case("chunked") => Ok(Body::chunked()),
        ([coding], []) => Err(HttpError::Coding((*coding).to_owned())),
        ([], _) => Err(HttpError::Framing("Content-Length is given twice")),
        (_, []) => Err(HttpError::Framing("Transfer-Encoding is given twice")),
        _ => Err(HttpError::Framing(
            "both Content-Length and Transfer-Encoding are given",
        )),
    }
}

/// The header fields that the proxy forwards: all but those of this connection (RFC 9110 §7.6.1).
fn kept<'a>(fields: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = &'a (&'a str, &'a str)> {
    let is_connection = |name: &str| name.eq_ignore_ascii_case("connection");
    let options = fields.iter().filter(move |(name, _)| is_connection(name));
    let named: Vec<&str> = options
        .flat_map(|(_, value)| value.split(','))
        .map(|option| option.trim_matches([' ', '\t']))
        // The framing of the body stays whatever the client says.
        .filter(|option| !option.eq_ignore_ascii_case("transfer-encoding"))
        .filter(|option| !option.eq_ignore_ascii_case("content-length"))
        .collect();
    let is_one = |list: &[&str], name: &str| list.iter().any(|one| one.eq_ignore_ascii_case(name));
    fields
        .iter()
        .filter(move |(name, _)| !is_one(&OF_CONNECTION, name) && !is_one(&named, name))
}

/// The answer to a CONNECT after the connection to the server is established.
pub(crate) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Makes the answer to a request that has failed. It contains the cause in its body and in its
/// first line, because many programs show only the first line.
pub(crate) fn answer((code, phrase): (u16, &str), cause: &str) -> Vec<u8> {
    let body = format!("carina: {cause}\n");
    let of_line = |c: char| if c.is_control() { ' ' } else { c };
    let cause: String = cause.chars().take(REASON_MAX).map(of_line).collect();
    format!(
        "HTTP/1.1 {code} {phrase}: {cause}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|byte| byte.is_ascii() && is_token_byte(byte as u8))
}

/// A byte of a token (RFC 9110 §5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Fields of a connection, besides those that `Connection` names. `Host` is written by the proxy
/// (RFC 9112 §3.2.2).
const OF_CONNECTION: [&str; 8] = [
    "connection",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "upgrade",
    "http2-settings",
];

/// Longest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;

const HTTP_PORT: u16 = 80;

/// Largest number of empty lines in front of a request that are skipped.
const EMPTY_LINES_MAX: usize = 1;

/// Largest number of characters of the cause in the first line of an answer.
const REASON_MAX: usize = 256;

/// Largest number of characters that an error quotes of an invalid line.
const SHOWN_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<HttpRequest, HttpError> {
        let mut input = text.as_bytes().to_vec();
        take_request(&mut input).map(|request| request.expect("the head is whole"))
    }

    fn forwarded(text: &str) -> (String, String, Body) {
        match parsed(text).unwrap() {
            HttpRequest::Forward { to, head, body } => {
                (to.to_string(), String::from_utf8(head).unwrap(), body)
            }
            other => panic!("{other:?}"),
        }
    }

    fn status(text: &str) -> u16 {
        parsed(text).unwrap_err().status().0
    }

    #[test]
    fn answer_has_its_cause_in_one_line_and_in_its_body() {
        let answer = String::from_utf8(answer((400, "Bad Request"), "a\r\nX: b")).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request: a  X: b\r\nContent-Type: "));
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
        assert_eq!(body, "carina: a\r\nX: b\n");
    }

    #[test]
    fn connect_names_a_host_and_a_port() {
        let text = b"\r\nCONNECT web.vm:443 HTTP/1.1\r\nHost: web.vm:443\r\n\r\nearly";
        let mut input = Vec::new();
        for byte in &text[..text.len() - 6] {
            input.push(*byte);
            assert_eq!(take_request(&mut input), Ok(None));
        }
        input.extend(&text[text.len() - 6..]);
        let to = Destination::new("web.vm", 443).unwrap();
        assert_eq!(take_request(&mut input), Ok(Some(HttpRequest::Tunnel(to))));
        assert_eq!(input, b"early");
        assert_eq!(status("CONNECT web.vm HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status("CONNECT http://web.vm:1 HTTP/1.1\r\n\r\n"), 400);
    }

    #[test]
    fn absolute_form_is_forwarded_without_fields_of_the_connection() {
        let (to, head, body) = forwarded(
            "POST HTTP://web.vm:8080?a=1 HTTP/1.1\r\nHost: evil\r\nProxy-Connection: x\r\n\
             Connection: keep-alive, x-one\r\nX-One: 1\r\nX-Two:  two \r\nTE: trailers\r\n\
             Content-Length: 3\r\n\r\n",
        );
        assert_eq!((to.as_str(), body), ("web.vm:8080", Body::Length(3)));
        assert_eq!(
            head,
            "POST /?a=1 HTTP/1.1\r\nHost: web.vm:8080\r\nX-Two: two\r\nContent-Length: 3\r\n\
             Connection: close\r\nVia: 1.1 carina\r\n\r\n"
        );
        let (to, head, _) = forwarded("OPTIONS http://web.vm HTTP/1.0\r\n\r\n");
        assert_eq!(to, "web.vm:80");
        assert!(
            head.starts_with("OPTIONS * HTTP/1.0\r\nHost: web.vm\r\n"),
            "{head}"
        );
        let (to, head, _) = forwarded("GET http://[::1]:80/x HTTP/1.1\r\n\r\n");
        assert!(head.contains("\r\nHost: [::1]\r\n"), "{head}");
        assert_eq!(to, "[::1]:80");
    }

    #[test]
    fn requests_that_servers_read_in_two_ways_are_refused() {
        let with = |fields: &str| format!("POST http://a/ HTTP/1.1\r\n{fields}\r\n\r\n");
        for fields in [
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 1, 1",
            "Content-Length: +1",
            "Content-Length: 99999999999999999999",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Content-Length : 1",
            " folded",
            "A: b\r\n c",
            "A: b\nC: d",
            "A: \0",
            "no colon",
            ": x",
        ] {
            assert_eq!(status(&with(fields)), 400, "{fields:?}");
        }
        assert_eq!(status(&with("Transfer-Encoding: gzip, chunked")), 501);
        let named = "Connection: content-length\r\nContent-Length: 2";
        assert!(forwarded(&with(named)).1.contains("Content-Length: 2"));
    }

    #[test]
    fn what_is_no_request_of_a_proxy_gets_its_status() {
        for (text, code) in [
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET http://a/ HTTP/2.0\r\n\r\n", 505),
            ("GET http://a/\r\n\r\n", 400),
            ("GET  http://a/ HTTP/1.1\r\n\r\n", 400),
            ("G(T http://a/ HTTP/1.1\r\n\r\n", 400),
            ("GET https://a/ HTTP/1.1\r\n\r\n", 400),
            ("GET http://u:p@a/ HTTP/1.1\r\n\r\n", 400),
            ("GET http:///x HTTP/1.1\r\n\r\n", 400),
            ("GET http://a/ b HTTP/1.1\r\n\r\n", 400),
            ("G\nT http://a/ HTTP/1.1\r\n\r\n", 400),
            ("GET http://a/\nb HTTP/1.1\r\n\r\n", 400),
            ("GET http://0x7f.0x1/ HTTP/1.1\r\n\r\n", 400),
            ("GET http://[fe80::1%25eth0]/ HTTP/1.1\r\n\r\n", 400),
            ("CONNECT a:0 HTTP/1.1\r\n\r\n", 400),
            ("CONNECT a:65616 HTTP/1.1\r\n\r\n", 400),
            ("CONNECT a:+80 HTTP/1.1\r\n\r\n", 400),
            ("GET http://a/#x HTTP/1.1\r\n\r\n", 400),
            ("TRACE http://a/ HTTP/1.1\r\n\r\n", 501),
            ("\u{16}\u{3}\u{1}", 400),
        ] {
            assert_eq!(status(text), code, "{text:?}");
        }
        let mut long = vec![b'a'; HEAD_BYTES_MAX + 4];
        assert_eq!(take_request(&mut long), Err(HttpError::TooLong));
    }
}
