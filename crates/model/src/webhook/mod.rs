//! Where webhooks may go: URLs that a job may name, and addresses that a server may connect to. Pure.

mod addresses;
mod url;

pub use addresses::{AddressRange, AddressRules, NotPublic};
pub use url::{REDACTED_PATH, WebhookUrl};
