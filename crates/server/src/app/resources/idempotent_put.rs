//! Idempotent PUT of an existing resource: the same content changes nothing, different content is a conflict whose
//! error names the first field that differs.

use corro_model::ApiError;
use serde::Serialize;
use serde_json::Value;

/// Result of a PUT.
pub enum Put<T> {
    /// Accepted: the operation's id and the location to poll it at.
    Begun { operation: String, location: String },
    /// The resource existed with the same content.
    Unchanged(Box<T>),
}

/// Conflict error that names the first field in which `new` differs from `old`. Both have their defaults filled in and
/// their secrets removed; if they are equal, a secret must differ.
pub fn put_conflict<T: Serialize>(what: &str, name: &str, new: &T, old: &T, way_out: &str) -> ApiError {
    let [new, old] = [new, old].map(|spec| serde_json::to_value(spec).expect("specifications are plain data"));
    let field = first_difference("properties", &new, &old);
    let field_words = field.as_deref().unwrap_or("the value of a secret");
    let message = format!("A {what} {name} already exists and {field_words} differs: {way_out}");
    // `file server` becomes `FileServerAlreadyExists`.
    let words = what.split(' ').map(|word| word[..1].to_uppercase() + &word[1..]);
    let code = words.chain(["AlreadyExists".to_owned()]).collect::<String>();
    let error = ApiError::conflict(&code, message);
    match field {
        Some(field) => error.about(field),
        None => error,
    }
}

/// Whether two specifications are equal, secrets aside.
pub fn is_same_spec<T: Serialize>(new: &T, old: &T) -> bool {
    let [new, old] = [new, old].map(|spec| serde_json::to_value(spec).expect("specifications are plain data"));
    new == old
}

fn first_difference(path: &str, new: &Value, old: &Value) -> Option<String> {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            let keys = new.keys().chain(old.keys().filter(|key| !new.contains_key(*key)));
            let at = |key: &String| {
                let (new, old) = (new.get(key).unwrap_or(&Value::Null), old.get(key).unwrap_or(&Value::Null));
                first_difference(&format!("{path}.{key}"), new, old)
            };
            keys.into_iter().find_map(at)
        }
        (Value::Array(new), Value::Array(old)) if new.len() == old.len() => {
            let pairs = new.iter().zip(old).enumerate();
            pairs.into_iter().find_map(|(i, (new, old))| first_difference(&format!("{path}[{i}]"), new, old))
        }
        (new, old) => (new != old).then(|| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_difference_is_named() {
        let check = |new: Value, old: Value, field: Option<&str>| {
            assert_eq!(first_difference("p", &new, &old).as_deref(), field, "{new} {old}");
        };
        check(json!({"a": 1}), json!({"a": 1}), None);
        check(json!({"a": 1, "b": {"c": 2}}), json!({"a": 1, "b": {"c": 3}}), Some("p.b.c"));
        check(json!({"a": 1}), json!({"a": 1, "b": 2}), Some("p.b"));
        check(json!([{"x": 1}, {"x": 2}]), json!([{"x": 1}, {"x": 3}]), Some("p[1].x"));
        check(json!([1]), json!([1, 2]), Some("p"));
    }

    #[test]
    fn the_conflict_has_a_code_a_field_and_a_hint() {
        let error = put_conflict("file server", "f", &json!({"a": 1}), &json!({"a": 2}), "delete it first");
        assert_eq!((error.status, error.code.as_str()), (409, "FileServerAlreadyExists"));
        assert_eq!(error.target.as_deref(), Some("properties.a"));
        assert_eq!(error.message, "A file server f already exists and properties.a differs: delete it first");
        let error = put_conflict("job", "j", &json!({"a": 1}), &json!({"a": 1}), "delete it first");
        assert_eq!(error.message, "A job j already exists and the value of a secret differs: delete it first");
    }
}
