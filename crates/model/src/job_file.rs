//! Parses `job.json` and other request bodies with errors that name line, column and field.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use crate::spelling::most_similar;

/// Error of a JSON text. Line and column count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}{}: {problem}", field_words(.field))]
pub struct JsonProblem {
    pub line: usize,
    pub column: usize,
    /// Path to the value, such as `properties.nodeCount`; `None` when the text is not valid JSON.
    pub field: Option<String>,
    pub problem: String,
}

fn field_words(field: &Option<String>) -> String {
    field.as_ref().map(|field| format!(", field '{field}'")).unwrap_or_default()
}

/// Parses `text`, which must be a JSON object, into `T`.
pub fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonProblem> {
    if text.trim_ascii_start().starts_with(b"[") {
        return Err(list_problem());
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let (field, path, cause) = field_and_cause(error);
        let problem = problem(&cause, field);
        let whole = || serde_json::from_slice(text).ok();
        match missing_field(&cause).and_then(|missing| misspelled_field(&whole()?, &path, &missing)) {
            Some(similar) => JsonProblem { problem: question(&similar, line_of_field(text, &similar)), ..problem },
            None => problem,
        }
    })?;
    deserializer.end().map_err(|cause| problem(&cause, None))?;
    refuse_nul(text)?;
    Ok(value)
}

/// Converts `value`, which must be an object, into `T`, with the errors of [`parse`]. `position` finds line and column of a field by its path.
pub fn from_value<T: DeserializeOwned>(
    value: &Value,
    position: impl Fn(&str) -> Option<(usize, usize)>,
) -> Result<T, JsonProblem> {
    if value.is_array() {
        return Err(list_problem());
    }
    let at = |problem: JsonProblem| {
        let (line, column) = problem.field.as_deref().and_then(&position).unwrap_or((1, 1));
        JsonProblem { line, column, ..problem }
    };
    if let Some(field) = field_with_nul("", value) {
        return Err(at(JsonProblem { line: 1, column: 1, field: Some(field), problem: NUL_PROBLEM.to_owned() }));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (field, path, cause) = field_and_cause(error);
        let problem = at(problem(&cause, field));
        let missing = missing_field(&cause);
        match missing.as_ref().and_then(|missing| Some((missing, misspelled_field(value, &path, missing)?))) {
            Some((missing, similar)) => {
                let field = problem.field.as_deref().unwrap_or_default();
                let sibling = format!("{}{similar}", field.strip_suffix(missing.as_str()).unwrap_or_default());
                JsonProblem { problem: question(&similar, position(&sibling).map(|(line, _)| line)), ..problem }
            }
            None => problem,
        }
    })
}

fn list_problem() -> JsonProblem {
    let problem = "invalid type: a list, expected an object".to_owned();
    JsonProblem { line: 1, column: 1, field: None, problem }
}

/// The field of an error, its path and its cause.
fn field_and_cause(error: serde_path_to_error::Error<serde_json::Error>) -> (Option<String>, Path, serde_json::Error) {
    let path = error.path().clone();
    let cause = error.into_inner();
    let field = if cause.is_data() { Some(path_with_missing(path.to_string(), &cause)) } else { None };
    // A single dot is the path of the whole text, which has no name.
    (field.filter(|field| field != "."), path, cause)
}

const NUL_PROBLEM: &str = r"the text contains the character \u0000: remove it";

/// Rejects NUL characters: neither process arguments nor file names can contain them. JSON can only express one as an
/// escape, so a text without that escape needs no second look.
fn refuse_nul(text: &[u8]) -> Result<(), JsonProblem> {
    let escape = br"\u0000";
    let Some(at) = text.windows(escape.len()).position(|window| window == escape) else { return Ok(()) };
    let Some(field) = serde_json::from_slice(text).ok().and_then(|value| field_with_nul("", &value)) else {
        return Ok(());
    };
    let before = &text[..at];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
    Err(JsonProblem { line, column, field: Some(field), problem: NUL_PROBLEM.to_owned() })
}

fn field_with_nul(path: &str, value: &Value) -> Option<String> {
    match value {
        Value::String(text) => text.contains('\0').then(|| path.to_owned()),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(i, item)| field_with_nul(&format!("{path}[{i}]"), item))
        }
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if name.contains('\0') { Some(path.replace('\0', "")) } else { field_with_nul(&path, value) }
        }),
        _ => None,
    }
}

/// Path to a list in `given` that was parsed as an object. Serde accepts a list of a struct's fields in order, but the
/// API does not.
pub fn list_for_object(path: &str, given: &Value, read: &Value) -> Option<String> {
    match (given, read) {
        (Value::Array(_), Value::Object(_)) => Some(path.to_owned()),
        (Value::Array(given), Value::Array(read)) => {
            let mut pairs = given.iter().zip(read).enumerate();
            pairs.find_map(|(i, (given, read))| list_for_object(&format!("{path}[{i}]"), given, read))
        }
        (Value::Object(given), Value::Object(read)) => given.iter().find_map(|(name, value)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            list_for_object(&path, value, read.get(name)?)
        }),
        _ => None,
    }
}

