//! How long `up` and `apply` wait for a network.

use std::time::{Duration, Instant};

use carina_vnet::document::{Document, OnInsufficient};

use crate::failure::{Failure, failed};

/// The option that says how long a command waits until a network is ready.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct DeadlineArgs {
    /// Fail if the network is not ready within this time, such as 5m, time in the queue included
    /// [default: 20m, plus the TIME of `on_insufficient = "queue TIME"` in the document]
    #[arg(long, value_name = "TIME", value_parser = carina_text::duration::parse_ns)]
    deadline: Option<u64>,
}

/// The time at which a command stops waiting for a network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    began: Instant,
    limit: Duration,
}

impl DeadlineArgs {
    /// The deadline for the network of `document`, counted from now.
    pub(super) fn of(self, document: &Document) -> Deadline {
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
    /// The default deadline, for a network that does not wait in a queue, counted from now.
    pub(super) fn usual() -> Deadline {
        Deadline {
            began: Instant::now(),
            limit: USUAL,
        }
    }

    /// Fails when the deadline has passed; the error says what the network still waits for.
    ///
    /// # Errors
    /// The deadline has passed.
    pub(super) fn check(&self, name: &str, waits_for: &str) -> Result<(), Failure> {
        if self.began.elapsed() < self.limit {
            return Ok(());
        }
        let waits_for = match waits_for {
            "" => "the agent does not say what the network waits for",
            words => words,
        };
        Err(failed(format!(
            "network {name} is not ready after {} s: {waits_for}; --deadline TIME waits longer",
            self.limit.as_secs_f32()
        )))
    }
}

/// How long a network may take by default. A disk image boots for up to 10 minutes without KVM.
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
