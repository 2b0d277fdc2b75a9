//! Parser of route files, with a route per line: `10.0.0.0/8 a`. Ignores empty lines, and text
//! behind `#`.

use crate::prefix::{Address, Prefix, PrefixError};

/// Why a line is not a valid route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub(crate) struct LineError {
    /// Number of the invalid line, counted from 1.
    line: usize,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Reason {
    #[error("a route is written PREFIX OUTPUT, for example {0} a")]
    Words(&'static str),
    #[error(transparent)]
    Prefix(#[from] PrefixError),
}

/// Parses the routes of a file, each with the name of its output.
///
/// # Errors
/// A line is invalid; the error gives the first one.
pub(crate) fn read_lines<A: Address>(text: &str) -> Result<Vec<(Prefix<A>, String)>, LineError> {
    let mut routes = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line_error = |reason| LineError {
            line: index + 1,
            reason,
        };
        let line = line.split('#').next().unwrap_or("");
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            [prefix, output] => {
                let prefix = prefix.parse().map_err(Reason::Prefix).map_err(line_error)?;
                routes.push((prefix, output.to_owned()));
            }
            _ => return Err(line_error(Reason::Words(A::EXAMPLE))),
        }
    }
    Ok(routes)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn wrong_lines_are_named() {
        let error = |text: &str| read_lines::<Ipv6Addr>(text).unwrap_err().to_string();
        assert_eq!(
            error("\n::/0"),
            "line 2: a route is written PREFIX OUTPUT, for example fd00::/8 a"
        );
        assert!(error("# none\n::/200 a").starts_with("line 2: \"::/200\": a prefix is"));
        let routes = read_lines::<Ipv6Addr>("fd00::/8 a # behind\n\n").unwrap();
        assert_eq!((routes.len(), routes[0].1.as_str()), (1, "a"));
    }
}
