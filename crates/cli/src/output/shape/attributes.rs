//! Attribute trees of the retired SDK (`shapes.json`), and the conversion of wire objects by them.
//!
//! A shape has `own` attributes, at the top level of the wire object, and `properties`, which the wire nests and the SDK
//! flattens. An attribute is `KIND [WIRE_NAME]`; the kinds are `value`, `time`, `duration`, `float`, `{shape}`
//! and `[shape]`. A `?` before the kind marks an attribute that Batch AI did not have: it is printed only if present, so
//! that all other output equals that of `az`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use corro_model::spelling::most_similar;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::output::python_time;

#[derive(Deserialize)]
pub struct Attributes {
    pub own: BTreeMap<String, String>,
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

pub static SHAPES: LazyLock<BTreeMap<String, Attributes>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../shapes.json")).expect("the embedded shapes are valid JSON"));

/// The object that `az` prints for a wire object.
pub fn convert(shape: &Attributes, wire: &Value) -> Value {
    let Value::Object(wire) = wire else { return wire.clone() };
    let mut printed = Map::new();
    convert_attributes(&shape.own, Some(wire), &mut printed);
    convert_attributes(&shape.properties, wire.get("properties").and_then(Value::as_object), &mut printed);
    Value::Object(printed)
}

fn convert_attributes(
    attributes: &BTreeMap<String, String>,
    wire: Option<&Map<String, Value>>,
    printed: &mut Map<String, Value>,
) {
    for (attribute, rule) in attributes {
        let (kind, wire_name) = rule.split_once(' ').unwrap_or((rule, attribute));
        let value = wire.and_then(|object| object.get(wire_name)).unwrap_or(&Value::Null);
        let kind = match kind.strip_prefix('?') {
            Some(_) if value.is_null() => continue,
            ours => ours.unwrap_or(kind),
        };
        printed.insert(attribute.clone(), convert_attribute(kind, value));
    }
}

fn convert_attribute(kind: &str, value: &Value) -> Value {
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("time", Value::String(text)) => python_time::date_time(text).into(),
        ("duration", Value::String(text)) => python_time::duration(text).into(),
        ("float", Value::Number(number)) => number.as_f64().into(),
        ("value", value) => value.clone(),
        (kind, Value::Object(_)) if kind.starts_with('{') => convert(nested(kind), value),
        (kind, Value::Array(items)) if kind.starts_with('[') => {
            items.iter().map(|item| convert(nested(kind), item)).collect()
        }
        (_, unexpected) => unexpected.clone(),
    }
}

fn nested(kind: &str) -> &'static Attributes {
    &SHAPES[&kind[1..kind.len() - 1]]
}

/// A field that a shape does not have.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// Path, such as `properties.nodeCont`.
    pub path: String,
    /// The field that was probably meant, if its object does not have it already.
    pub similar: Option<&'static str>,
}

/// Collects the fields of `wire` that `shape` does not have; `at` is the path so far.
pub fn find_unknown(shape: &'static Attributes, wire: &Value, at: &str, unknown: &mut Vec<UnknownField>) {
    let Value::Object(object) = wire else { return };
    for (key, value) in object {
        if key == "properties" && !shape.properties.is_empty() {
            if let Value::Object(wrapped) = value {
                for key in wrapped.keys() {
                    check_field(&shape.properties, wrapped, key, &format!("{at}properties.{key}"), unknown);
                }
            }
        } else {
            check_field(&shape.own, object, key, &format!("{at}{key}"), unknown);
        }
    }
}

fn check_field(
    attributes: &'static BTreeMap<String, String>,
    object: &Map<String, Value>,
    key: &str,
    path: &str,
    unknown: &mut Vec<UnknownField>,
) {
    let known = attributes.iter().map(|(attribute, rule)| {
        let (kind, wire_name) = rule.split_once(' ').unwrap_or((rule, attribute));
        (wire_name, kind.trim_start_matches('?'))
    });
    let rule = known.clone().find_map(|(name, kind)| (name == key).then_some(kind));
    match (rule, &object[key]) {
        (None, _) => {
            let absent = known.map(|(name, _)| name).filter(|name| !object.contains_key(*name));
            unknown.push(UnknownField { path: path.to_owned(), similar: most_similar(key, absent) });
        }
        (Some(kind), value @ Value::Object(_)) if kind.starts_with('{') => {
            find_unknown(nested(kind), value, &format!("{path}."), unknown);
        }
        (Some(kind), Value::Array(items)) if kind.starts_with('[') => {
            for (at, item) in items.iter().enumerate() {
                find_unknown(nested(kind), item, &format!("{path}[{at}]."), unknown);
            }
        }
        _ => {}
    }
}
