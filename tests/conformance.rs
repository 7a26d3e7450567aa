//! The service's interface, held to its own document: every example of it, and the rules that the document cannot say.
//! `conformance/README.md` tells where the data comes from.

mod harness;

#[path = "conformance/catches.rs"]
mod catches;
#[path = "conformance/examples.rs"]
mod examples;
#[path = "conformance/paging.rs"]
mod paging;
#[path = "conformance/place.rs"]
mod place;
#[path = "conformance/quotas.rs"]
mod quotas;
#[path = "conformance/rules.rs"]
mod rules;
#[path = "conformance/toolkits.rs"]
mod toolkits;
