//! Small validator of JSON against OpenAPI 2 schemas: types, formats, enumerations, required, references, `allOf`, maps and
//! read-only. A property that the schema does not declare is a violation, unless it is among [`EXTRAS`]. Independent of HTTP.

use serde_json::{Map, Value};

/// Direction of a value: read-only properties are allowed in responses only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Request,
    Response,
}

/// Properties we send that the document does not declare: their definition and name.
pub const EXTRAS: &[(&str, &str)] = &[
    // Always sent by the service, though not in its document.
    ("JobProperties", "experimentName"),
    // Ours: the reason why a queued job waits, pending preemption of a running one, and attempts that lost their nodes.
    ("JobProperties", "waitingFor"),
    ("JobProperties", "waiting"),
    ("JobProperties", "lostAttempts"),
    ("JobProperties", "givingWay"),
];

/// Values the service used that are missing in its enumerations.
const EXTRA_VALUES: &[(&str, &str)] = &[("ToolType", "pytorch")];

pub struct Schemas<'a> {
    /// The document's `definitions`.
    pub definitions: &'a Map<String, Value>,
}

impl Schemas<'_> {
    /// All violations of `schema` in `value`, as `path: what is wrong`.
    pub fn violations(&self, schema: &Value, value: &Value, direction: Direction) -> Vec<String> {
        let mut found = Vec::new();
        self.check(schema, value, &Location { path: "$".to_owned(), definition: String::new(), direction }, &mut found);
        found
    }

    fn check(&self, schema: &Value, value: &Value, location: &Location, found: &mut Vec<String>) {
        let (schema, location) = &self.resolve(schema, location);
        let mut wrong = |what: String| found.push(format!("{}: {what}", location.path));
        if value.is_null() {
            return wrong("null, where absent values are left out".to_owned());
        }
        if let Some(allowed) = schema.get("enum").and_then(Value::as_array) {
            let extra = EXTRA_VALUES.iter().any(|(name, extra)| location.definition == *name && value == extra);
            if !allowed.contains(value) && !extra {
                return wrong(format!("{value} is not one of {}", Value::from(allowed.clone())));
            }
        }
        match self.kind(schema) {
            "object" => match value {
                Value::Object(object) => self.check_object(schema, object, location, found),
                _ => wrong(format!("{value} is no object")),
            },
            "array" => match value {
                Value::Array(items) => {
                    let item_schema = schema.get("items").unwrap_or(&Value::Null);
                    for (i, item) in items.iter().enumerate() {
                        self.check(item_schema, item, &location.below(&format!("[{i}]")), found);
                    }
                }
                _ => wrong(format!("{value} is no array")),
            },
            "string" => match value.as_str() {
                Some(text) => {
                    found.extend(format_problem(schema, text).map(|what| format!("{}: {what}", location.path)))
                }
                None => wrong(format!("{value} is no string")),
            },
            "integer" => match value.as_i64() {
                Some(number) if !fits(schema, number) => wrong(format!("{number} is too large")),
                Some(_) => {}
                None => wrong(format!("{value} is no integer")),
            },
            "number" if !value.is_number() => wrong(format!("{value} is no number")),
            "boolean" if !value.is_boolean() => wrong(format!("{value} is no boolean")),
            _ => {}
        }
    }

    fn check_object(&self, schema: &Value, object: &Map<String, Value>, location: &Location, found: &mut Vec<String>) {
        let mut properties = Vec::new();
        let mut required = Vec::new();
        self.gather(schema, &mut properties, &mut required);
        for name in required.iter().filter(|name| !object.contains_key(**name)) {
            found.push(format!("{}: '{name}' is required", location.path));
        }
        let rest = schema.get("additionalProperties").filter(|rest| rest.is_object());
        for (name, value) in object {
            let below = location.below(&format!(".{name}"));
            match (properties.iter().find(|(known, _)| known == name), rest) {
                (Some((_, property)), _) => {
                    if location.direction == Direction::Request && property.get("readOnly") == Some(&Value::Bool(true))
                    {
                        found.push(format!("{}: read-only, and given in a request", below.path));
                    }
                    self.check(property, value, &below, found);
                }
                (None, Some(rest)) => self.check(rest, value, &below, found),
                // An object schema without any declared content allows everything.
                (None, None) if properties.is_empty() && location.definition.is_empty() => {}
                (None, None) if EXTRAS.contains(&(location.definition.as_str(), name)) => {}
                (None, None) => found.push(format!("{}: not in the document", below.path)),
            }
        }
    }

    /// Collects the properties of a schema and of all schemas it includes.
    fn gather<'s>(
        &'s self,
        schema: &'s Value,
        properties: &mut Vec<(&'s str, &'s Value)>,
        required: &mut Vec<&'s str>,
    ) {
        let schema = self.definition(schema).map_or(schema, |(_, schema)| schema);
        let own = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        properties.extend(own.map(|(name, property)| (name.as_str(), property)));
        required
            .extend(schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str));
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.gather(part, properties, required);
        }
    }

    fn kind<'s>(&self, schema: &'s Value) -> &'s str {
        let said = schema.get("type").and_then(Value::as_str);
        let holds = ["properties", "allOf", "additionalProperties"].iter().any(|key| schema.get(key).is_some());
        said.unwrap_or(if holds { "object" } else { "" })
    }

    fn resolve<'s>(&'s self, schema: &'s Value, location: &Location) -> (&'s Value, Location) {
        match self.definition(schema) {
            Some((name, schema)) => (schema, Location { definition: name.to_owned(), ..location.clone() }),
            None => (schema, location.clone()),
        }
    }

    fn definition<'s>(&'s self, schema: &'s Value) -> Option<(&'s str, &'s Value)> {
        let name = schema.get("$ref")?.as_str()?.strip_prefix("#/definitions/")?;
        Some((name, self.definitions.get(name).unwrap_or_else(|| panic!("no definition {name}"))))
    }
}

#[derive(Clone)]
struct Location {
    path: String,
    /// The definition that declares these properties; empty inside an anonymous schema.
    definition: String,
    direction: Direction,
}

impl Location {
    fn below(&self, step: &str) -> Location {
        Location { path: format!("{}{step}", self.path), definition: String::new(), direction: self.direction }
    }
}

fn fits(schema: &Value, number: i64) -> bool {
    schema.get("format").and_then(Value::as_str) != Some("int32") || i32::try_from(number).is_ok()
}

fn format_problem(schema: &Value, text: &str) -> Option<String> {
    let good = match schema.get("format").and_then(Value::as_str) {
        Some("date-time") => is_service_time(text),
        Some("duration") => text.starts_with('P') && corro_model::time::Span::parse(text).is_some(),
        _ => true,
    };
    (!good).then(|| format!("'{text}' is not a {}", schema["format"].as_str().unwrap_or_default()))
}

/// `2018-06-07T21:16:21.13Z`: UTC, at most milliseconds, no trailing zeros.
fn is_service_time(text: &str) -> bool {
    corro_model::Timestamp::parse(text).is_some_and(|time| time.to_string() == text)
}
