//! The file that a configuration was read from, and the lines of its parts.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// Maps the parts of a configuration to lines of its text. The default value has no text.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Origin {
    path: Option<PathBuf>,
    /// Byte offsets at which lines begin, without the first line.
    lines: Vec<usize>,
}

impl Origin {
    /// The origin of a configuration read from `text`.
    pub(super) fn new(text: &str, path: Option<&Path>) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            path: path.map(Into::into),
            lines: ends.collect(),
        }
    }

    /// Returns the path of the file; `None` for a text that is not from a file.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The line of a part, counted from 1. `None` for a part that is not in the text: its span is
    /// empty.
    pub(crate) fn line_of(&self, span: &Range<usize>) -> Option<usize> {
        let before = self.lines.partition_point(|begin| *begin <= span.start);
        (!span.is_empty()).then_some(before + 1)
    }
}
