//! Reads the files of `--config-file`: JSON, or YAML where the name ends with `.yaml` or `.yml`. An error names file, line, column and field. Unknown
//! fields are ignored, as by `az`, with a warning, because they are usually typing mistakes.

mod document;

use std::fs;
use std::path::{Path, PathBuf};

use corro_model::ApiError;
use corro_model::job_file::{self, JsonProblem};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::CliError;
use crate::output::{Shape, UnknownField, escape_controls};
use crate::stdio::note;
use document::Positions;

const SCHEMAS: &str = "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2018-05-01";

/// A parsed file, and where its fields are.
#[derive(Debug)]
pub struct ConfigFile<T> {
    pub content: T,
    /// One for each unknown field.
    pub warnings: Vec<String>,
    path: PathBuf,
    positions: Positions,
}

/// Parses the file and prints its warnings.
pub fn read<T: DeserializeOwned>(path: &Path, shape: Shape) -> Result<T, CliError> {
    let file = load(path, shape)?;
    file.print_warnings();
    Ok(file.content)
}

/// Parses the file. Fields that `shape` does not have are ignored with a warning.
pub fn load<T: DeserializeOwned>(path: &Path, shape: Shape) -> Result<ConfigFile<T>, CliError> {
    let text = fs::read(path).map_err(|error| CliError {
        causes: vec![error.to_string()],
        ..CliError::new(format!("cannot read the configuration file {}", path.display()))
    })?;
    let (content, unknown, positions) = parse(path, &text, shape).map_err(|problem| {
        let hint = match (shape, problem.field.as_deref()) {
            (Shape::Job, Some("properties")) => "write the fields of the job below 'properties'".to_owned(),
            (Shape::Job, _) => "correct the file and try again".to_owned(),
            _ => {
                format!("correct the file and try again; the fields are those of {SCHEMAS}/{}.json", schema_name(shape))
            }
        };
        let error =
            CliError::new(format!("cannot use the configuration file {}: {problem}", path.display())).hint(hint);
        if shape == Shape::Job { error.docs("job-file") } else { error }
    })?;
    let warnings = unknown.iter().map(|field| unknown_field(path, &positions, field)).collect();
    Ok(ConfigFile { content, warnings, path: path.to_owned(), positions })
}

impl<T> ConfigFile<T> {
    pub fn print_warnings(&self) {
        self.warnings.iter().for_each(note);
    }

    /// The error of an invalid value in this file.
    pub fn invalid(&self, error: ApiError) -> CliError {
        let place = error.target.as_deref().map_or_else(String::new, |field| place(&self.positions, field));
        let error = CliError::from(error);
        CliError { message: format!("{}: {place}{}", self.path.display(), error.message), ..error }
    }
}

fn schema_name(shape: Shape) -> &'static str {
    match shape {
        Shape::FileServer => "nfs",
        _ => "cluster",
    }
}

fn parse<T: DeserializeOwned>(
    path: &Path,
    text: &[u8],
    shape: Shape,
) -> Result<(T, Vec<UnknownField>, Positions), JsonProblem> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let (content, value, positions) = if is_yaml(path) {
        let document = document::parse(&utf8(text)?)?;
        let position = |path: &str| document.positions.find(path).map(|at| (at.line, at.column));
        let content = job_file::from_value(&document.value, position).map_err(with_quoting_advice)?;
        (content, document.value, document.positions)
    } else {
        let content = job_file::parse(text)?;
        let value: Value = job_file::parse(text)?;
        // Without positions, messages still have the names of fields.
        let document = std::str::from_utf8(text).ok().and_then(|text| document::parse(text).ok());
        (content, value, document.map(|document| document.positions).unwrap_or_default())
    };
    let mut unknown = shape.unknown_fields(&value);
    // Both occur in the examples of the service.
    unknown.retain(|UnknownField { path, .. }| {
        path != "$schema" && !(path.contains("outputDirectories") && path.ends_with(".type"))
    });
    Ok((content, unknown, positions))
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["yaml", "yml"].iter().any(|yaml| extension.eq_ignore_ascii_case(yaml)))
}

