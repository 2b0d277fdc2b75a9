//! The ids of apps and links.

/// Names an app of one engine; not reused while anything can still refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl AppId {
    /// The id as an epoll token.
    #[must_use]
    pub fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The id that a token stands for.
    #[must_use]
    pub fn from_token(token: u64) -> AppId {
        AppId {
            index: token as u32,
            generation: (token >> 32) as u32,
        }
    }
}

/// Names a link of one engine; not reused while anything can still refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}