/// Collects the fields of `given` that the parsed value `read` does not have. A field without a value (null, empty, false or
/// 0) counts as absent: such values of optional fields are not written again.
pub fn unknown_fields(path: &str, given: &Value, read: &Value, found: &mut Vec<String>) {
    match (given, read) {
        (Value::Array(given), Value::Array(read)) => {
            for (i, (given, read)) in given.iter().zip(read).enumerate() {
                unknown_fields(&format!("{path}[{i}]"), given, read, found);
            }
        }
        (Value::Object(given), Value::Object(read)) => {
            for (name, value) in given {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match read.get(name) {
                    Some(read) => unknown_fields(&path, value, read, found),
                    None if has_value(value) => found.push(path),
                    None => {}
                }
            }
        }
        _ => {}
    }
}

fn has_value(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.values().any(has_value),
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
    }
}

fn problem(cause: &serde_json::Error, field: Option<String>) -> JsonProblem {
    let text = cause.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    let secret = field.as_deref().is_some_and(|field| SECRET_FIELD_WORDS.iter().any(|word| field.contains(word)));
    let text = if secret { without_value(text) } else { text.to_owned() };
    let problem = in_plain_words(&text);
    JsonProblem { line: cause.line().max(1), column: cause.column().max(1), field, problem }
}

/// Words in the path of a secret field. The value of such a field is never repeated in an error.
const SECRET_FIELD_WORDS: [&str; 8] =
    ["secrets", "credentials", "assword", "accountKey", "token", "userAccountSettings", "environmentVariables", "Url"];

/// Removes the value: "invalid type: integer `7`, expected a string" without the 7.
fn without_value(text: &str) -> String {
    let Some((before, after)) = text.rsplit_once(", expected ") else { return text.to_owned() };
    let kind = before.split(['`', '"']).next().unwrap_or_default().trim_end();
    format!("{kind}, expected {after}")
}

/// Rewords errors of serde: "invalid type: sequence, expected struct JobSpec with 3 elements" in terms of JSON.
fn in_plain_words(text: &str) -> String {
    let Some((found, expected)) = text.rsplit_once(", expected ") else { return text.to_owned() };
    let expected = match expected {
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a map" => "an object",
        "a sequence" => "a list",
        text if text.starts_with("struct ") || text.starts_with("internally tagged enum ") => "an object",
        text => text,
    };
    let (what, found) = found.split_once(": ").unwrap_or(("", found));
    let found = match found {
        "map" => "an object".to_owned(),
        "sequence" => "a list".to_owned(),
        "unit value" => "null".to_owned(),
        found => found.replacen("floating point ", "number ", 1).replacen("integer ", "number ", 1),
    };
    match what {
        "" => format!("{found}, expected {expected}"),
        what => format!("{what}: {found}, expected {expected}"),
    }
}

/// The field of a similar name that the object of a missing field has.
fn misspelled_field(whole: &Value, path: &Path, missing: &str) -> Option<String> {
    let object = path.iter().try_fold(whole, |value, segment| match segment {
        Segment::Map { key } => value.get(key),
        Segment::Seq { index } => value.get(index),
        Segment::Enum { .. } | Segment::Unknown => Some(value),
    });
    let names = object?.as_object()?.keys().map(String::as_str);
    let names = names.filter(|name| *name != missing && !name.contains(char::is_control));
    most_similar(missing, names).map(str::to_owned)
}

fn question(similar: &str, line: Option<usize>) -> String {
    let line = line.map_or_else(String::new, |line| format!(" (line {line})"));
    format!("missing; did you mean it by '{similar}'{line}?")
}

/// Line of the only field with this name; `None` if there are several, or if the text has it in another spelling.
fn line_of_field(text: &[u8], name: &str) -> Option<usize> {
    let text = std::str::from_utf8(text).ok()?;
    let quoted = serde_json::to_string(name).ok()?;
    let is_field = |(at, found): &(usize, &str)| text[at + found.len()..].trim_start().starts_with(':');
    let mut found = text.match_indices(&quoted).filter(is_field);
    let (at, _) = found.next().filter(|_| found.next().is_none())?;
    Some(text[..at].matches('\n').count() + 1)
}

/// Name of the field that serde misses.
fn missing_field(cause: &serde_json::Error) -> Option<String> {
    let text = cause.to_string();
    text.strip_prefix("missing field `")?.split_once('`').map(|(name, _)| name.to_owned())
}

