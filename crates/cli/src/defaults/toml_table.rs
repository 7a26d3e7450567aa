//! Typed reading of TOML tables. A mistake (wrong type, unknown key, value out of range) is reported with line, column and key, the first one in the
//! file before the others. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use corro_model::spelling::most_similar;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A mistake in a TOML text.
#[derive(Debug, PartialEq, Eq)]
pub struct TomlProblem {
    /// Byte offset in the text.
    at: usize,
    /// Full key, such as `submit.nodes`; empty for a mistake in the syntax.
    key: String,
    problem: String,
}

impl TomlProblem {
    fn new(span: Range<usize>, key: impl Into<String>, problem: impl Into<String>) -> TomlProblem {
        TomlProblem { at: span.start, key: key.into(), problem: problem.into() }
    }

    /// The mistake with its place in `text`.
    pub fn describe(&self, text: &str) -> String {
        let before = text.get(..self.at.min(text.len())).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let key = if self.key.is_empty() { String::new() } else { format!(", key '{}'", self.key) };
        format!("line {line}, column {column}{key}: {}", self.problem)
    }
}

/// Parses a text; `read` reads the top-level table.
pub fn parse<T>(text: &str, read: impl FnOnce(TableReader<'_>) -> Result<T, TomlProblem>) -> Result<T, TomlProblem> {
    let root = DeTable::parse(text).map_err(|error| {
        TomlProblem::new(error.span().unwrap_or_default(), "", format!("not valid TOML: {}", error.message()))
    })?;
    read(TableReader { table: root.get_ref(), prefix: String::new(), known: Vec::new() })
}

/// Reads one table key by key and remembers the keys it was asked for.
pub struct TableReader<'a> {
    table: &'a DeTable<'a>,
    /// `submit.` for keys of the table `[submit]`.
    prefix: String,
    known: Vec<&'static str>,
}

impl<'a> TableReader<'a> {
    /// A text that is not empty.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, TomlProblem> {
        self.value(key).map(|value| text(value, &self.full(key))).transpose()
    }

    /// A whole number of at least `min`.
    pub fn count(&mut self, key: &'static str, min: u32) -> Result<Option<u32>, TomlProblem> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let problem = |text: String| TomlProblem::new(value.span(), self.full(key), text);
        let DeValue::Integer(number) = value.get_ref() else {
            return Err(problem(format!("expected a whole number, found {}", type_name(value.get_ref()))));
        };
        match i64::from_str_radix(number.as_str(), number.radix()).map(u32::try_from) {
            Ok(Ok(number)) if number >= min => Ok(Some(number)),
            _ => Err(problem(format!("{number} is out of range: use a whole number from {min} to {}", u32::MAX))),
        }
    }

    /// One of several words.
    pub fn one_of<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Result<Option<T>, TomlProblem> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let given = text(value, &self.full(key))?;
        match words.iter().find(|(word, _)| *word == given) {
            Some((_, meaning)) => Ok(Some(*meaning)),
            None => {
                let words: Vec<String> = words.iter().map(|(word, _)| format!("'{word}'")).collect();
                let problem = format!("'{given}' is none of {}", words.join(", "));
                Err(TomlProblem::new(value.span(), self.full(key), problem))
            }
        }
    }

    /// A list of texts, or one text as a list of one.
    pub fn texts(&mut self, key: &'static str) -> Result<Vec<String>, TomlProblem> {
        let full = self.full(key);
        match self.value(key) {
            None => Ok(Vec::new()),
            Some(value) => match value.get_ref() {
                DeValue::Array(items) => items.iter().map(|item| text(item, &full)).collect(),
                DeValue::String(_) => Ok(vec![text(value, &full)?]),
                other => {
                    let problem = format!("expected a list of texts, found {}", type_name(other));
                    Err(TomlProblem::new(value.span(), full, problem))
                }
            },
        }
    }

    /// A table of texts, which may be empty.
    pub fn texts_by_name(&mut self, key: &'static str) -> Result<BTreeMap<String, String>, TomlProblem> {
        let full = self.full(key);
        let Some(table) = self.value(key).map(|value| as_table(value, &full)).transpose()?.flatten() else {
            return Ok(BTreeMap::new());
        };
        let entry = |(name, value): (&Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let name: &std::borrow::Cow<'_, str> = name.get_ref();
            match value.get_ref() {
                DeValue::String(text) => Ok((name.to_string(), text.to_string())),
                other => Err(not_a_text(value, &format!("{full}.{name}"), other)),
            }
        };
        table.iter().map(entry).collect()
    }

    /// The table `[key]`, read by `read`.
    pub fn table<T: Default>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(TableReader<'a>) -> Result<T, TomlProblem>,
    ) -> Result<T, TomlProblem> {
        let full = self.full(key);
        match self.value(key).map(|value| as_table(value, &full)).transpose()?.flatten() {
            None => Ok(T::default()),
            Some(table) => read(TableReader { table, prefix: format!("{full}."), known: Vec::new() }),
        }
    }

    /// Fails if the table has a key that was not read.
    pub fn finish(self) -> Result<(), TomlProblem> {
        let unknown = self.table.keys().filter(|key| !self.known.contains(&key.get_ref().as_ref()));
        let Some(key) = unknown.min_by_key(|key| key.span().start) else { return Ok(()) };
        let problem = match most_similar(key.get_ref(), self.known.iter().copied()) {
            Some(similar) => format!("no such key; did you mean '{similar}'?"),
            None => format!("no such key: use {}", self.known.join(", ")),
        };
        Err(TomlProblem::new(key.span(), format!("{}{}", self.prefix, key.get_ref()), problem))
    }

    fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.push(key);
        self.table.get(key)
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }
}

fn as_table<'a>(value: &'a Spanned<DeValue<'a>>, key: &str) -> Result<Option<&'a DeTable<'a>>, TomlProblem> {
    match value.get_ref() {
        DeValue::Table(table) => Ok(Some(table)),
        other => Err(TomlProblem::new(value.span(), key, format!("expected a table, found {}", type_name(other)))),
    }
}

fn text(value: &Spanned<DeValue<'_>>, key: &str) -> Result<String, TomlProblem> {
    match value.get_ref() {
        DeValue::String(text) if text.trim().is_empty() => {
            Err(TomlProblem::new(value.span(), key, "the text is empty: give a value, or remove the key"))
        }
        DeValue::String(text) => Ok(text.to_string()),
        other => Err(not_a_text(value, key, other)),
    }
}

fn not_a_text(value: &Spanned<DeValue<'_>>, key: &str, found: &DeValue<'_>) -> TomlProblem {
    let advice = match found {
        DeValue::Array(_) | DeValue::Table(_) => "",
        _ => ": write it in quotes",
    };
    TomlProblem::new(value.span(), key, format!("expected a text, found {}{advice}", type_name(found)))
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "a truth value",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
