//! Line numbers of byte offsets in a text.

/// Finds the line numbers of byte offsets that ascend from call to call.
#[derive(Debug, Clone)]
pub struct LineCounter<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
}

impl<'a> LineCounter<'a> {
    /// Makes a counter that starts at line 1 of `text`.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self {
            text: text.as_bytes(),
            at: 0,
            line: 1,
        }
    }

    /// Returns the line number, from 1, of a byte offset. Offsets must not decrease from call to
    /// call. An offset beyond the end is on the last line.
    pub fn line_at(&mut self, byte: usize) -> usize {
        let to = byte.min(self.text.len());
        if to > self.at {
            let between = &self.text[self.at..to];
            self.line += between.iter().filter(|byte| **byte == b'\n').count();
            self.at = to;
        }
        self.line
    }
}

/// Returns the line number, from 1, of a byte offset in a text.
#[must_use]
pub fn line_of(text: &str, byte: usize) -> usize {
    LineCounter::new(text).line_at(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_begin_after_line_feeds() {
        let text = "a\n\nb";
        let lines: Vec<usize> = (0..6).map(|byte| line_of(text, byte)).collect();
        assert_eq!(lines, [1, 1, 2, 3, 3, 3]);
        let mut counter = LineCounter::new(text);
        assert_eq!(
            [0, 2, 2, 3, usize::MAX].map(|byte| counter.line_at(byte)),
            [1, 2, 2, 3, 3]
        );
    }
}
