//! YAML 1.2 documents (core schema) as JSON values, with the position of every field. JSON is a subset of YAML, so the positions of a JSON file come
//! from here too. Pure. Sizes are bounded: aliases must not expand a small file into gigabytes.

use std::borrow::Cow;
use std::collections::HashMap;

use corro_model::job_file::JsonProblem;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use serde_json::{Map, Number, Value};

/// Maximum number of values, those that aliases repeat included.
const MAX_VALUES: usize = 100_000;
const MAX_DEPTH: usize = 100;

/// Line and column, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl From<Marker> for Position {
    fn from(marker: Marker) -> Position {
        Position { line: marker.line(), column: marker.col() + 1 }
    }
}

#[derive(Debug)]
pub struct Document {
    pub value: Value,
    pub positions: Positions,
}

/// Positions of fields by their paths, such as `properties.outputDirectories[0].id`.
#[derive(Debug, Default)]
pub struct Positions(HashMap<String, Position>);

impl Positions {
    /// Position of a field. A field that the file lacks has the position of the object that should have it.
    pub fn find(&self, path: &str) -> Option<Position> {
        let mut path = path;
        loop {
            if let Some(position) = self.0.get(path) {
                return Some(*position);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// A list or an object whose end was not read yet.
struct Open {
    value: Value,
    path: String,
    /// Key whose value comes next.
    key: Option<String>,
    anchor: usize,
    n_values_before: usize,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Value>,
    positions: HashMap<String, Position>,
    /// Values with an anchor, and how many values each consists of.
    anchored: HashMap<usize, (Value, usize)>,
    n_values: usize,
}

/// Parses a text with one document.
pub fn parse(text: &str) -> Result<Document, JsonProblem> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) =
            event.map_err(|error| problem((*error.marker()).into(), format!("not valid YAML: {}", error.info())))?;
        builder.add(event, span.start.into())?;
    }
    Ok(Document { value: builder.root.unwrap_or(Value::Null), positions: Positions(builder.positions) })
}

impl Builder {
    fn add(&mut self, event: Event<'_>, position: Position) -> Result<(), JsonProblem> {
        match event {
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(problem(position, "a second document begins: use one file for each"))
            }
            Event::Scalar(text, style, anchor, tag) => self.add_scalar(&text, style, anchor, tag.as_deref(), position),
            Event::Alias(anchor) => {
                let (value, n_values) = self.anchored.get(&anchor).cloned().unwrap_or_default();
                self.count(n_values, position)?;
                self.add_value(value, position)
            }
            Event::SequenceStart(anchor, _) => self.begin(Value::Array(Vec::new()), anchor, position),
            Event::MappingStart(anchor, _) => self.begin(Value::Object(Map::new()), anchor, position),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                if open.anchor != 0 {
                    let n_values = self.n_values - open.n_values_before + 1;
                    self.anchored.insert(open.anchor, (open.value.clone(), n_values));
                }
                self.add_value(open.value, position)
            }
            _ => Ok(()),
        }
    }

    fn add_scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        position: Position,
    ) -> Result<(), JsonProblem> {
        if let Some(Open { value: Value::Object(object), path, key: key @ None, .. }) = self.open.last_mut() {
            if object.contains_key(text) {
                return Err(problem(position, format!("the key '{text}' is there twice")));
            }
            if text == "<<" && style == ScalarStyle::Plain {
                return Err(problem(position, "merge keys (<<) are not part of YAML 1.2: write the fields out"));
            }
            let path = if path.is_empty() { text.to_owned() } else { format!("{path}.{text}") };
            self.positions.insert(path, position);
            *key = Some(text.to_owned());
            return Ok(());
        }
        self.count(1, position)?;
        let is_text = style != ScalarStyle::Plain || tag.is_some_and(|tag| tag.suffix == "str");
        let value = if is_text { Value::String(text.to_owned()) } else { plain_scalar(text) };
        if anchor != 0 {
            self.anchored.insert(anchor, (value.clone(), 1));
        }
        self.add_value(value, position)
    }

    fn begin(&mut self, value: Value, anchor: usize, position: Position) -> Result<(), JsonProblem> {
        if matches!(self.open.last(), Some(Open { value: Value::Object(_), key: None, .. })) {
            return Err(problem(position, "a list or an object cannot be a key"));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(problem(position, format!("more than {MAX_DEPTH} levels are nested")));
        }
        let n_values_before = self.n_values;
        self.count(1, position)?;
        let path = self.next_path();
        self.positions.entry(path.clone()).or_insert(position);
        self.open.push(Open { value, path, key: None, anchor, n_values_before });
        Ok(())
    }

    /// Path of the value that comes next.
    fn next_path(&self) -> String {
        match self.open.last() {
            None => String::new(),
            Some(Open { value: Value::Array(items), path, .. }) => format!("{path}[{}]", items.len()),
            Some(Open { path, key, .. }) => {
                let key = key.as_deref().unwrap_or_default();
                if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
            }
        }
    }

    fn add_value(&mut self, value: Value, position: Position) -> Result<(), JsonProblem> {
        let path = self.next_path();
        match self.open.last_mut() {
            None => {
                self.root = Some(value);
                return Ok(());
            }
            Some(Open { value: Value::Array(items), .. }) => {
                items.push(value);
                self.positions.entry(path).or_insert(position);
            }
            Some(Open { value: Value::Object(object), key, .. }) => match key.take() {
                Some(key) => {
                    object.insert(key, value);
                }
                None => return Err(problem(position, "an alias cannot be a key")),
            },
            Some(_) => {}
        }
        Ok(())
    }

    fn count(&mut self, n_values: usize, position: Position) -> Result<(), JsonProblem> {
        self.n_values += n_values;
        match self.n_values > MAX_VALUES {
            true => Err(problem(position, format!("the file has more than {MAX_VALUES} values"))),
            false => Ok(()),
        }
    }
}

