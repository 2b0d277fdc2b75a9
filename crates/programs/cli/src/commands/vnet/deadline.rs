//! How long `up` and `apply` wait for a network.

use std::time::{Duration, Instant};

use carina_vnet::document::{Document, OnInsufficient};

use crate::failure::{Failure, failed};

/// The option of commands that wait for a network.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct DeadlineArgs {
    /// Fail when the network is not ready within this time [default: 20m, and the time of its
    /// queue]
    #[arg(long, value_name = "TIME", value_parser = carina_text::duration::parse_ns)]
    deadline: Option<u64>,
}

/// When a command stops waiting for a network.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    began: Instant,
    limit: Duration,
}

impl DeadlineArgs {
    /// The deadline for a network, from now.
    pub fn of(self, document: &Document) -> Deadline {
        let queue = match document.vnet.on_insufficient {
            OnInsufficient::Queue(time) => Duration::from(time.duration()),
            OnInsufficient::Reject => Duration::ZERO,
        };
        let usual = USUAL.saturating_add(queue);
        Deadline {
            began: Instant::now(),
            limit: self.deadline.map_or(usual, Duration::from_nanos),
        }
    }
}

impl Deadline {
    /// The deadline of a network that waits in no queue, from now.
    pub fn usual() -> Deadline {
        Deadline {
            began: Instant::now(),
            limit: USUAL,
        }
    }

    /// Fails when the deadline has passed, with what the network still waits for.
    ///
    /// # Errors
    /// It has passed.
    pub fn check(&self, name: &str, waits_for: &str) -> Result<(), Failure> {
        if self.began.elapsed() < self.limit {
            return Ok(());
        }
        let waits_for = match waits_for {
            "" => "nothing is known of what it waits for",
            words => words,
        };
        Err(failed(format!(
            "network {name} is not ready after {} s: {waits_for}; --deadline TIME waits longer",
            self.limit.as_secs_f32()
        )))
    }
}

/// How long a network may take: an image of a disk boots for up to 10 minutes under translation.
const USUAL: Duration = Duration::from_secs(20 * 60);

#[cfg(test)]
mod tests {
    use carina_vnet::document::Form;

    use super::*;

    #[test]
    fn deadline_says_what_is_still_waited_for() {
        let text = "[vnet]\nname = \"x\"\non_insufficient = \"queue 2m\"\n[node.a]\n";
        let document = Document::read(text, Form::Toml).unwrap();
        let deadline = DeadlineArgs { deadline: None }.of(&document);
        assert_eq!(deadline.limit, USUAL + Duration::from_secs(120));
        deadline.check("x", "node a: it starts").unwrap();
        let deadline = DeadlineArgs { deadline: Some(0) }.of(&document);
        let failure = deadline.check("x", "node a: it starts").unwrap_err();
        let words = failure.to_string();
        assert!(words.contains("after 0 s: node a: it starts"), "{words}");
    }
}
