//! The credit of a link, and the ways in which a link can end.

/// Why a link ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// Everything was delivered. The text names the side that closed and its reason.
    Graceful(String),
    /// The other side failed, and SDUs may be missing. The text says how.
    Failed(String),
    /// The link never worked, because an allocation was refused. The text says why.
    Refused(String),
}

impl Close {
    /// Returns the text of the reason.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Close::Graceful(text) | Close::Failed(text) | Close::Refused(text) => text,
        }
    }
}

/// How the sink of a link grants credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credit {
    /// The source keeps to a limit of its own; the link adds none.
    Unlimited,
    /// The sink grants bytes with [`Links::set_credit`](crate::Links::set_credit). The source may
    /// send nothing before.
    Stated,
    /// At most this many bytes of ring may be on the way from the source to the reader.
    Window(u64),
}
