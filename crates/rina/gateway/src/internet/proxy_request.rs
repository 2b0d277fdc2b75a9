//! Requests to an HTTP proxy: `CONNECT host:port` (RFC 9110, section 9.3.6) and requests in
//! absolute form, `GET http://host/path` (RFC 9112, section 3.2.2).
//!
//! A request in absolute form is rewritten for the server: its target becomes a path, `Host` is the
//! host of the target, and the connection ends behind the answer. So each request of a program is
//! checked by itself.

use std::net::{Ipv4Addr, Ipv6Addr};

use thiserror::Error;

/// A request that was read to the end of its head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProxyRequest {
    /// The host: a name or an address, without brackets.
    pub host: String,
    pub port: u16,
    /// The head for the server; `None` for `CONNECT`, whose bytes are not looked at.
    pub head: Option<Vec<u8>>,
    /// Bytes of the head that was read; those behind it are for the server.
    pub length: usize,
}

/// Why bytes are no request to a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum RequestError {
    #[error("the head of the request is longer than {HEAD_BYTES_MAX} bytes")]
    TooLong,
    #[error("the first line is no request of HTTP/1.1, such as CONNECT host:443 HTTP/1.1")]
    Line,
    #[error("the target has no host: a proxy needs http://HOST/PATH, or CONNECT HOST:PORT")]
    Target,
    #[error("the proxy fetches http:// only; other protocols go through CONNECT")]
    Scheme,
    #[error("the host is neither a name nor an address")]
    Host,
    #[error("the port is not from 1 to 65535")]
    Port,
    #[error("a line of the head is no field NAME: VALUE")]
    Field,
}

/// Reads a request; `None` while its head is incomplete.
pub(super) fn decode(bytes: &[u8]) -> Result<Option<ProxyRequest>, RequestError> {
    let seen = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() >= HEAD_BYTES_MAX {
            Err(RequestError::TooLong)
        } else {
            Ok(None)
        };
    };
    let head = std::str::from_utf8(&seen[..end]).map_err(|_| RequestError::Field)?;
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(RequestError::Line);
    };
    if !is_token(method) || !["HTTP/1.1", "HTTP/1.0"].contains(&version) {
        return Err(RequestError::Line);
    }
    let length = end + 4;
    if method == "CONNECT" {
        let (host, port) = authority(target)?;
        let port = port.ok_or(RequestError::Port)?;
        return Ok(Some(ProxyRequest {
            host,
            port,
            head: None,
            length,
        }));
    }
    let (place, path) = absolute(target)?;
    let (host, port) = authority(place)?;
    let head = rewritten(method, &path, place, lines)?;
    Ok(Some(ProxyRequest {
        host,
        port: port.unwrap_or(80),
        head: Some(head),
        length,
    }))
}

/// Parts `http://HOST:PORT/PATH?QUERY` into host with port, and path with query.
fn absolute(target: &str) -> Result<(&str, String), RequestError> {
    let (scheme, rest) = target.split_once("://").ok_or(RequestError::Target)?;
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(RequestError::Scheme);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (place, path) = rest.split_at(end);
    let path = path.split('#').next().unwrap_or_default();
    let path = match path {
        "" => "/".to_owned(),
        path if path.starts_with('?') => format!("/{path}"),
        path => path.to_owned(),
    };
    let is_visible = |c: char| c.is_ascii_graphic();
    if !path.chars().all(is_visible) {
        return Err(RequestError::Line);
    }
    Ok((place, path))
}

/// Reads `HOST[:PORT]`, with an IPv6 address in brackets.
fn authority(text: &str) -> Result<(String, Option<u16>), RequestError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or(RequestError::Host)?;
            host.parse::<Ipv6Addr>().map_err(|_| RequestError::Host)?;
            let port = match rest {
                "" => None,
                rest => Some(rest.strip_prefix(':').ok_or(RequestError::Host)?),
            };
            (host, port)
        }
        None => match text.split_once(':') {
            Some((host, port)) => (name(host)?, Some(port)),
            None => (name(text)?, None),
        },
    };
    let port = match port {
        None => None,
        // Rust's numbers may begin with a sign.
        Some(port) if !port.starts_with('+') => match port.parse::<u16>() {
            Ok(port @ 1..) => Some(port),
            _ => return Err(RequestError::Port),
        },
        Some(_) => return Err(RequestError::Port),
    };
    Ok((host.to_ascii_lowercase(), port))
}

/// A host name, or an IPv4 address in four decimal parts: other spellings of an address, such as
/// 0x7f.1, would be an address for the system and a name for the rules.
fn name(text: &str) -> Result<&str, RequestError> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_name = !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.chars().all(is_of_name);
    let last = text.trim_end_matches('.').rsplit('.').next();
    let is_number = last.is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    if is_name && (!is_number || text.parse::<Ipv4Addr>().is_ok()) {
        Ok(text)
    } else {
        Err(RequestError::Host)
    }
}

/// Whether a text is a token (RFC 9110, section 5.6.2).
fn is_token(text: &str) -> bool {
    let is_of_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !text.is_empty() && text.chars().all(is_of_token)
}

