//! The credit of a link, and how a link ends.

/// Why a link ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// Everything was handed over; the text names the side that closed and why.
    Graceful(String),
    /// The other side is gone and SDUs may be missing; the text says how.
    Failed(String),
    /// The link never came to life (an allocation was refused).
    Refused(String),
}

impl Close {
    /// The reason in words.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Close::Graceful(text) | Close::Failed(text) | Close::Refused(text) => text,
        }
    }
}

/// Credit of a link as its sink states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credit {
    /// The source keeps to a limit known elsewhere; the link adds none.
    Unlimited,
    /// The sink calls [`Links::set_credit`](crate::Links::set_credit); nothing may be sent before.
    Stated,
    /// At most this many ring bytes may be on their way to the reader.
    Window(u64),
}
