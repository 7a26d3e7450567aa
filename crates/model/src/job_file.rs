//! Reads `job.json` (and other bodies) so that an error says where and what: line, column, field. Entered by the CLI
//! with a file's text and by the server with a request's body.

use serde::de::DeserializeOwned;

/// Why a JSON text was refused. Line and column count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}{}: {problem}", field_words(.field))]
pub struct JsonProblem {
    pub line: usize,
    pub column: usize,
    /// The path to the value, such as `properties.nodeCount`; `None` when the text is not JSON at all.
    pub field: Option<String>,
    pub problem: String,
}

fn field_words(field: &Option<String>) -> String {
    field.as_ref().map(|field| format!(", field '{field}'")).unwrap_or_default()
}

/// Parses `text` into `T`.
pub fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonProblem> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let cause = error.into_inner();
        let field = if cause.is_data() { Some(path_with_missing(path, &cause)) } else { None };
        problem(&cause, field)
    })?;
    deserializer.end().map_err(|cause| problem(&cause, None))?;
    Ok(value)
}

fn problem(cause: &serde_json::Error, field: Option<String>) -> JsonProblem {
    let text = cause.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    let secret = field.as_deref().is_some_and(|field| SECRET.iter().any(|word| field.contains(word)));
    let problem = if secret { without_value(text) } else { text.to_owned() };
    JsonProblem { line: cause.line().max(1), column: cause.column().max(1), field, problem }
}

/// A value whose field has one of these words in its path is never repeated.
const SECRET: [&str; 5] = ["secrets", "credentials", "assword", "accountKey", "token"];

/// "invalid type: integer `7`, expected a string" without the 7.
fn without_value(text: &str) -> String {
    let Some((before, after)) = text.rsplit_once(", expected ") else { return text.to_owned() };
    let kind = before.split(['`', '"']).next().unwrap_or_default().trim_end();
    format!("{kind}, expected {after}")
}

/// A missing field is reported at its parent: add the field's own name, so that the message points at it.
fn path_with_missing(path: String, cause: &serde_json::Error) -> String {
    let text = cause.to_string();
    let missing = text.strip_prefix("missing field `").and_then(|rest| rest.split_once('`')).map(|(name, _)| name);
    match (missing, path.as_str()) {
        (Some(name), "." | "") => name.to_owned(),
        (Some(name), _) => format!("{path}.{name}"),
        (None, _) => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batchai::JobCreateParameters;

    #[test]
    fn a_problem_names_line_and_field() {
        let check = |text: &str, expected: &str| {
            let error = parse::<JobCreateParameters>(text.as_bytes()).expect_err(text);
            assert_eq!(error.to_string(), expected);
        };
        check("{\n  \"properties\": {", "line 2, column 17: EOF while parsing an object");
        check(
            "{\"properties\": {\"nodeCount\": \"four\", \"stdOutErrPathPrefix\": \"x\"}}",
            "line 1, column 35, field 'properties.nodeCount': invalid type: string \"four\", expected i32",
        );
        check(
            "{\n \"properties\": {\"nodeCount\": 4}\n}",
            "line 2, column 31, field 'properties.stdOutErrPathPrefix': missing field `stdOutErrPathPrefix`",
        );
        check(
            r#"{"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "x", "secrets": [{"name": "A", "value": 918273}]}}"#,
            "line 1, column 101, field 'properties.secrets[0].value': invalid type: integer, expected a string",
        );
        check("{}x", "line 1, column 2, field 'properties': missing field `properties`");
    }
}