fn utf8(text: &[u8]) -> Result<String, JsonProblem> {
    String::from_utf8(text.to_vec()).map_err(|error| {
        let valid = &text[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = valid.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        JsonProblem { line, column, field: None, problem: "the text is not UTF-8".to_owned() }
    })
}

/// YAML takes `4` and `true` without quotes for a number and a truth value where a text is needed.
fn with_quoting_advice(problem: JsonProblem) -> JsonProblem {
    let is_scalar = ["number", "integer", "boolean", "float"].iter().any(|kind| problem.problem.contains(kind));
    if is_scalar && problem.problem.ends_with("expected a string") {
        return JsonProblem { problem: format!("{}: write it in quotes", problem.problem), ..problem };
    }
    problem
}

fn unknown_field(path: &Path, positions: &Positions, field: &UnknownField) -> String {
    let question = field.similar.map_or_else(String::new, |similar| format!("; did you mean '{similar}'?"));
    // Names from a file may contain control characters.
    let name = escape_controls(&field.path);
    format!("warning: {}: {}unknown field '{name}' is ignored{question}", path.display(), place(positions, &field.path))
}

/// `line 3, column 5: `, or nothing where the position is not known.
fn place(positions: &Positions, field: &str) -> String {
    positions.find(field).map_or_else(String::new, |at| format!("line {}, column {}: ", at.line, at.column))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::batchai::JobCreateParameters;
    use corro_model::validate;

    fn written(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join(name);
        fs::write(&path, text).expect("written");
        (dir, path)
    }

    fn warnings(name: &str, text: &str) -> Vec<String> {
        let path = Path::new(name);
        let (_, unknown, positions) = parse::<JobCreateParameters>(path, text.as_bytes(), Shape::Job).expect("valid");
        unknown.iter().map(|field| unknown_field(path, &positions, field)).collect()
    }

    #[test]
    fn unknown_fields_are_found_and_the_usual_ones_forgiven() {
        let text = r#"{"$schema": "x", "properties": {"nodeCont": 4, "nodeCount": 4, "stdOutErrPathPrefix": "p",
            "horovodSettings": {"pythonScriptFilePath": "a.py", "procesCount": 2},
            "inputDirectorys": [],
            "outputDirectories": [{"id": "M", "pathPrefix": "p", "type": "model", "sufix": "x"}]}}"#;
        assert_eq!(
            warnings("job.json", text),
            [
                "warning: job.json: line 2, column 65: unknown field 'properties.horovodSettings.procesCount' is ignored; \
                 did you mean 'processCount'?",
                "warning: job.json: line 3, column 13: unknown field 'properties.inputDirectorys' is ignored; did you mean \
                 'inputDirectories'?",
                // The right one is given as well.
                "warning: job.json: line 1, column 33: unknown field 'properties.nodeCont' is ignored",
                "warning: job.json: line 4, column 83: unknown field 'properties.outputDirectories[0].sufix' is ignored",
            ]
        );
        let text = "properties:\n  nodeCount: 1\n  stdOutErrPathPrefix: p\n  horovdSettings: {}\n";
        assert_eq!(
            warnings("job.YML", text),
            ["warning: job.YML: line 4, column 3: unknown field 'properties.horovdSettings' is ignored; did you mean \
              'horovodSettings'?"]
        );
    }

    #[test]
    fn the_name_of_a_field_cannot_command_the_terminal() {
        let text = r#"{"properties": {"x\u001b]0;owned\u0007": 1, "nodeCount": 4, "stdOutErrPathPrefix": "p"}}"#;
        let text = warnings("job.json", text).remove(0);
        assert!(text.contains("owned") && !text.contains(char::is_control), "{text:?}");
    }

    #[test]
    fn an_error_names_file_place_and_field() {
        let (dir, path) = written("job.json", "{\n  \"properties\": {\n    \"nodeCount\": \"four\"\n  }\n}");
        let error = read::<JobCreateParameters>(&path, Shape::Job).expect_err("a word is no count");
        let text = error.to_string();
        for part in ["job.json", "line 3", "properties.nodeCount"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(read::<JobCreateParameters>(&dir.path().join("no.json"), Shape::Job).expect_err("missing").exit, 1);
    }

    #[test]
    fn errors_in_yaml_are_those_of_json() {
        let check = |text: &str, expected: &str, hint: &str| {
            let (_dir, path) = written("job.yaml", text);
            let error = load::<JobCreateParameters>(&path, Shape::Job).expect_err(text);
            let (_, message) = error.message.split_once("job.yaml: ").expect("the file is named");
            assert_eq!((message, error.hint.as_deref()), (expected, Some(hint)), "{text}");
        };
        let again = "correct the file and try again";
        let job = "properties:\n  stdOutErrPathPrefix: p\n";
        check(
            &format!("{job}  nodeCount: four\n"),
            "line 3, column 3, field 'properties.nodeCount': invalid type: string \"four\", expected a whole number",
            again,
        );
        check(
            &format!("{job}  nodecount: 4\n"),
            "line 1, column 1, field 'properties.nodeCount': missing; did you mean it by 'nodecount' (line 3)?",
            again,
        );
        check(
            &format!("{job}  nodeCount: 1\n  environmentVariables:\n    - {{name: A, value: 4}}\n"),
            "line 5, column 17, field 'properties.environmentVariables[0].value': invalid type: integer, expected a \
             string: write it in quotes",
            again,
        );
        check(
            &format!("{job}  nodeCount: 1\n  inputDirectories: [{{id: \"a\\0b\", path: p}}]\n"),
            r"line 4, column 23, field 'properties.inputDirectories[0].id': the text contains the character \u0000: remove it",
            again,
        );
        check("- a\n", "line 1, column 1: invalid type: a list, expected an object", again);
        check(
            "nodeCount: 1\n",
            "line 1, column 1, field 'properties': missing field `properties`",
            "write the fields of the job below 'properties'",
        );
    }

    #[test]
    fn an_invalid_value_is_found_in_the_file() {
        let text = "properties:\n  nodeCount: 0\n  stdOutErrPathPrefix: p\n";
        let (_dir, path) = written("job.yaml", text);
        let file = load::<JobCreateParameters>(&path, Shape::Job).expect("well-formed");
        let error = validate::check_job(&file.content.properties).expect_err("no nodes");
        let message = file.invalid(error).message;
        assert!(
            message.ends_with(
                "job.yaml: line 2, column 3: nodeCount is 0: a job needs at least 1 node (properties.nodeCount)"
            ),
            "{message}"
        );
    }
}
