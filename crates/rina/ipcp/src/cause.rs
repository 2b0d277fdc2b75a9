//! An opaque error, for places that do not know the error's type.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::error::Error;
use core::fmt;

/// Wraps an error whose type is not known here: from a toolbox, from a program's own policy, or
/// from one dialect. `Display` shows the wrapped error's text, and [`Error::source`] returns the
/// wrapped error's source.
///
/// Two causes are equal when their texts are equal.
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    /// Wraps `error`, which keeps its text and its source.
    pub fn new(error: impl Error + Send + Sync + 'static) -> Cause {
        Cause(Arc::new(error))
    }
}

/// Wraps the text of a program that has no error type.
impl From<&str> for Cause {
    fn from(words: &str) -> Cause {
        Cause(Arc::from(Box::<dyn Error + Send + Sync>::from(words)))
    }
}

/// Wraps the text of a program that has no error type.
impl From<String> for Cause {
    fn from(words: String) -> Cause {
        Cause(Arc::from(Box::<dyn Error + Send + Sync>::from(words)))
    }
}

impl PartialEq for Cause {
    fn eq(&self, other: &Cause) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Cause {}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
