//! Table layout of python-tabulate's "simple" format, character for character. Knows no resources.
//!
//! A column is as wide as its longest cell and at least two wider than its header; columns whose cells are all numbers
//! are aligned to the right, the others to the left; two spaces separate columns; lines have no trailing spaces.

use serde_json::{Map, Value};

/// One row: header and cell, in the order to print.
pub type Row = Vec<(String, Value)>;

const MIN_PADDING: usize = 2;
const SKIPPED_KEYS: [&str; 3] = ["id", "type", "etag"];

/// The table with a final newline; empty without rows or columns.
pub fn render(rows: &[Row]) -> String {
    let headers = headers(rows);
    let columns: Vec<Column> = headers.iter().map(|header| Column::new(header, rows)).collect();
    if columns.is_empty() {
        return String::new();
    }
    let mut lines = vec![
        line(columns.iter().map(|column| column.pad(&column.header))),
        line(columns.iter().map(|column| "-".repeat(column.width))),
    ];
    lines.extend((0..rows.len()).map(|row| line(columns.iter().map(|column| column.pad(&column.cells[row])))));
    lines.concat()
}

/// Rows for a value without a table layout. Keys in `key_order`, those of the query, come first; others follow sorted. Objects become columns (nested values and `id`, `type`, `etag` left out), lists `Column1`, `Column2`,
/// anything else a single `Result`.
pub fn auto_rows(value: &Value, key_order: &[String]) -> Vec<Row> {
    match value {
        Value::Array(items) => items.iter().map(|item| auto_row(item, key_order)).collect(),
        one => vec![auto_row(one, key_order)],
    }
}

fn auto_row(item: &Value, key_order: &[String]) -> Row {
    match item {
        Value::Object(object) => object_row(object, key_order),
        Value::Array(cells) => {
            cells.iter().enumerate().map(|(at, cell)| (format!("Column{}", at + 1), cell.clone())).collect()
        }
        scalar => vec![("Result".to_owned(), scalar.clone())],
    }
}

fn object_row(object: &Map<String, Value>, key_order: &[String]) -> Row {
    let chosen = key_order.iter().filter(|key| object.contains_key(*key));
    let others = object.keys().filter(|key| !key_order.contains(key));
    chosen
        .chain(others)
        .filter(|key| !SKIPPED_KEYS.contains(&key.as_str()))
        .filter(|key| !matches!(object[*key], Value::Null | Value::Array(_) | Value::Object(_)))
        .map(|key| (capitalize_first(key), object[key].clone()))
        .collect()
}

fn capitalize_first(key: &str) -> String {
    let mut characters = key.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// All headers, in order of first appearance.
fn headers(rows: &[Row]) -> Vec<&str> {
    let mut headers: Vec<&str> = Vec::new();
    for (header, _) in rows.iter().flatten() {
        if !headers.contains(&header.as_str()) {
            headers.push(header);
        }
    }
    headers
}

struct Column {
    header: String,
    cells: Vec<String>,
    width: usize,
    numeric: bool,
}

impl Column {
    fn new(header: &str, rows: &[Row]) -> Column {
        let values: Vec<&Value> = rows
            .iter()
            .map(|row| row.iter().find(|(name, _)| name == header).map_or(&Value::Null, |(_, value)| value))
            .collect();
        let numeric = values.iter().all(|value| value.is_null() || is_number(value))
            && values.iter().any(|value| is_number(value));
        let mut cells: Vec<String> = values.iter().map(|value| cell_text(value, numeric)).collect();
        if numeric {
            align_decimals(&mut cells);
        }
        let header = escape_controls(header);
        let longest = cells.iter().map(|cell| width(cell)).max().unwrap_or(0);
        Column { width: longest.max(width(&header) + MIN_PADDING), header, cells, numeric }
    }

    fn pad(&self, cell: &str) -> String {
        let blanks = " ".repeat(self.width.saturating_sub(width(cell)));
        if self.numeric { blanks + cell } else { cell.to_owned() + &blanks }
    }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let joined = cells.collect::<Vec<_>>().join("  ");
    format!("{}\n", joined.trim_end())
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn is_number(value: &Value) -> bool {
    match value {
        Value::Number(_) => true,
        Value::String(text) => text.parse::<f64>().is_ok(),
        _ => false,
    }
}

fn cell_text(value: &Value, numeric: bool) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => escape_controls(text.trim()),
        // Python's `g` format: a whole float loses its fraction.
        Value::Number(number) if numeric && number.is_f64() => {
            number.as_f64().map(|f| f.to_string()).unwrap_or_default()
        }
        other => escape_controls(&other.to_string()),
    }
}

/// Numbers with and without fraction stand with their points below each other.
fn align_decimals(cells: &mut [String]) {
    let after_point = |cell: &str| cell.find('.').map_or(0, |point| cell.len() - point);
    let longest = cells.iter().map(|cell| after_point(cell)).max().unwrap_or(0);
    for cell in cells {
        *cell += &" ".repeat(longest - after_point(cell));
    }
}

/// Text of other people for a terminal: a control code in it is shown, not obeyed.
pub fn escape_controls(text: &str) -> String {
    if !text.contains(is_unsafe) {
        return text.to_owned();
    }
    text.chars()
        .map(|c| match c {
            c if !is_unsafe(c) => c.to_string(),
            c if (c as u32) < 0x100 => format!("\\x{:02x}", c as u32),
            c => format!("\\u{:04x}", c as u32),
        })
        .collect()
}

/// Control codes, and the marks that reorder text on screen.
fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: Value, expected: &[&str]) {
        let expected: String = expected.iter().map(|line| format!("{line}\n")).collect();
        assert_eq!(render(&auto_rows(&value, &[])), expected);
    }

    #[test]
    fn columns_of_objects() {
        check(
            json!([
                {"name": "a", "count": 10, "nested": {"x": 1}, "id": "gone", "type": "gone", "ready": true},
                {"name": "long name", "count": 5, "ready": false, "note": null}
            ]),
            &[
                "  Count  Name       Ready",
                "-------  ---------  -------",
                "     10  a          True",
                "      5  long name  False",
            ],
        );
    }

    #[test]
    fn lists_and_scalars() {
        check(
            json!([["a", 1], ["b", 22]]),
            &["Column1      Column2", "---------  ---------", "a                  1", "b                 22"],
        );
        check(json!("running"), &["Result", "--------", "running"]);
        check(json!(["x", "y"]), &["Result", "--------", "x", "y"]);
        check(json!([]), &[]);
        check(json!({"nested": {}}), &[]);
    }

    #[test]
    fn an_empty_cell_is_text_but_a_missing_one_is_not() {
        check(json!([{"size": 12}, {"size": ""}]), &["Size", "------", "12", ""]);
        check(json!([{"a": "x", "size": 12}, {"a": "y"}]), &["A      Size", "---  ------", "x        12", "y"]);
    }

    #[test]
    fn floats_stand_point_below_point() {
        check(
            json!([[1.5], [10.25], [3], [2.0]]),
            &["  Column1", "---------", "     1.5", "    10.25", "     3", "     2"],
        );
    }

    #[test]
    fn control_codes_are_shown_not_sent() {
        check(
            json!([{"name": "\u{1b}[31mred\r\n\u{202e}x"}]),
            &["Name", "--------------------------", r"\x1b[31mred\x0d\x0a\u202ex"],
        );
    }

    #[test]
    fn the_order_of_a_query_is_kept() {
        let rows = auto_rows(&json!({"Name": "n", "Age": 3}), &["Name".into(), "Age".into()]);
        assert_eq!(render(&rows), "Name      Age\n------  -----\nn           3\n");
    }
}
