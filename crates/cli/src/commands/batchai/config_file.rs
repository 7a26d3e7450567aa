//! Parses the JSON files of `--config-file`. An error names file, line, column and field. Unknown fields are ignored, as by `az`, with a warning,
//! because they are usually typing mistakes.

use std::fs;
use std::path::Path;

use corro_model::job_file;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::CliError;
use crate::output::{Shape, UnknownField, escape_controls};
use crate::stdio::note;

const SCHEMAS: &str = "https://raw.githubusercontent.com/Azure/BatchAI/master/schemas/2018-05-01";

/// Parses the file. Fields that `shape` does not have are ignored with a warning.
pub fn read<T: DeserializeOwned>(path: &Path, shape: Shape) -> Result<T, CliError> {
    let text = fs::read(path).map_err(|error| CliError {
        causes: vec![error.to_string()],
        ..CliError::new(format!("cannot read the configuration file {}", path.display()))
    })?;
    let (content, unknown) = parse(&text, shape).map_err(|problem| {
        let error = CliError::new(format!("cannot use the configuration file {}: {problem}", path.display()));
        match shape {
            Shape::Job => error.hint("correct the file and try again").docs("job-file"),
            _ => {
                let schema = format!("{SCHEMAS}/{}.json", schema_name(shape));
                error.hint(format!("correct the file and try again; the fields are those of {schema}"))
            }
        }
    })?;
    for field in &unknown {
        note(unknown_field(path, field));
    }
    Ok(content)
}

fn schema_name(shape: Shape) -> &'static str {
    match shape {
        Shape::FileServer => "nfs",
        _ => "cluster",
    }
}

fn parse<T: DeserializeOwned>(text: &[u8], shape: Shape) -> Result<(T, Vec<UnknownField>), job_file::JsonProblem> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let parsed = job_file::parse(text)?;
    let value: Value = job_file::parse(text)?;
    let mut unknown = shape.unknown_fields(&value);
    // Both occur in the examples of the service.
    unknown.retain(|UnknownField { path, .. }| {
        path != "$schema" && !(path.contains("outputDirectories") && path.ends_with(".type"))
    });
    Ok((parsed, unknown))
}

fn unknown_field(path: &Path, field: &UnknownField) -> String {
    let question = field.similar.map_or_else(String::new, |similar| format!("; did you mean '{similar}'?"));
    // Names from a file may contain control characters.
    let field = escape_controls(&field.path);
    format!("warning: {}: unknown field '{field}' is ignored{question}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::batchai::JobCreateParameters;

    #[test]
    fn unknown_fields_are_found_and_the_usual_ones_forgiven() {
        let text = br#"{"$schema": "x", "properties": {"nodeCont": 4, "nodeCount": 4, "stdOutErrPathPrefix": "p",
            "horovodSettings": {"pythonScriptFilePath": "a.py", "procesCount": 2},
            "inputDirectorys": [], "outputDirectories": [{"id": "M", "pathPrefix": "p", "type": "model", "sufix": "x"}]}}"#;
        let (_, unknown) = parse::<JobCreateParameters>(text, Shape::Job).expect("valid");
        let unknown: Vec<String> = unknown.iter().map(|field| unknown_field(Path::new("job.json"), field)).collect();
        assert_eq!(
            unknown,
            [
                "warning: job.json: unknown field 'properties.horovodSettings.procesCount' is ignored; did you mean \
                 'processCount'?",
                "warning: job.json: unknown field 'properties.inputDirectorys' is ignored; did you mean \
                 'inputDirectories'?",
                // The right one is given as well.
                "warning: job.json: unknown field 'properties.nodeCont' is ignored",
                "warning: job.json: unknown field 'properties.outputDirectories[0].sufix' is ignored",
            ]
        );
    }

    #[test]
    fn the_name_of_a_field_cannot_command_the_terminal() {
        let (_, unknown) = parse::<JobCreateParameters>(
            br#"{"properties": {"x\u001b]0;owned\u0007": 1, "nodeCount": 4, "stdOutErrPathPrefix": "p"}}"#,
            Shape::Job,
        )
        .expect("valid");
        let text = unknown_field(Path::new("job.json"), &unknown[0]);
        assert!(text.contains("owned") && !text.contains(char::is_control), "{text:?}");
    }

    #[test]
    fn an_error_names_file_place_and_field() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("job.json");
        fs::write(&path, "{\n  \"properties\": {\n    \"nodeCount\": \"four\"\n  }\n}").expect("written");
        let error = read::<JobCreateParameters>(&path, Shape::Job).expect_err("a word is no count");
        let text = error.to_string();
        for part in ["job.json", "line 3", "properties.nodeCount"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(read::<JobCreateParameters>(&dir.path().join("no.json"), Shape::Job).expect_err("missing").exit, 1);
    }
}
