//! Ids of apps and links.

/// Id of an app of one engine. It is not reused while anything can still refer to the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl AppId {
    /// Converts the id to a token for an epoll set.
    #[must_use]
    pub fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Converts a token of an epoll set back to the id.
    #[must_use]
    pub fn from_token(token: u64) -> AppId {
        AppId {
            index: token as u32,
            generation: (token >> 32) as u32,
        }
    }
}

/// Id of a link of one engine. It is not reused while anything can still refer to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}
