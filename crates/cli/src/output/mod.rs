//! Prints results to standard output in the formats of `az`: JSON, tables, TSV and YAML, after a JMESPath query. Input is an object made by
//! [`Shape::apply`]. Never writes to standard error and sends no requests.
//!
//! Reading order: this file, [`shape`] (wire object to printed object), [`columns`] and [`table`] (tables), [`query`], [`json`], [`tsv`].

mod columns;
mod json;
mod python_time;
mod query;
mod shape;
mod table;
pub mod text_table;
mod tsv;
pub mod units;

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::Value;
use thiserror::Error;

pub use columns::TableKind;
pub use python_time::{python_date_time, python_duration};
pub use query::{Query, QueryError};
pub use shape::{Shape, UnknownField};
pub use table::escape_controls;

/// Value of `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON (default)
    Json,
    /// JSON, coloured on a terminal
    Jsonc,
    /// Table with headers
    Table,
    /// Tab-separated values, for scripts
    Tsv,
    /// YAML
    Yaml,
    /// Nothing
    None,
}

#[derive(Debug, Error)]
pub enum OutputError {
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error("cannot write the result as YAML")]
    Yaml(#[from] serde_yaml_ng::Error),
    #[error("cannot write the result")]
    Write(#[from] io::Error),
}

/// Prints `value`, after the query if there is one. A query without result prints nothing. A table without a query has the columns of the command.
pub fn print(
    out: &mut impl Write,
    format: Format,
    query: Option<&Query>,
    value: &Value,
    table: Option<TableKind>,
) -> Result<(), OutputError> {
    let query_result = query.map(|query| query.apply(value)).transpose()?;
    let printed = query_result.as_ref().unwrap_or(value);
    if printed.is_null() {
        return Ok(());
    }
    let key_order = query.map(Query::key_order).unwrap_or_default();
    let text = match format {
        Format::Json => json::render(printed, false),
        Format::Jsonc => json::render(printed, use_colours()),
        Format::Table => match table {
            Some(kind) if query.is_none() => table::render(&columns::rows(kind, printed)),
            _ => table::render(&table::auto_rows(printed, &key_order)),
        },
        Format::Tsv => tsv::render(printed, &key_order),
        Format::Yaml => serde_yaml_ng::to_string(printed)?,
        Format::None => String::new(),
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Whether standard output is a terminal and `NO_COLOR` (<https://no-color.org>) is unset.
fn use_colours() -> bool {
    rustix::termios::isatty(io::stdout()) && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(format: Format, query: Option<&str>, value: Value, table: Option<TableKind>, expected: &str) {
        let query = query.map(|source| Query::parse(source).expect(source));
        let mut out = Vec::new();
        print(&mut out, format, query.as_ref(), &value, table).expect("prints");
        assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
    }

    fn cluster() -> Value {
        json!({"name": "nc6cluster", "nodeStateCounts": {
            "idleNodeCount": 0, "leavingNodeCount": 0, "preparingNodeCount": 0, "runningNodeCount": 4, "unusableNodeCount": 0
        }})
    }

    #[test]
    fn the_queries_of_the_tutorial() {
        check(Format::Json, Some("executionState"), json!({"executionState": "running"}), None, "\"running\"\n");
        check(
            Format::Json,
            Some("nodeStateCounts"),
            cluster(),
            Some(TableKind::Cluster),
            "\
{
  \"idleNodeCount\": 0,
  \"leavingNodeCount\": 0,
  \"preparingNodeCount\": 0,
  \"runningNodeCount\": 4,
  \"unusableNodeCount\": 0
}
",
        );
    }

    #[test]
    fn a_query_replaces_the_columns_of_the_command() {
        check(
            Format::Table,
            Some("nodeStateCounts.{Running: runningNodeCount, Idle: idleNodeCount}"),
            cluster(),
            Some(TableKind::Cluster),
            "  Running    Idle\n---------  ------\n        4       0\n",
        );
    }

    #[test]
    fn an_empty_result_prints_nothing() {
        check(Format::Json, Some("missing"), cluster(), None, "");
        check(Format::Table, None, json!([]), Some(TableKind::Job), "");
        check(Format::None, None, cluster(), None, "");
        check(Format::Json, None, json!([]), None, "[]\n");
    }

    #[test]
    fn tsv_and_yaml() {
        check(Format::Tsv, Some("[name, nodeStateCounts.runningNodeCount]"), cluster(), None, "nc6cluster\n4\n");
        check(Format::Tsv, Some("[[name, nodeStateCounts.runningNodeCount]]"), cluster(), None, "nc6cluster\t4\n");
        check(Format::Yaml, None, json!({"b": [1, "x"], "a": null}), None, "a: null\nb:\n- 1\n- x\n");
    }
}
