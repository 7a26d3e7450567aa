//! Copies in progress. In memory only, so a copy that a crash interrupted is told from one that still runs.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use corro_shares::Properties;

pub(crate) const ID: &str = "x-ms-copy-id";

pub(crate) const STATUS: &str = "x-ms-copy-status";

pub(crate) const DESCRIPTION: &str = "x-ms-copy-status-description";

/// Copies under way, by id; the flag says that they shall go on.
#[derive(Default)]
pub(crate) struct Copies(Mutex<HashMap<String, Arc<AtomicBool>>>);

impl Copies {
    pub fn begin(&self, id: &str) -> Arc<AtomicBool> {
        let go_on = Arc::new(AtomicBool::new(true));
        self.running().insert(id.to_owned(), go_on.clone());
        go_on
    }

    pub fn running(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<AtomicBool>>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A copy that no one is making any more did not succeed.
    pub fn settle(&self, properties: &mut Properties) {
        if is_pending(properties) && !properties.get(ID).is_some_and(|id| self.running().contains_key(id)) {
            keep(properties, STATUS, "failed");
            keep(properties, DESCRIPTION, "500 InternalError \"The server stopped in the middle of the copy.\"");
        }
    }
}

/// Whether something is a copy that may still be made.
pub(crate) fn is_pending(properties: &Properties) -> bool {
    properties.get(STATUS) == Some("pending")
}

pub(crate) fn keep(properties: &mut Properties, name: &str, value: &str) {
    // Made here or printable ASCII from a header; one that is not is left out.
    let _ = properties.set(name, value);
}
