//! Conformance of the REST interface to the service's OpenAPI document: every example of it, and rules that a schema cannot
//! express. `conformance/README.md` names the sources of the data.

mod harness;

#[path = "conformance/examples.rs"]
mod examples;
#[path = "conformance/fixture.rs"]
mod fixture;
#[path = "conformance/paging.rs"]
mod paging;
#[path = "conformance/quotas.rs"]
mod quotas;
#[path = "conformance/rules.rs"]
mod rules;
#[path = "conformance/toolkits.rs"]
mod toolkits;
#[path = "conformance/validator.rs"]
mod validator;
