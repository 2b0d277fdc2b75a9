//! Errors of code that the place where they pass does not know.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::error::Error;
use core::fmt;

/// An error kept whole where its type is not known: of a toolbox, of a policy that a program
/// brings along, of the one dialect that has it. It says what the error within says, and
/// [`Error::source`] is that of the error within.
///
/// Two are equal when they say the same.
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    /// Wraps an error.
    pub fn new(error: impl Error + Send + Sync + 'static) -> Cause {
        Cause(Arc::new(error))
    }
}

/// Words of a program that has no type for its errors.
impl From<&str> for Cause {
    fn from(words: &str) -> Cause {
        Cause(Arc::from(Box::<dyn Error + Send + Sync>::from(words)))
    }
}

/// Words of a program that has no type for its errors.
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
