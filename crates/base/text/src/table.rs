//! Tables in plain text: columns as wide as their widest cell, numbers aligned right.

use std::fmt;

/// A table of text, to which rows are added before it is displayed.
#[derive(Debug, Clone)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table without rows that has the given column titles.
    pub fn new<T: Into<String>>(head: impl IntoIterator<Item = T>) -> Self {
        Self {
            head: head.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row to the table; missing cells stay empty.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).collect();
        row.resize(self.head.len(), String::new());
        self.rows.push(row);
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.head.len();
        let width = |column: usize| {
            let cells = self
                .rows
                .iter()
                .map(|row| &row[column])
                .chain([&self.head[column]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let numeric: Vec<bool> = (0..columns).map(|c| self.is_numeric(c)).collect();
        for (index, row) in std::iter::once(&self.head).chain(&self.rows).enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                let gap = if column == 0 { "" } else { "  " };
                line += &if numeric[column] {
                    format!("{gap}{pad}{cell}")
                } else {
                    format!("{gap}{cell}{pad}")
                };
            }
            if index > 0 {
                writeln!(f)?;
            }
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

impl Table {
    fn is_numeric(&self, column: usize) -> bool {
        let starts = |cell: &String| {
            let first = cell.chars().next();
            first.is_none_or(|c| c.is_ascii_digit() || matches!(c, '-' | '+' | '×'))
        };
        self.rows.iter().all(|row| starts(&row[column]))
    }
}

/// Formats a number with about three significant digits: `0.123`, `1.23`, `12.3`, `123`, `12345`.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        x if x < 1.0 => format!("{value:.3}"),
        x if x < 10.0 => format!("{value:.2}"),
        x if x < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Formats a size in bytes: `64`, `4000`, `64 KiB`, `1 MiB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b if b >= 8192 && b % 1024 == 0 => format!("{} KiB", b >> 10),
        b => b.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_numbers_lean_right() {
        let mut table = Table::new(["name", "bytes"]);
        table.row(["a", "5"]);
        table.row(["longer", "1234"]);
        assert_eq!(
            table.to_string(),
            "name    bytes\na           5\nlonger   1234"
        );
    }

    #[test]
    fn sizes_and_numbers_are_short() {
        assert_eq!(
            (size(4000), size(65536), size(1 << 20)),
            ("4000".into(), "64 KiB".into(), "1 MiB".into())
        );
        assert_eq!(
            (short(0.1234), short(12.34), short(1234.5)),
            ("0.123".into(), "12.3".into(), "1234".into())
        );
    }
}
