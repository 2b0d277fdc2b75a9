//! Questions to a network that are repeated until they are answered or given up, without I/O.

use carina_api::PortId;

/// The flows that are being asked for, and when to ask again.
pub(crate) struct Retries {
    questions: Vec<Question>,
    timeout_ns: u64,
}

struct Question {
    port: PortId,
    next_at: u64,
    wait_ns: u64,
    until: u64,
}

/// What is to be done about a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Ask (again).
    Ask(PortId),
    /// Nobody has answered in time; the question is forgotten.
    GiveUp(PortId),
}

impl Retries {
    /// Questions are given up after `timeout_ns`.
    pub fn new(timeout_ns: u64) -> Retries {
        Retries {
            questions: Vec::new(),
            timeout_ns,
        }
    }

    /// Begins to ask at `now`.
    pub fn begin(&mut self, now: u64, port: PortId) {
        self.questions.push(Question {
            port,
            next_at: now,
            wait_ns: RETRY_NS_MIN,
            until: now.saturating_add(self.timeout_ns),
        });
    }

    /// What is due at `now`; call until `None`.
    pub fn poll(&mut self, now: u64) -> Option<Due> {
        let at = self
            .questions
            .iter()
            .position(|question| question.until <= now || question.next_at <= now)?;
        let question = &mut self.questions[at];
        if question.until <= now {
            return Some(Due::GiveUp(self.questions.remove(at).port));
        }
        question.next_at = now.saturating_add(question.wait_ns);
        question.wait_ns = (question.wait_ns * 2).min(RETRY_NS_MAX);
        Some(Due::Ask(question.port))
    }

    /// When something is due next.
    pub fn next_at(&self) -> Option<u64> {
        let due = |question: &Question| question.next_at.min(question.until);
        self.questions.iter().map(due).min()
    }

    /// The flows that are asked for, oldest first.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.questions.iter().map(|question| question.port)
    }

    /// Forgets a question: it was answered, or nobody wants to know any more.
    pub fn end(&mut self, port: PortId) {
        self.questions.retain(|question| question.port != port);
    }

    /// Forgets all questions.
    pub fn clear(&mut self) {
        self.questions.clear();
    }
}

/// The first repetition of a question, in ns; the pause doubles from there.
const RETRY_NS_MIN: u64 = 250_000_000;
/// The longest pause, in ns.
const RETRY_NS_MAX: u64 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_repeated_with_growing_pauses_and_given_up_once() {
        let mut retries = Retries::new(5_000_000_000);
        retries.begin(0, PortId(7));
        let mut asked = Vec::new();
        let mut given_up = Vec::new();
        while let Some(now) = retries.next_at() {
            while let Some(due) = retries.poll(now) {
                match due {
                    Due::Ask(port) => asked.push((now / 1_000_000, port)),
                    Due::GiveUp(port) => given_up.push((now / 1_000_000, port)),
                }
            }
        }
        let at: Vec<u64> = asked.iter().map(|(at, _)| *at).collect();
        assert_eq!(at, [0, 250, 750, 1750, 3750]);
        assert_eq!(given_up, [(5000, PortId(7))]);
    }

    #[test]
    fn an_answer_ends_the_repetition_of_its_question_only() {
        let mut retries = Retries::new(1_000_000_000);
        retries.begin(0, PortId(1));
        retries.begin(0, PortId(2));
        retries.end(PortId(1));
        assert_eq!(retries.ports().collect::<Vec<_>>(), [PortId(2)]);
        assert_eq!(retries.poll(0), Some(Due::Ask(PortId(2))));
        assert_eq!(retries.poll(0), None);
        retries.clear();
        assert_eq!(retries.next_at(), None);
    }
}
