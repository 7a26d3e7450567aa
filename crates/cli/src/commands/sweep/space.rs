//! The values that a parameter of a sweep can have, as `--param` gives them: a list, a range, a range on a logarithmic scale, or a range with steps. Pure.

use std::collections::BTreeSet;

use corro_model::batchai::parameter_variable;
use corro_model::validate::{MAX_PARAMETERS, MAX_TRIALS, check_parameter_name};

/// A parameter with its possible values.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub values: Values,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// These values, as they are written.
    List(Vec<String>),
    /// Whole numbers from `low` to `high`, both included.
    Integers { low: i64, high: i64, scale: Scale },
    /// Numbers from `low` to `high`.
    Numbers { low: f64, high: f64, scale: Scale },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Linear,
    Logarithmic,
}

/// A mistake in a parameter. `column` counts characters from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("character {column}: {problem}")]
pub struct SpaceError {
    pub column: usize,
    pub problem: String,
}

/// Beyond it, a floating point number cannot hold every integer.
const MAX_INTEGER: i64 = 1 << 53;
/// Significant digits of values that are computed.
const STEP_DIGITS: usize = 12;

/// Parses `NAME=VALUES`: `a,b,c`, `LOW..HIGH`, `log:LOW..HIGH` or `LOW..HIGH:STEP`.
pub fn parse_parameter(text: &str) -> Result<Parameter, SpaceError> {
    let at = |offset: usize, problem: String| SpaceError { column: text[..offset].chars().count() + 1, problem };
    let (name, values) = text.split_once('=').ok_or_else(|| {
        at(text.len(), "'=' is missing: write NAME=VALUES, such as lr=0.1,0.01 or lr=log:1e-4..1e-1".into())
    })?;
    check_parameter_name(name).map_err(|problem| at(0, problem))?;
    let parser = ValueParser { text: values };
    let values = parser.parse().map_err(|(offset, problem)| at(name.len() + 1 + offset, problem))?;
    Ok(Parameter { name: name.to_owned(), values })
}

/// Parses all parameters. Errors name the parameter.
pub fn parse_space(texts: &[String]) -> Result<Vec<Parameter>, String> {
    if texts.is_empty() {
        return Err("--param is missing: give at least one parameter, such as --param lr=log:1e-4..1e-1".to_owned());
    }
    if texts.len() > MAX_PARAMETERS {
        return Err(format!("{} parameters are given: use at most {MAX_PARAMETERS}", texts.len()));
    }
    let mut variables = BTreeSet::new();
    let parse = |text: &String| {
        let parameter = parse_parameter(text).map_err(|error| format!("argument --param {text}: {error}"))?;
        if !variables.insert(parameter_variable(&parameter.name)) {
            return Err(format!("the parameter '{}' is given twice: give each its own name", parameter.name));
        }
        Ok(parameter)
    };
    texts.iter().map(parse).collect()
}

impl Values {
    /// Number of different values; `None` if it has no bound.
    pub fn count(&self) -> Option<u64> {
        match self {
            Values::List(values) => Some(values.len() as u64),
            Values::Integers { low, high, .. } => Some(high.abs_diff(*low) + 1),
            Values::Numbers { .. } => None,
        }
    }
}

/// Parser of what is after `=`. Errors have the byte offset of the mistake.
struct ValueParser<'a> {
    text: &'a str,
}

type Parsed<T> = Result<T, (usize, String)>;

