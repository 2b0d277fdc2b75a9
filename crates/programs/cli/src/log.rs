//! The log of a process on standard error: of the node, and of commands that serve until they are
//! ended. `CARINA_LOG` selects what is logged.

use std::io::IsTerminal;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::{Attempt, Failure, usage};
use crate::log_writer::{self, LogThread};

/// Starts the log of a command that serves, with the levels of `CARINA_LOG`. The caller takes the
/// signals first, because a thread that does not block them would end the process at once. When the
/// returned value is dropped, the last lines are written.
///
/// # Errors
/// `CARINA_LOG` has a wrong level, or the system cannot start a thread.
pub(crate) fn start_for_server() -> Result<LogThread, Failure> {
    start(filter()?)
}

/// Starts the log. Called once in a process.
///
/// # Errors
/// The system cannot start a thread.
pub(crate) fn start(filter: Targets) -> Result<LogThread, Failure> {
    let (log, last_lines) = log_writer::start(std::io::stderr()).attempt("starting the log")?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(log)
        .with_ansi(std::io::stderr().is_terminal());
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
    Ok(last_lines)
}

/// Returns the levels of `CARINA_LOG`.
///
/// # Errors
/// It has a wrong level.
pub(crate) fn filter() -> Result<Targets, Failure> {
    parse(&std::env::var("CARINA_LOG").unwrap_or_default())
}

/// Parses `CARINA_LOG`: a list of `LEVEL` and `TARGET=LEVEL`, separated by commas. The default
/// level is `info`.
fn parse(text: &str) -> Result<Targets, Failure> {
    let wrong = |part: &str| {
        usage(format!(
            "CARINA_LOG has {part:?}: must be a level (off, error, warn, info, debug, trace) or \
             TARGET=LEVEL, with commas between them"
        ))
    };
    let mut filter = Targets::new().with_default(LevelFilter::INFO);
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (target, level) = match part.split_once('=') {
            Some((target, level)) => (Some(target), level),
            None => (None, part),
        };
        let level: LevelFilter = level.parse().map_err(|_| wrong(part))?;
        filter = match target {
            Some(target) => filter.with_target(target, level),
            None => filter.with_default(level),
        };
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn levels_and_targets_select_what_is_logged() {
        let plain = parse("").unwrap();
        assert!(plain.would_enable("carina::efcp", &Level::INFO));
        assert!(!plain.would_enable("carina::efcp", &Level::DEBUG));
        let filter = parse("warn,carina::efcp=debug").unwrap();
        assert!(filter.would_enable("carina::efcp", &Level::DEBUG));
        assert!(!filter.would_enable("carina::rmt", &Level::INFO));
    }

    #[test]
    fn a_wrong_level_is_refused_by_name() {
        for text in ["loud", "info,carina::efcp=loud"] {
            let refusal = parse(text).unwrap_err().to_string();
            assert!(refusal.contains("loud"), "{refusal}");
            assert!(refusal.contains("must be a level"), "{refusal}");
        }
    }
}
