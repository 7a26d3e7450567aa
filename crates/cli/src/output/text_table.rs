//! Tables for people: columns that line up, numbers to the right, empty columns left out, and no line longer than the terminal. Programs get
//! [`super::table`] and JSON.

use super::table::escape_controls;

const GAP: &str = "  ";

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// A table that is filled row by row.
#[derive(Clone, Debug)]
pub struct TextTable {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub fn new(columns: &[(&str, Align)]) -> TextTable {
        let columns = columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect();
        TextTable { columns, rows: Vec::new() }
    }

    /// Adds a row with a cell for each column. Control characters are escaped, since texts may come from other users.
    pub fn push(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(cells.iter().map(|cell| escape_controls(cell.trim())).collect());
    }

    /// The lines of the table with a header; lines that are longer than `max_width` are cut.
    pub fn lines(&self, max_width: Option<usize>) -> Vec<String> {
        let shown: Vec<usize> =
            (0..self.columns.len()).filter(|at| self.rows.iter().any(|row| !row[*at].is_empty())).collect();
        let header: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| self.rows.iter().chain([&header]).map(|row| row[at].chars().count()).max().unwrap_or(0))
            .collect();
        let line = |row: &Vec<String>| {
            let cells: Vec<String> = shown.iter().map(|at| pad(&row[*at], widths[*at], self.columns[*at].1)).collect();
            cut(cells.join(GAP).trim_end(), max_width)
        };
        [&header].into_iter().chain(&self.rows).map(line).collect()
    }
}

fn pad(cell: &str, width: usize, align: Align) -> String {
    match align {
        Align::Left => format!("{cell:<width$}"),
        Align::Right => format!("{cell:>width$}"),
    }
}

/// The line, or its beginning with an ellipsis.
fn cut(line: &str, max_width: Option<usize>) -> String {
    match max_width {
        Some(width) if line.chars().count() > width => {
            let kept: String = line.chars().take(width.saturating_sub(1)).collect();
            format!("{}…", kept.trim_end())
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable {
        let mut table = TextTable::new(&[("NAME", Align::Left), ("NODES", Align::Right), ("WHY", Align::Left)]);
        table.push(vec!["a".to_owned(), "4".to_owned(), String::new()]);
        table.push(vec!["été\x1b[2J".to_owned(), "16".to_owned(), "2 nodes are busy".to_owned()]);
        table
    }

    #[test]
    fn columns_line_up_and_controls_are_escaped() {
        let expected = ["NAME        NODES  WHY", "a               4", "été\\x1b[2J     16  2 nodes are busy"];
        assert_eq!(table().lines(None), expected);
    }

    #[test]
    fn long_lines_are_cut_and_empty_columns_left_out() {
        assert_eq!(table().lines(Some(24))[2], "été\\x1b[2J     16  2 no…");
        let mut table = TextTable::new(&[("NAME", Align::Left), ("WHY", Align::Left)]);
        table.push(vec!["a".to_owned(), " ".to_owned()]);
        assert_eq!(table.lines(None), ["NAME", "a"]);
    }
}