impl ValueParser<'_> {
    fn parse(&self) -> Parsed<Values> {
        if self.text.is_empty() {
            return Err((0, "the values are missing: write a list such as 1,2,3 or a range such as 0.1..0.9".into()));
        }
        if let Some(range) = self.text.strip_prefix("log:") {
            let begin = self.text.len() - range.len();
            let Some(dots) = range.find("..") else {
                return Err((begin, format!("'{range}' is not a range: write log:LOW..HIGH, such as log:1e-4..1e-1")));
            };
            return self.range(begin, begin + dots, Scale::Logarithmic);
        }
        match self.text.find("..") {
            Some(dots) if !self.text.contains(',') && self.is_range(dots) => self.range(0, dots, Scale::Linear),
            _ => self.list(),
        }
    }

    /// A text with two dots is a range if a number is on one side: `../data` is a path.
    fn is_range(&self, dots: usize) -> bool {
        let high = self.text[dots + 2..].split(':').next().unwrap_or_default();
        [&self.text[..dots], high].iter().any(|side| side.parse::<f64>().is_ok())
    }

    fn list(&self) -> Parsed<Values> {
        let mut offset = 0;
        let mut values: Vec<String> = Vec::new();
        for value in self.text.split(',') {
            if value.is_empty() {
                return Err((
                    offset,
                    "a value is empty: write values with one comma between them, such as 1,2,3".into(),
                ));
            }
            if values.iter().any(|known| known == value) {
                return Err((offset, format!("the value '{value}' is given twice: leave one out")));
            }
            values.push(value.to_owned());
            offset += value.len() + 1;
        }
        if values.len() > MAX_TRIALS as usize {
            return Err((0, format!("{} values are given: use at most {MAX_TRIALS}", values.len())));
        }
        Ok(Values::List(values))
    }

    /// `LOW..HIGH` or `LOW..HIGH:STEP` from `begin` to the end, with the dots at `dots`.
    fn range(&self, begin: usize, dots: usize, scale: Scale) -> Parsed<Values> {
        let rest = &self.text[dots + 2..];
        let (high_text, step_text) = rest.split_once(':').map_or((rest, None), |(high, step)| (high, Some(step)));
        let low_text = &self.text[begin..dots];
        let (low, high) = (self.number(begin, low_text)?, self.number(dots + 2, high_text)?);
        if low >= high {
            let fix = if low == high { "write the value alone" } else { "write the lower one first" };
            return Err((begin, format!("{low_text} is not less than {high_text}: {fix}")));
        }
        if scale == Scale::Logarithmic && low <= 0.0 {
            return Err((begin, format!("{low_text} has no logarithm: begin the range above 0")));
        }
        if let Some(step_text) = step_text {
            let offset = dots + 2 + high_text.len() + 1;
            let step = self.number(offset, step_text)?;
            if scale == Scale::Logarithmic {
                return Err((
                    offset - 1,
                    "a range on a logarithmic scale has no steps: write a list, such as 0.1,0.01".into(),
                ));
            }
            return Ok(Values::List(steps(low, high, step).map_err(|problem| (offset, problem))?));
        }
        Ok(match (integer(low_text), integer(high_text)) {
            (Some(low), Some(high)) => Values::Integers { low, high, scale },
            _ => Values::Numbers { low, high, scale },
        })
    }

    fn number(&self, offset: usize, text: &str) -> Parsed<f64> {
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ if text.is_empty() => {
                Err((offset, "a number is missing: write a range as LOW..HIGH, such as 0.1..0.9".into()))
            }
            _ => Err((offset, format!("'{text}' is not a number: write a range as LOW..HIGH, such as 0.1..0.9"))),
        }
    }
}

fn integer(text: &str) -> Option<i64> {
    text.parse::<i64>().ok().filter(|number| number.abs() <= MAX_INTEGER)
}

/// The values from `low` by `step` up to `high`.
fn steps(low: f64, high: f64, step: f64) -> Result<Vec<String>, String> {
    if step <= 0.0 {
        return Err("the step is not positive: write one such as 0.1".to_owned());
    }
    // Tolerates that 0.1 is not exact.
    let last = ((high - low) / step + 1e-9).floor();
    if last >= f64::from(MAX_TRIALS) {
        return Err(format!("the range has more than {MAX_TRIALS} values: make the step larger"));
    }
    Ok((0..=last as u32).map(|n| format_number(low + f64::from(n) * step, STEP_DIGITS)).collect())
}

