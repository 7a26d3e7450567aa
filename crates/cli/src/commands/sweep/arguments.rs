//! How parameters reach the program of a trial: as its arguments, and as environment variables. Pure.

use corro_model::batchai::{EnvironmentVariable, SweepParameter, parameter_variable};

use super::space::Parameter;

/// The arguments of the program with `{NAME}` for the value of each parameter. A parameter that the arguments do not name is appended as `--NAME {NAME}`.
pub fn argument_template(arguments: &[String], space: &[Parameter]) -> Vec<String> {
    let mut template = arguments.to_vec();
    for parameter in space {
        let placeholder = placeholder(&parameter.name);
        if !arguments.iter().any(|argument| argument.contains(&placeholder)) {
            template.extend([format!("--{}", parameter.name), placeholder]);
        }
    }
    template
}

/// The arguments of a trial.
pub fn arguments_of(template: &[String], parameters: &[SweepParameter]) -> Vec<String> {
    template.iter().map(|argument| with_values(argument, parameters)).collect()
}

/// Replaces all placeholders in one pass, so that a value with braces is not replaced again.
fn with_values(argument: &str, parameters: &[SweepParameter]) -> String {
    let mut text = String::new();
    let mut rest = argument;
    while let Some(brace) = rest.find('{') {
        text.push_str(&rest[..brace]);
        rest = &rest[brace..];
        let named = parameters.iter().find(|parameter| rest.starts_with(&placeholder(&parameter.name)));
        match named {
            Some(parameter) => {
                text.push_str(&parameter.value);
                rest = &rest[parameter.name.len() + 2..];
            }
            None => {
                text.push('{');
                rest = &rest[1..];
            }
        }
    }
    text + rest
}

/// The environment variables of a trial: `CORRO_PARAM_LR`.
pub fn variables_of(parameters: &[SweepParameter]) -> impl Iterator<Item = EnvironmentVariable> {
    parameters.iter().map(|parameter| EnvironmentVariable {
        name: parameter_variable(&parameter.name),
        value: parameter.value.clone(),
    })
}

fn placeholder(parameter: &str) -> String {
    format!("{{{parameter}}}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sweep::space::parse_space;

    #[test]
    fn parameters_are_appended_or_stand_where_the_arguments_name_them() {
        let space = parse_space(&["lr=1,2".to_owned(), "batch=3".to_owned()]).expect("a space");
        let parameters = [("lr", "{batch}"), ("batch", "32")]
            .map(|(name, value)| SweepParameter { name: name.to_owned(), value: value.to_owned() });
        let check = |arguments: &[&str], template: &[&str], made: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            let given = argument_template(&arguments, &space);
            assert_eq!(given, template);
            assert_eq!(arguments_of(&given, &parameters), made);
        };
        check(&[], &["--lr", "{lr}", "--batch", "{batch}"], &["--lr", "{batch}", "--batch", "32"]);
        check(
            &["-e", "3"],
            &["-e", "3", "--lr", "{lr}", "--batch", "{batch}"],
            &["-e", "3", "--lr", "{batch}", "--batch", "32"],
        );
        check(
            &["rate={lr},{x}", "{", "b{batch}b{batch}"],
            &["rate={lr},{x}", "{", "b{batch}b{batch}"],
            &["rate={batch},{x}", "{", "b32b32"],
        );
        let names: Vec<String> =
            variables_of(&parameters).map(|variable| format!("{}={}", variable.name, variable.value)).collect();
        assert_eq!(names, ["CORRO_PARAM_LR={batch}", "CORRO_PARAM_BATCH=32"]);
    }
}
