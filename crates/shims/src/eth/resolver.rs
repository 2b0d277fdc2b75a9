//! Questions for names that are under way, without I/O.
//!
//! ```text
//!            ask                      reply
//!   (none) ------> asked, repeated  --------> (none): the flow is there
//!                  with back-off    --------> (none): given up
//!                                   until
//! ```

use carina_api::{AppName, PortId};

use crate::hub::Wires;

/// A question that was not answered yet.
pub(super) struct Question {
    pub port: PortId,
    pub local: AppName,
    pub remote: AppName,
    pub wires: Wires,
    next_at: u64,
    wait_ns: u64,
    until: u64,
}

/// What is to be done about a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Ask for `remote`, for a flow from `local`.
    Ask { local: AppName, remote: AppName },
    /// Nobody has answered in time.
    GiveUp(PortId),
}

/// The questions of one IPCP.
pub(super) struct Resolver {
    questions: Vec<Question>,
    timeout_ns: u64,
}

impl Resolver {
    /// Questions are given up after `timeout_ns`.
    pub fn new(timeout_ns: u64) -> Resolver {
        Resolver {
            questions: Vec::new(),
            timeout_ns,
        }
    }

    /// Begins to ask.
    pub fn ask(&mut self, now: u64, port: PortId, names: (AppName, AppName), wires: Wires) {
        self.questions.push(Question {
            port,
            local: names.0,
            remote: names.1,
            wires,
            next_at: now,
            wait_ns: RETRY_NS_MIN,
            until: now.saturating_add(self.timeout_ns),
        });
    }

    /// What is due at `now`; call until `None`.
    pub fn poll(&mut self, now: u64) -> Option<Due> {
        for question in &mut self.questions {
            if question.until <= now {
                return Some(Due::GiveUp(question.port));
            }
            if question.next_at <= now {
                question.next_at = now.saturating_add(question.wait_ns);
                question.wait_ns = (question.wait_ns * 2).min(RETRY_NS_MAX);
                return Some(Due::Ask {
                    local: question.local.clone(),
                    remote: question.remote.clone(),
                });
            }
        }
        None
    }

    /// When something is due next.
    pub fn next_at(&self) -> Option<u64> {
        self.questions
            .iter()
            .map(|question| question.next_at.min(question.until))
            .min()
    }

    /// Takes the oldest question for this name: it was answered.
    pub fn answered(&mut self, remote: &str, local: &str) -> Option<Question> {
        let fits = |question: &Question| {
            question.remote.as_str() == remote && question.local.as_str() == local
        };
        let at = self.questions.iter().position(fits)?;
        Some(self.questions.remove(at))
    }

    /// Takes a question back.
    pub fn take(&mut self, port: PortId) -> Option<Question> {
        let at = self.questions.iter().position(|q| q.port == port)?;
        Some(self.questions.remove(at))
    }

    /// Takes any question.
    pub fn pop(&mut self) -> Option<Question> {
        self.questions.pop()
    }

    /// The question whose end of the flow has this link.
    pub fn by_link(&self, link: carina_engine::LinkId) -> Option<PortId> {
        self.questions
            .iter()
            .find(|question| question.wires.from_flow == link)
            .map(|question| question.port)
    }
}

/// The first repetition of a question, in ns; the pause doubles from there.
const RETRY_NS_MIN: u64 = 250_000_000;
/// The longest pause, in ns.
const RETRY_NS_MAX: u64 = 2_000_000_000;