/// Appends the name of a missing field to the path of its parent, at which serde reports it.
fn path_with_missing(path: String, cause: &serde_json::Error) -> String {
    match (missing_field(cause), path.as_str()) {
        (Some(name), "." | "") => name,
        (Some(name), _) => format!("{path}.{name}"),
        (None, _) => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batchai::JobCreateParameters;

    #[test]
    fn a_list_in_an_objects_place_is_found() {
        use serde_json::json;
        let find = |given: Value, read: Value| list_for_object("", &given, &read);
        assert_eq!(find(json!(["eastus"]), json!({"location": "eastus"})).as_deref(), Some(""));
        assert_eq!(find(json!({"a": {"b": []}}), json!({"a": {"b": {}}})).as_deref(), Some("a.b"));
        assert_eq!(find(json!({"a": [{"c": []}]}), json!({"a": [{"c": {"x": 1}}]})).as_deref(), Some("a[0].c"));
        assert_eq!(find(json!({"a": [], "more": []}), json!({"a": []})), None);
    }

    #[test]
    fn values_that_may_hold_a_secret_are_not_repeated() {
        for place in [
            r#""mountVolumes": {"azureFileShares": [{"azureFileUrl": 918273}]}"#,
            r#""environmentVariables": ["TOKEN=918273"]"#,
            r#""secrets": "918273""#,
        ] {
            let text = format!(r#"{{"properties": {{"nodeCount": 1, "stdOutErrPathPrefix": "x", {place}}}}}"#);
            let error = parse::<JobCreateParameters>(text.as_bytes()).expect_err(place);
            assert!(!error.to_string().contains("918273"), "{error}");
        }
        let text = r#"{"properties": {"vmSize": "x", "userAccountSettings": "me:918273"}}"#;
        let error = parse::<crate::batchai::ClusterCreateParameters>(text.as_bytes()).expect_err("no object");
        assert!(!error.to_string().contains("918273"), "{error}");
    }

    #[test]
    fn a_problem_names_line_and_field() {
        let check = |text: &str, expected: &str| {
            let error = parse::<JobCreateParameters>(text.as_bytes()).expect_err(text);
            assert_eq!(error.to_string(), expected);
        };
        check("{\n  \"properties\": {", "line 2, column 17: EOF while parsing an object");
        check(
            "{\"properties\": {\"nodeCount\": \"four\", \"stdOutErrPathPrefix\": \"x\"}}",
            "line 1, column 35, field 'properties.nodeCount': invalid type: string \"four\", expected a whole number",
        );
        check(
            "{\n \"properties\": {\"nodeCount\": 4}\n}",
            "line 2, column 31, field 'properties.stdOutErrPathPrefix': missing field `stdOutErrPathPrefix`",
        );
        check(
            r#"{"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "x", "secrets": [{"name": "A", "value": 918273}]}}"#,
            "line 1, column 101, field 'properties.secrets[0].value': invalid type: integer, expected a string",
        );
        check("[1, 2]", "line 1, column 1: invalid type: a list, expected an object");
        check("7", "line 1, column 1: invalid type: number `7`, expected an object");
        check(
            r#"{"properties": {"nodeCount": 1.5, "stdOutErrPathPrefix": "x"}}"#,
            "line 1, column 32, field 'properties.nodeCount': invalid type: number `1.5`, expected a whole number",
        );
        check(
            "{\"properties\": {\"nodeCount\": 1, \"stdOutErrPathPrefix\": \"x\",\n\"environmentVariables\": [{\"name\": \"A\", \"value\": \"a\\u0000b\"}]}}",
            "line 2, column 51, field 'properties.environmentVariables[0].value': the text contains the character \\u0000: remove it",
        );
        check("{}x", "line 1, column 2, field 'properties': missing field `properties`");
    }

    #[test]
    fn a_missing_field_is_found_under_a_similar_name() {
        let check = |text: &str, expected: &str| {
            let error = parse::<JobCreateParameters>(text.as_bytes()).expect_err(text);
            assert_eq!(error.to_string(), expected);
        };
        check(
            "{\n  \"properties\": {\n    \"nodecount\": 4,\n    \"stdOutErrPathPrefix\": \"x\"\n  }\n}",
            "line 5, column 3, field 'properties.nodeCount': missing; did you mean it by 'nodecount' (line 3)?",
        );
        check(
            r#"{"Properties": {"nodeCount": 4, "stdOutErrPathPrefix": "x"}}"#,
            "line 1, column 60, field 'properties': missing; did you mean it by 'Properties' (line 1)?",
        );
        check(
            "{\"properties\": {\"nodeCount\": 4, \"stdOutErrPathPrefix\": \"x\", \"outputDirectories\": [\n\
             {\"id\": \"A\", \"pathPrefix\": \"p\"},\n{\"id\": \"B\", \"path_prefix\": \"p\"}]}}",
            "line 3, column 31, field 'properties.outputDirectories[1].pathPrefix': missing; did you mean it by \
             'path_prefix' (line 3)?",
        );
        // The name occurs twice.
        check(
            r#"{"properties": {"nodecount": 4, "stdOutErrPathPrefix": "x", "tags": {"nodecount": 1}}}"#,
            "line 1, column 85, field 'properties.nodeCount': missing; did you mean it by 'nodecount'?",
        );
        check(
            r#"{"properties": {"node\u001bCount": 4, "stdOutErrPathPrefix": "x"}}"#,
            "line 1, column 65, field 'properties.nodeCount': missing field `nodeCount`",
        );
    }
}
