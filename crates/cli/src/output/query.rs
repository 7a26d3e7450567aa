//! `--query`: a JMESPath expression, validated before the first request and applied to the printed object before it is formatted.

mod numbers;

use jmespath::JmespathError;
use jmespath::ast::Ast;
use serde_json::Value;
use thiserror::Error;

/// A valid expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    // The compiled form is not `Send`; compiling again costs microseconds.
    source: String,
}

/// An invalid query. The message is that of `az`; `position` has the details.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum QueryError {
    #[error("argument --query: invalid jmespath_type value: '{query}'")]
    Invalid { query: String, position: String },
    #[error("argument --query: cannot apply '{query}' to this result")]
    Unusable { query: String, position: String },
}

impl QueryError {
    /// Line, column and reason, with the expression and a `^` below the column.
    pub fn position(&self) -> &str {
        match self {
            QueryError::Invalid { position, .. } | QueryError::Unusable { position, .. } => position,
        }
    }
}

impl Query {
    pub fn parse(source: &str) -> Result<Query, QueryError> {
        let quoted = with_quoted_literals(source);
        jmespath::compile(&quoted)
            .map(|_| Query { source: quoted.clone() })
            .map_err(|error| QueryError::Invalid { query: source.to_owned(), position: describe(&error) })
    }

    pub fn apply(&self, value: &Value) -> Result<Value, QueryError> {
        let unusable =
            |error: JmespathError| QueryError::Unusable { query: self.source.clone(), position: describe(&error) };
        let runtime = numbers::runtime();
        let expression = runtime.compile(&self.source).map_err(unusable)?;
        let found = expression.search(value).map_err(unusable)?;
        serde_json::to_value(&*found).map_err(|error| unusable(error.into()))
    }

    /// Keys of the last `{a: …, b: …}` of the expression, in its order, which tables keep.
    pub fn key_order(&self) -> Vec<String> {
        jmespath::parse(&self.source).map(|ast| multi_hash_keys(&ast)).unwrap_or_default()
    }
}

/// Quotes string literals such as ``state == `failed` ``. Azure's documents write them without quotes and `az` accepts that; the JMESPath standard
/// requires JSON between backticks.
fn with_quoted_literals(source: &str) -> String {
    let mut parts = source.split('`');
    let mut text = parts.next().unwrap_or_default().to_owned();
    while let Some(literal) = parts.next() {
        let is_json = serde_json::from_str::<Value>(literal).is_ok();
        let literal = if is_json { literal.to_owned() } else { Value::from(literal).to_string() };
        text.push_str(&format!("`{literal}`"));
        match parts.next() {
            Some(rest) => text.push_str(rest),
            // Unbalanced backticks: let the parser report the original text.
            None => return source.to_owned(),
        }
    }
    text
}

fn multi_hash_keys(ast: &Ast) -> Vec<String> {
    match ast {
        Ast::MultiHash { elements, .. } => elements.iter().map(|pair| pair.key.clone()).collect(),
        Ast::Projection { lhs, rhs, .. } | Ast::Subexpr { lhs, rhs, .. } => match multi_hash_keys(rhs) {
            keys if keys.is_empty() => multi_hash_keys(lhs),
            keys => keys,
        },
        Ast::Flatten { node, .. } => multi_hash_keys(node),
        Ast::Condition { then, .. } => multi_hash_keys(then),
        Ast::Function { args, .. } => {
            args.iter().map(multi_hash_keys).find(|keys| !keys.is_empty()).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

fn describe(error: &JmespathError) -> String {
    format!(
        "line {}, column {}: {}\n  {}\n  {}^",
        error.line + 1,
        error.column + 1,
        error.reason,
        error.expression.lines().nth(error.line).unwrap_or_default(),
        " ".repeat(error.column)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_literals_need_no_quotes() {
        let check = |query: &str, expected: &str| assert_eq!(with_quoted_literals(query), expected);
        check("[?a==`failed`].b", "[?a==`\"failed\"`].b");
        check("[?a==`1`]", "[?a==`1`]");
        check("[?a==`\"x\"` && b==`y z`]", "[?a==`\"x\"` && b==`\"y z\"`]");
        check("a.b", "a.b");
        check("[?a==`x]", "[?a==`x]");
    }
    use serde_json::json;

    fn check(query: &str, value: Value, expected: Value) {
        let found = Query::parse(query).and_then(|query| query.apply(&value)).expect(query);
        assert_eq!(found.to_string(), expected.to_string(), "{query}");
    }

    #[test]
    fn queries_of_the_tutorial_and_the_usual_ones() {
        check("executionState", json!({"executionState": "running"}), json!("running"));
        check("nodeStateCounts", json!({"nodeStateCounts": {"b": 1, "a": 0}}), json!({"a": 0, "b": 1}));
        check("[].name", json!([{"name": "x"}, {"name": "y"}]), json!(["x", "y"]));
        check("length(@)", json!([1, 2, 3]), json!(3));
        check("[?size > `10`].name | [0]", json!([{"name": "x", "size": 5}, {"name": "y", "size": 50}]), json!("y"));
        check("[0].port", json!([{"port": 50000.0}]), json!(50000.0));
        check("missing", json!({}), Value::Null);
    }

    #[test]
    fn an_invalid_query_has_a_position() {
        let error = Query::parse("foo[").expect_err("unfinished");
        assert_eq!(error.to_string(), "argument --query: invalid jmespath_type value: 'foo['");
        assert!(error.position().starts_with("line 1, column "), "{}", error.position());
        assert!(error.position().ends_with("^"), "{}", error.position());
    }

    #[test]
    fn a_query_that_does_not_fit_the_answer() {
        let error =
            Query::parse("length(name)").and_then(|query| query.apply(&json!({"name": 5}))).expect_err("a number");
        assert!(matches!(error, QueryError::Unusable { .. }), "{error}");
    }

    #[test]
    fn key_order() {
        let order = |query: &str| Query::parse(query).expect(query).key_order();
        assert_eq!(order("[].{Name: name, Age: age}"), ["Name", "Age"]);
        assert_eq!(order("value.{B: b, A: a}"), ["B", "A"]);
        assert_eq!(order("sort_by([].{Z: z, A: a}, &Z)"), ["Z", "A"]);
        assert!(order("[].name").is_empty());
    }
}
