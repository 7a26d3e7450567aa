//! The schema has exactly the fields of the types that read a job file.

use std::collections::BTreeSet;
use std::fmt;

use corro_model::batchai::JobCreateParameters;
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

/// Deserializer that gives every type a value and records the paths of the fields for which it is asked.
struct FieldRecorder<'a> {
    path: String,
    fields: &'a mut BTreeSet<String>,
}

#[derive(Debug)]
struct RecordError(String);

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RecordError {}

impl de::Error for RecordError {
    fn custom<T: fmt::Display>(text: T) -> RecordError {
        RecordError(text.to_string())
    }
}

impl<'de> Deserializer<'de> for FieldRecorder<'_> {
    type Error = RecordError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RecordError> {
        // A duration, and any other text.
        visitor.visit_str("P1D")
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RecordError> {
        visitor.visit_i32(1)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RecordError> {
        visitor.visit_u32(1)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RecordError> {
        visitor.visit_bool(true)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RecordError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, RecordError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, RecordError> {
        visitor.visit_map(Fields { recorder: self, remaining: fields, current: "" })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, RecordError> {
        visitor.visit_seq(OneItem(Some(self)))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, RecordError> {
        visitor.visit_enum(StrDeserializer::new(variants[0]))
    }

    forward_to_deserialize_any! {
        i8 i16 i64 u8 u16 u64 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct map
        identifier ignored_any
    }
}

struct Fields<'a> {
    recorder: FieldRecorder<'a>,
    remaining: &'static [&'static str],
    current: &'static str,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = RecordError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, RecordError> {
        let Some((first, remaining)) = self.remaining.split_first() else { return Ok(None) };
        (self.current, self.remaining) = (first, remaining);
        seed.deserialize(StrDeserializer::new(first)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, RecordError> {
        let path = format!("{}.{}", self.recorder.path, self.current);
        self.recorder.fields.insert(path.clone());
        seed.deserialize(FieldRecorder { path, fields: self.recorder.fields })
    }
}

struct OneItem<'a>(Option<FieldRecorder<'a>>);

impl<'de> SeqAccess<'de> for OneItem<'_> {
    type Error = RecordError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, RecordError> {
        self.0.take().map(|recorder| seed.deserialize(recorder)).transpose()
    }
}

fn fields_of_type<T: DeserializeOwned>() -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    T::deserialize(FieldRecorder { path: String::new(), fields: &mut fields })
        .map(drop)
        .expect("every type gets a value");
    fields
}

/// Collects the paths of the properties of `part`, following references.
fn fields_of_schema(schema: &Value, part: &Value, path: &str, fields: &mut BTreeSet<String>) {
    if let Some(name) = part["$ref"].as_str() {
        let name = name.strip_prefix("#/definitions/").expect("a definition");
        fields_of_schema(schema, &schema["definitions"][name], path, fields);
    }
    for part in part["allOf"].as_array().into_iter().flatten() {
        fields_of_schema(schema, part, path, fields);
    }
    if part["items"].is_object() {
        fields_of_schema(schema, &part["items"], path, fields);
    }
    for (name, part) in part["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        fields_of_schema(schema, part, &path, fields);
        fields.insert(path);
    }
}

#[test]
fn the_schema_has_the_fields_of_the_types() {
    let schema: Value = serde_json::from_str(corro_docs::JOB_SCHEMA).expect("JSON");
    let mut described = BTreeSet::new();
    fields_of_schema(&schema, &schema, "", &mut described);
    assert!(described.remove(".$schema"));
    let read = fields_of_type::<JobCreateParameters>();
    assert!(read.contains(".properties.outputDirectories.pathPrefix"), "{read:?}");
    let differing: Vec<_> = described.symmetric_difference(&read).collect();
    assert!(differing.is_empty(), "only in the schema or only in the types: {differing:?}");
}

#[test]
fn required_fields_are_those_without_a_default() {
    let schema: Value = serde_json::from_str(corro_docs::JOB_SCHEMA).expect("JSON");
    assert_eq!(schema["definitions"]["job"]["required"], serde_json::json!(["nodeCount", "stdOutErrPathPrefix"]));
    let smallest = serde_json::json!({"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "p"}});
    assert!(serde_json::from_value::<JobCreateParameters>(smallest).is_ok());
}
