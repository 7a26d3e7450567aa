//! Response checks against the service's OpenAPI document: finds the operation of a request and validates the response.
//! `Site::arm` applies it to every response; requests outside the document (groups, storage, polling) are ignored.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::http::Response;
use super::schema::{Direction, Schemas};

pub struct Swagger {
    document: Value,
}

/// One operation of the document.
#[derive(Clone, Copy)]
pub struct Operation<'a> {
    pub id: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub value: &'a Value,
}

pub fn document() -> &'static Swagger {
    static DOCUMENT: OnceLock<Swagger> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let text = include_str!("../conformance/data/batchai-2018-05-01.json");
        Swagger { document: serde_json::from_str(text).expect("JSON") }
    })
}

impl Swagger {
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        let paths = self.document["paths"].as_object().expect("an object").iter();
        paths.flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("an object").iter();
            methods.map(move |(method, value)| {
                let id = value["operationId"].as_str().expect("every operation has an id");
                Operation { id, method, path, value }
            })
        })
    }

    pub fn schemas(&self) -> Schemas<'_> {
        Schemas { definitions: self.definitions() }
    }

    fn definitions(&self) -> &Map<String, Value> {
        self.document["definitions"].as_object().expect("an object")
    }

    /// The operation of `method path`; fixed segments match in any case.
    pub fn find(&self, method: &str, path: &str) -> Option<Operation<'_>> {
        self.operations()
            .find(|operation| operation.method.eq_ignore_ascii_case(method) && matches(operation.path, path))
    }

    /// All violations of the document in the response to `operation`.
    pub fn violations(&self, operation: Operation<'_>, response: &Response) -> Vec<String> {
        let responses = &operation.value["responses"];
        if let Some(declared) = responses.get(response.status.to_string()) {
            let mut found = match declared.get("schema") {
                Some(schema) => self.body_violations(schema, response),
                None if response.body.is_empty() => Vec::new(),
                None => vec![format!("a body, where {} has none", response.status)],
            };
            if response.status == 202 {
                found.extend(poll_problems(response));
            }
            return found;
        }
        if response.status < 400 {
            return vec![format!("the status {} is not one of the document's", response.status)];
        }
        // The first two operations declare no errors; theirs have the same form.
        let mut found = self.body_violations(&serde_json::json!({"$ref": "#/definitions/CloudError"}), response);
        for field in ["code", "message"] {
            if response.json()["error"][field].as_str().is_none_or(str::is_empty) {
                found.push(format!("$.error.{field}: missing or empty"));
            }
        }
        found
    }

    fn body_violations(&self, schema: &Value, response: &Response) -> Vec<String> {
        let kind = response.header("content-type").unwrap_or_default();
        if kind != "application/json; charset=utf-8" {
            return vec![format!("the content type is '{kind}'")];
        }
        match serde_json::from_slice(&response.body) {
            Ok(body) => self.schemas().violations(schema, &body, Direction::Response),
            Err(error) => vec![format!("the body is no JSON: {error}")],
        }
    }

    /// Fails the test when the response violates the document.
    #[track_caller]
    pub fn assert_conforms(&self, method: &str, target: &str, response: &Response) {
        let path = target.split('?').next().expect("a path");
        let Some(operation) = self.find(method, path) else { return };
        let found = self.violations(operation, response);
        assert!(found.is_empty(), "{} breaks the document:\n{}\n\n{response}", operation.id, found.join("\n"));
    }
}

/// A long-running response has two absolute URLs and a delay in whole seconds.
fn poll_problems(response: &Response) -> Vec<String> {
    let mut found = Vec::new();
    for name in ["azure-asyncoperation", "location"] {
        if !response.header(name).is_some_and(|url| url.starts_with("http://") || url.starts_with("https://")) {
            found.push(format!("no absolute URL in {name}"));
        }
    }
    if response.header("retry-after").and_then(|pause| pause.parse::<u32>().ok()).is_none() {
        found.push("no whole number in retry-after".to_owned());
    }
    found
}

fn matches(template: &str, path: &str) -> bool {
    let mut given = path.trim_end_matches('/').split('/');
    let same = template.split('/').all(|segment| {
        given.next().is_some_and(|given| segment.starts_with('{') || segment.eq_ignore_ascii_case(given))
    });
    same && given.next().is_none()
}