/// A number with at most so many significant digits, as Python and Rust read it.
pub fn format_number(number: f64, digits: usize) -> String {
    let rounded: f64 = format!("{number:.*e}", digits - 1).parse().expect("it was formatted as a number");
    match rounded.abs() {
        0.0 => "0".to_owned(),
        size if (1e-4..1e15).contains(&size) => rounded.to_string(),
        _ => format!("{rounded:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(values: &[&str]) -> Values {
        Values::List(values.iter().map(|value| (*value).to_owned()).collect())
    }

    #[test]
    fn lists_and_ranges() {
        let check = |text: &str, expected: Values| {
            let parsed = parse_parameter(text).expect(text);
            assert_eq!((parsed.name.as_str(), parsed.values), ("p", expected), "{text}");
        };
        let (linear, logarithmic) = (Scale::Linear, Scale::Logarithmic);
        check("p=32,64,128", list(&["32", "64", "128"]));
        check("p=adam", list(&["adam"]));
        check("p=a=b,c", list(&["a=b", "c"]));
        check("p=../data", list(&["../data"]));
        check("p=1..2,3", list(&["1..2", "3"]));
        check("p=0.1..0.9", Values::Numbers { low: 0.1, high: 0.9, scale: linear });
        check("p=-1..1.0", Values::Numbers { low: -1.0, high: 1.0, scale: linear });
        check("p=2..8", Values::Integers { low: 2, high: 8, scale: linear });
        check("p=log:1e-4..1e-1", Values::Numbers { low: 1e-4, high: 1e-1, scale: logarithmic });
        check("p=log:16..1024", Values::Integers { low: 16, high: 1024, scale: logarithmic });
        check("p=0..1:0.25", list(&["0", "0.25", "0.5", "0.75", "1"]));
        check("p=0.1..0.7:0.2", list(&["0.1", "0.3", "0.5", "0.7"]));
        check("p=10..100:40", list(&["10", "50", "90"]));
        assert_eq!(Values::Integers { low: -2, high: 2, scale: linear }.count(), Some(5));
    }

    #[test]
    fn mistakes_have_a_position_and_a_fix() {
        let check = |text: &str, column: usize, problem: &str| {
            let error = parse_parameter(text).expect_err(text);
            assert_eq!((error.column, error.problem.as_str()), (column, problem), "{text}");
        };
        check("lr", 3, "'=' is missing: write NAME=VALUES, such as lr=0.1,0.01 or lr=log:1e-4..1e-1");
        let name = "'1r' is not the name of a parameter: use letters, digits, '_', '-' and '.', starting with a letter";
        check("1r=1", 1, name);
        check("lr=", 4, "the values are missing: write a list such as 1,2,3 or a range such as 0.1..0.9");
        check("lr=1,,2", 6, "a value is empty: write values with one comma between them, such as 1,2,3");
        check("lr=é,1,é", 8, "the value 'é' is given twice: leave one out");
        check("lr=log:1e-4", 8, "'1e-4' is not a range: write log:LOW..HIGH, such as log:1e-4..1e-1");
        check("lr=log:0..1", 8, "0 has no logarithm: begin the range above 0");
        check("lr=log:1e-4..x", 14, "'x' is not a number: write a range as LOW..HIGH, such as 0.1..0.9");
        check("lr=1..", 7, "a number is missing: write a range as LOW..HIGH, such as 0.1..0.9");
        check("lr=..1", 4, "a number is missing: write a range as LOW..HIGH, such as 0.1..0.9");
        check("lr=2..1", 4, "2 is not less than 1: write the lower one first");
        check("lr=1..1", 4, "1 is not less than 1: write the value alone");
        check("lr=0..1:0", 9, "the step is not positive: write one such as 0.1");
        check("lr=0..1:1e-6", 9, "the range has more than 1000 values: make the step larger");
        check("lr=log:1..9:2", 12, "a range on a logarithmic scale has no steps: write a list, such as 0.1,0.01");
        check("lr=0..inf", 7, "'inf' is not a number: write a range as LOW..HIGH, such as 0.1..0.9");
    }

    #[test]
    fn parameters_have_names_of_their_own() {
        let space = |texts: &[&str]| parse_space(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(space(&["a=1", "b=2"]).expect("two").len(), 2);
        assert_eq!(
            space(&["a-b=1", "a_b=2"]),
            Err("the parameter 'a_b' is given twice: give each its own name".to_owned())
        );
        let error = "argument --param a: character 2: '=' is missing: write NAME=VALUES, such as lr=0.1,0.01 or lr=log:1e-4..1e-1";
        assert_eq!(space(&["a"]), Err(error.to_owned()));
        assert!(space(&[]).is_err());
    }

    #[test]
    fn numbers_are_written_as_programs_read_them() {
        let check = |number: f64, expected: &str| assert_eq!(format_number(number, 6), expected);
        check(0.0, "0");
        check(0.1 + 0.2, "0.3");
        check(0.00123456789, "0.00123457");
        check(0.000012345678, "1.23457e-5");
        check(-2.5e17, "-2.5e17");
        check(100.0, "100");
    }
}
