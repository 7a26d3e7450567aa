//! Tab-separated values as `az` prints them. Each element of a list is a line; inside a line a nested list is its length, a nested object is empty, and
//! null is `None`.

use serde_json::Value;

pub fn render(value: &Value, key_order: &[String]) -> String {
    match value {
        Value::Array(items) => items.iter().map(|item| line(item, key_order)).collect(),
        one => line(one, key_order),
    }
}

fn line(item: &Value, key_order: &[String]) -> String {
    let cells: Vec<String> = match item {
        Value::Array(items) => items.iter().map(cell).collect(),
        Value::Object(object) => {
            let ordered = key_order.iter().filter_map(|key| object.get(key));
            let others = object.iter().filter(|(key, _)| !key_order.contains(key)).map(|(_, value)| value);
            ordered.chain(others).map(cell).collect()
        }
        // `az` prints a single boolean in lower case, and Python's spelling among others.
        Value::Bool(flag) => vec![flag.to_string()],
        scalar => vec![cell(scalar)],
    };
    cells.join("\t") + "\n"
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.len().to_string(),
        Value::Object(_) => String::new(),
        Value::Number(number) => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: Value, expected: &str) {
        assert_eq!(render(&value, &[]), expected);
    }

    #[test]
    fn scalars_lists_and_objects() {
        check(json!("running"), "running\n");
        check(json!(true), "true\n");
        check(json!(["a", "b"]), "a\nb\n");
        check(json!([["a", 1, null, true], ["b", 2.5, [1, 2], {"x": 1}]]), "a\t1\tNone\tTrue\nb\t2.5\t2\t\n");
        check(json!({"b": 1, "a": "x"}), "x\t1\n");
        check(json!([]), "");
    }

    #[test]
    fn the_key_order_of_a_query_is_kept() {
        assert_eq!(render(&json!([{"b": 1, "a": 2}]), &["b".into(), "a".into()]), "1\t2\n");
    }
}
