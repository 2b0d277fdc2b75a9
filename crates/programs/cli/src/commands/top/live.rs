//! Live rates as rows and columns, for a screen or for tables.

use crate::failure::Failure;

/// A source of live rates, from which a sample is taken after each interval.
pub(crate) trait Live {
    /// The counters at one moment.
    type Sample;
    /// One row of the table.
    type Row;

    /// The columns of the table.
    const COLUMNS: &'static [Column];

    /// Takes a sample.
    ///
    /// # Errors
    /// There are no counters to read.
    fn sample(&self) -> Result<Self::Sample, Failure>;

    /// The rows for what changed between two samples that were taken `seconds` apart.
    fn rates(&self, before: &Self::Sample, after: &Self::Sample, seconds: f64) -> Vec<Self::Row>;

    /// The cells of a row, one for each column.
    fn cells(row: &Self::Row) -> Vec<String>;

    /// Whether a row is highlighted, because it deserves attention.
    fn is_marked(row: &Self::Row) -> bool;
}

/// A column of a screen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// Heading of the column.
    pub head: &'static str,
    /// The width in characters; 0 takes the rest of the line.
    pub width: u16,
    /// Whether a narrow terminal leaves the column out, so that names have room.
    pub is_dispensable: bool,
}

impl Column {
    /// A column that every terminal shows.
    ///
    /// # Panics
    /// The heading is wider than the column, and would be cut.
    pub(crate) const fn new(head: &'static str, width: u16) -> Column {
        assert!(width == 0 || width as usize >= head.len());
        Column {
            head,
            width,
            is_dispensable: false,
        }
    }

    /// A column that a narrow terminal leaves out.
    pub(crate) const fn wide(head: &'static str, width: u16) -> Column {
        Column {
            is_dispensable: true,
            ..Column::new(head, width)
        }
    }
}
