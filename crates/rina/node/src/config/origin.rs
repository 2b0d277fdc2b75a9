//! The file that a configuration comes from, and the lines of its parts.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// Maps the parts of a configuration to lines of its text. The default has no text.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Origin {
    path: Option<PathBuf>,
    /// The bytes at which lines begin, after the first.
    lines: Vec<usize>,
}

impl Origin {
    /// The origin of what is read from `text`.
    pub(super) fn new(text: &str, path: Option<&Path>) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            path: path.map(Into::into),
            lines: ends.collect(),
        }
    }

    /// The file, when there is one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The line, counted from 1, of a part; `None` for a part that the text does not contain, which
    /// has an empty span.
    pub(crate) fn line_of(&self, span: &Range<usize>) -> Option<usize> {
        let before = self.lines.partition_point(|begin| *begin <= span.start);
        (!span.is_empty()).then_some(before + 1)
    }
}