/// A scalar without quotes, by the rules of the core schema. `yes`, `on` and `0x1F` of YAML 1.1 are texts.
fn plain_scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_numeric = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && unsigned.chars().all(|letter| letter.is_ascii_digit() || ".eE+-".contains(letter));
    // A mode such as 0777 is no decimal number, and has no other meaning in a job file.
    let is_octal =
        unsigned.len() > 1 && unsigned.starts_with('0') && unsigned.bytes().all(|byte| byte.is_ascii_digit());
    let number = (is_numeric && !is_octal).then(|| {
        let integer = text.parse::<i64>().ok().map(Number::from);
        integer.or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64))
    });
    number.flatten().map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn problem(position: Position, problem: impl Into<Cow<'static, str>>) -> JsonProblem {
    JsonProblem { line: position.line, column: position.column, field: None, problem: problem.into().into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_test_support::rng::SplitMix64;
    use serde_json::json;

    const JOB: &str = "\
# A job.
properties:
  nodeCount: 2
  horovodSettings:
    commandLineArgs: >-
      --epochs 3
      --rate 0.1
  stdOutErrPathPrefix: $AZ_BATCHAI_JOB_MOUNT_ROOT/work
  environmentVariables:
    - name: A
      value: 'yes'
    - {name: B, value: \"4\"}
";

    #[test]
    fn a_document_has_values_and_positions() {
        let document = parse(JOB).expect("valid");
        assert_eq!(
            document.value,
            json!({"properties": {
                "nodeCount": 2,
                "horovodSettings": {"commandLineArgs": "--epochs 3 --rate 0.1"},
                "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/work",
                "environmentVariables": [{"name": "A", "value": "yes"}, {"name": "B", "value": "4"}]
            }})
        );
        let at = |path: &str| document.positions.find(path).map(|position| (position.line, position.column));
        assert_eq!(at("properties.nodeCount"), Some((3, 3)));
        assert_eq!(at("properties.environmentVariables[0].value"), Some((11, 7)));
        assert_eq!(at("properties.environmentVariables[1]"), Some((12, 7)));
        assert_eq!(at("properties.environmentVariables[1].name"), Some((12, 8)));
        // Missing fields are found at their object.
        assert_eq!(at("properties.horovodSettings.pythonScriptFilePath"), Some((4, 3)));
        assert_eq!(at("properties.constraints"), Some((2, 1)));
        assert_eq!(at("other"), None);
    }

    #[test]
    fn json_is_read_as_yaml() {
        let text = "{\n\t\"a\": [1, {\"b\": \"x\\u00e4\"}],\n\t\"c\": -1.5e3\n}";
        let document = parse(text).expect("valid");
        assert_eq!(document.value, serde_json::from_str::<Value>(text).expect("valid"));
        assert_eq!(document.positions.find("a[1].b"), Some(Position { line: 2, column: 12 }));
    }

    #[test]
    fn scalars_follow_the_core_schema() {
        let text = "[~, null, true, False, yes, on, 12, -3, 0.5, 1e3, 0777, 1.2.3, P7D, 1:30, '5', !!str 5, +, e5]";
        assert_eq!(
            parse(text).expect("valid").value,
            json!([
                null, null, true, false, "yes", "on", 12, -3, 0.5, 1000.0, "0777", "1.2.3", "P7D", "1:30", "5", "5",
                "+", "e5"
            ])
        );
    }

    #[test]
    fn aliases_repeat_values_within_bounds() {
        let document = parse("a: &x [1, 2]\nb: *x\nc: &y z\nd: *y\n").expect("valid");
        assert_eq!(document.value, json!({"a": [1, 2], "b": [1, 2], "c": "z", "d": "z"}));
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let below = format!("*a{}, ", level - 1).repeat(10);
            bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
        }
        let error = parse(&bomb).expect_err("too large");
        assert_eq!(error.problem, "the file has more than 100000 values");
    }

    #[test]
    fn problems_have_positions() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse(text).expect_err(text).to_string(), expected, "{text:?}");
        };
        check("a: 1\nb: 2\na: 3\n", "line 3, column 1: the key 'a' is there twice");
        check("a: 1\n---\nb: 2\n", "line 2, column 1: a second document begins: use one file for each");
        check("? [a]\n: 1\n", "line 1, column 3: a list or an object cannot be a key");
        check(
            "a: &x {b: 1}\nc:\n  <<: *x\n",
            "line 3, column 3: merge keys (<<) are not part of YAML 1.2: write the fields out",
        );
        let text = parse("a:\n\t- b\n").expect_err("a tab").to_string();
        assert!(text.starts_with("line 2, column ") && text.contains("not valid YAML: "), "{text}");
        assert!(parse(&"[".repeat(10_000)).is_err());
        assert_eq!(parse("").expect("empty").value, Value::Null);
    }

    #[test]
    fn damaged_texts_never_panic() {
        for seed in 0..3000 {
            let mut rng = SplitMix64::new(seed);
            let mut text: Vec<char> = JOB.chars().collect();
            for _ in 0..=rng.below(4) {
                let at = rng.index(text.len());
                match rng.below(3) {
                    0 if text.len() > 1 => drop(text.remove(at)),
                    1 => text.truncate(at.max(1)),
                    _ => text.insert(at, ['*', '&', '{', '[', '\t', ':', '-', '|', '\u{85}', '"'][rng.index(10)]),
                }
            }
            let text: String = text.into_iter().collect();
            let parsed = std::panic::catch_unwind(|| parse(&text).is_ok());
            assert!(parsed.is_ok(), "seed {seed}: {text:?}");
        }
    }
}
