//! Parses the query string of a request: known keys, numbers, percent-encoded text.

use carina_api::ErrorBody;
use carina_api::control::{Dialect, UnknownDialect};
use carina_ipcp::api::RibOp;

use super::bad;
use crate::requests::PoliciesOf;
use crate::requests::RibQuestion;

/// Parses `ipcp`: which of several members of this system is meant.
pub(super) fn ipcp_of(query: Option<&str>) -> Result<Option<String>, ErrorBody> {
    let mut ipcp = None;
    for (key, value) in pairs(query.unwrap_or_default()) {
        match key {
            "ipcp" => ipcp = Some(text_of(value)?),
            _ => {
                return Err(bad(format!(
                    "query parameter {key:?} is unknown; the only one is \
                ipcp"
                )));
            }
        }
    }
    Ok(ipcp)
}

/// Parses the number of a capture in a path.
pub(super) fn capture_id(text: &str) -> Result<u64, ErrorBody> {
    let number = text.parse();
    number.map_err(|_| bad(format!("{text:?} is not a capture; captures are numbers")))
}

/// Parses `wait_ms`: how long to wait for packets of a capture, in milliseconds.
pub(super) fn wait_query(query: Option<&str>) -> Result<u64, ErrorBody> {
    let mut wait_ms = 0;
    for (key, value) in pairs(query.unwrap_or_default()) {
        if key != "wait_ms" {
            return Err(bad(format!(
                "query parameter {key:?} is unknown; the only one is wait_ms"
            )));
        }
        let number = value.parse::<u64>();
        wait_ms = number.map_err(|_| bad(format!("wait_ms={value:?} is not a number")))?;
    }
    Ok(wait_ms.min(CAPTURE_WAIT_MS_MAX))
}

/// Parses `since` and `wait_ms`: the number of the last known event, and how long to wait for a
/// later one, in milliseconds.
pub(super) fn event_query(query: &str) -> Result<(u64, u64), ErrorBody> {
    let (mut since, mut wait_ms) = (0, EVENT_WAIT_MS_MAX);
    for (key, value) in pairs(query) {
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| bad(format!("{key}={value:?} is not a number")))
        };
        match key {
            "since" => since = number()?,
            "wait_ms" => wait_ms = number()?,
            _ => {
                return Err(bad(format!(
                    "query parameter {key:?} is unknown; known are since and wait_ms"
                )));
            }
        }
    }
    Ok((since, wait_ms))
}

/// Parses a query to a RIB.
pub(super) fn rib_query(query: &str) -> Result<RibQuestion, ErrorBody> {
    let (mut dif, mut member, mut path, mut scope) = (None, None, "/".to_owned(), 0);
    let mut filter = String::new();
    for (key, value) in pairs(query) {
        let value = text_of(value)?;
        match key {
            "dif" => dif = Some(value),
            "member" => member = Some(value),
            "path" => path = value,
            "filter" => filter = value,
            "scope" => {
                let number = value.parse();
                scope = number.map_err(|_| bad(format!("scope={value:?} is not a number")))?;
            }
            _ => {
                let known = "known are dif, member, path, scope and filter";
                return Err(bad(format!("query parameter {key:?} is unknown; {known}")));
            }
        }
    }
    let op = RibOp::Read {
        path,
        scope,
        filter,
    };
    Ok(RibQuestion { dif, member, op })
}

/// Parses whose policies are requested: `dif` or `dialect`. Default: the native dialect.
pub(super) fn policies_query(query: &str) -> Result<PoliciesOf, ErrorBody> {
    let mut of = PoliciesOf::Dialect(Dialect::default());
    for (key, value) in pairs(query) {
        of = match key {
            "dif" => PoliciesOf::Dif(text_of(value)?),
            "dialect" => PoliciesOf::Dialect(
                text_of(value)?
                    .parse()
                    .map_err(|error: UnknownDialect| bad(error.to_string()))?,
            ),
            _ => {
                return Err(bad(format!(
                    "query parameter {key:?} is unknown; known are dif and dialect"
                )));
            }
        }
    }
    Ok(of)
}

/// The keys and values of a query, not decoded.
fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = query.split('&').filter(|pair| !pair.is_empty());
    parts.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Decodes a percent-encoded value.
fn text_of(value: &str) -> Result<String, ErrorBody> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let number = digit().and_then(|high| Some(high * 16 + digit()?));
                number.ok_or_else(|| bad(format!("{value:?} is not percent-encoded")))? as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad(format!("{value:?} is not UTF-8")))
}

/// Longest wait for an event, in milliseconds.
pub(super) const EVENT_WAIT_MS_MAX: u64 = 30_000;

/// Longest wait for a packet of a capture, in milliseconds.
const CAPTURE_WAIT_MS_MAX: u64 = 5_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_query_reads_known_keys_only() {
        assert_eq!(event_query("").unwrap(), (0, EVENT_WAIT_MS_MAX));
        assert_eq!(event_query("since=5&wait_ms=7").unwrap(), (5, 7));
        assert!(event_query("since=-1").unwrap_err().message.contains("-1"));
        assert!(event_query("sinc=1").is_err());
    }

    #[test]
    fn capture_query_reads_its_key_only() {
        assert_eq!(wait_query(None).unwrap(), 0);
        assert_eq!(wait_query(Some("wait_ms=7")).unwrap(), 7);
        assert_eq!(
            wait_query(Some("wait_ms=99999")).unwrap(),
            CAPTURE_WAIT_MS_MAX
        );
        assert!(wait_query(Some("wait=7")).is_err() && wait_query(Some("wait_ms=")).is_err());
        assert!(capture_id("7").is_ok() && capture_id("-7").is_err());
    }

    #[test]
    fn rib_query_reads_names_of_any_text() {
        let query = "path=%2Fmembers&scope=2&dif=a%20%26%C3%A9&member=m&filter=a%3D1%26b%3D%26";
        let question = rib_query(query).unwrap();
        let read = RibOp::Read {
            path: "/members".to_owned(),
            scope: 2,
            filter: "a=1&b=&".to_owned(),
        };
        assert_eq!(question.op, read);
        assert_eq!(question.dif.as_deref(), Some("a &é"));
        assert_eq!(question.member.as_deref(), Some("m"));
        for wrong in ["path=%2", "path=%zz", "dif=%ff", "scope=x", "paht=/"] {
            assert!(rib_query(wrong).is_err(), "{wrong}");
        }
    }
}