/// The head for the server.
fn rewritten<'a>(
    method: &str,
    path: &str,
    place: &str,
    fields: impl Iterator<Item = &'a str>,
) -> Result<Vec<u8>, RequestError> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {place}\r\n");
    for line in fields {
        let (name, _) = line.split_once(':').ok_or(RequestError::Field)?;
        if !is_token(name) || line.contains(['\r', '\n', '\0']) {
            return Err(RequestError::Field);
        }
        if !NOT_FORWARDED
            .iter()
            .any(|one| name.eq_ignore_ascii_case(one))
        {
            head.push_str(line);
            head.push_str("\r\n");
        }
    }
    head.push_str("Connection: close\r\n\r\n");
    Ok(head.into_bytes())
}

/// Fields for the proxy itself or for one connection (RFC 9110, section 7.6.1), and those that are
/// replaced.
const NOT_FORWARDED: [&str; 8] = [
    "Host",
    "Connection",
    "Proxy-Connection",
    "Keep-Alive",
    "Proxy-Authorization",
    "Proxy-Authenticate",
    "Upgrade",
    "TE",
];

/// Longest head of a request, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;

/// Longest host name (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<ProxyRequest>, RequestError> {
        decode(text.as_bytes())
    }

    #[test]
    fn tunnels_and_requests_are_read_and_rewritten() {
        let tunnel = read("CONNECT Git.Example:443 HTTP/1.1\r\nHost: x\r\n\r\nTLS").unwrap();
        let tunnel = tunnel.unwrap();
        assert_eq!((tunnel.host.as_str(), tunnel.port), ("git.example", 443));
        assert_eq!((tunnel.head, tunnel.length), (None, 45));
        let text = "GET http://a.example:81?q HTTP/1.0\r\nHost: b\r\nproxy-connection: keep-alive\r\n\
            Accept: */*\r\n\r\nrest";
        let request = read(text).unwrap().unwrap();
        assert_eq!((request.host.as_str(), request.port), ("a.example", 81));
        assert_eq!(&text[request.length..], "rest");
        let head = String::from_utf8(request.head.unwrap()).unwrap();
        assert_eq!(
            head,
            "GET /?q HTTP/1.1\r\nHost: a.example:81\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        let six = read("GET http://[::1]/x#y HTTP/1.1\r\n\r\n")
            .unwrap()
            .unwrap();
        assert_eq!((six.host.as_str(), six.port), ("::1", 80));
        assert!(
            six.head
                .unwrap()
                .starts_with(b"GET /x HTTP/1.1\r\nHost: [::1]\r\n")
        );
    }

    #[test]
    fn every_beginning_of_a_request_waits_for_the_rest() {
        let text = "GET http://a/ HTTP/1.1\r\nA: b\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(read(&text[..end]), Ok(None), "{end}");
        }
        assert!(read(text).unwrap().is_some());
    }

    #[test]
    fn requests_of_a_hostile_program_are_errors() {
        let long = format!(
            "GET http://a/{} HTTP/1.1\r\n\r\n",
            "x".repeat(HEAD_BYTES_MAX)
        );
        for (text, error) in [
            (long.as_str(), RequestError::TooLong),
            ("\r\n\r\n", RequestError::Line),
            ("GET http://a/ HTTP/2\r\n\r\n", RequestError::Line),
            ("GET http://a/ b HTTP/1.1\r\n\r\n", RequestError::Line),
            ("G\nT http://a/ HTTP/1.1\r\n\r\n", RequestError::Line),
            ("GET http://a/\nb HTTP/1.1\r\n\r\n", RequestError::Line),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", RequestError::Target),
            ("GET https://a/ HTTP/1.1\r\n\r\n", RequestError::Scheme),
            ("GET http:///x HTTP/1.1\r\n\r\n", RequestError::Host),
            ("GET http://u@a/ HTTP/1.1\r\n\r\n", RequestError::Host),
            ("GET http://127.1/ HTTP/1.1\r\n\r\n", RequestError::Host),
            ("GET http://0x7f.0x1/ HTTP/1.1\r\n\r\n", RequestError::Host),
            (
                "GET http://2130706433/ HTTP/1.1\r\n\r\n",
                RequestError::Host,
            ),
            (
                "GET http://[fe80::1%25eth0]/ HTTP/1.1\r\n\r\n",
                RequestError::Host,
            ),
            ("CONNECT a HTTP/1.1\r\n\r\n", RequestError::Port),
            ("CONNECT a:0 HTTP/1.1\r\n\r\n", RequestError::Port),
            ("CONNECT a:65616 HTTP/1.1\r\n\r\n", RequestError::Port),
            ("CONNECT a:+80 HTTP/1.1\r\n\r\n", RequestError::Port),
            ("GET http://a/ HTTP/1.1\r\nA\r\n\r\n", RequestError::Field),
            (
                "GET http://a/ HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
                RequestError::Field,
            ),
            (
                "GET http://a/ HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
                RequestError::Field,
            ),
        ] {
            assert_eq!(read(text), Err(error), "{text:.60}");
        }
    }
}
