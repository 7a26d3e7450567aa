//! JSON as `az` prints it: sorted keys, two spaces of indentation, non-ASCII characters kept; with colours for `jsonc`.

use serde_json::Value;

const RESET: &str = "\x1b[0m";
const KEY: &str = "\x1b[34m";
const STRING: &str = "\x1b[32m";
const NUMBER: &str = "\x1b[36m";
const LITERAL: &str = "\x1b[35m";

pub fn render(value: &Value, colour: bool) -> String {
    let mut text = if colour {
        let mut text = String::new();
        write_coloured(value, 0, &mut text);
        text
    } else {
        // `Map` is a sorted tree. `{:#}` is serde's pretty form with two spaces.
        format!("{value:#}")
    };
    text.push('\n');
    text
}

fn write_coloured(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth + 1);
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push_str("[\n");
            for (at, item) in items.iter().enumerate() {
                out.push_str(&indent);
                write_coloured(item, depth + 1, out);
                out.push_str(if at + 1 < items.len() { ",\n" } else { "\n" });
            }
            out.push_str(&indent[2..]);
            out.push(']');
        }
        Value::Object(object) if !object.is_empty() => {
            out.push_str("{\n");
            for (at, (key, item)) in object.iter().enumerate() {
                let key = Value::from(key.as_str());
                out.push_str(&format!("{indent}{KEY}{key}{RESET}: "));
                write_coloured(item, depth + 1, out);
                out.push_str(if at + 1 < object.len() { ",\n" } else { "\n" });
            }
            out.push_str(&indent[2..]);
            out.push('}');
        }
        Value::String(_) => out.push_str(&format!("{STRING}{value}{RESET}")),
        Value::Number(_) => out.push_str(&format!("{NUMBER}{value}{RESET}")),
        Value::Bool(_) | Value::Null => out.push_str(&format!("{LITERAL}{value}{RESET}")),
        empty => out.push_str(&empty.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_sorted() {
        let value = json!({"b": [], "a": {"x": null, "é": "ñ"}, "c": [1, 50000.0], "d": {}});
        assert_eq!(
            render(&value, false),
            "{\n  \"a\": {\n    \"x\": null,\n    \"é\": \"ñ\"\n  },\n  \"b\": [],\n  \"c\": [\n    1,\n    50000.0\n  ],\n  \"d\": {}\n}\n"
        );
        assert_eq!(render(&json!("running"), false), "\"running\"\n");
    }

    #[test]
    fn colours_change_nothing_else() {
        let value = json!({"b": [], "a": {"x": null, "y": ["z", true, 1]}, "d": {}});
        let mut stripped = render(&value, true);
        for code in [RESET, KEY, STRING, NUMBER, LITERAL] {
            stripped = stripped.replace(code, "");
        }
        assert_eq!(stripped, render(&value, false));
    }
}
