//! Registry of the copies in progress. In memory only, so a copy interrupted by a crash can be distinguished from one that still
//! runs.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use corro_shares::Properties;

pub(crate) const COPY_ID: &str = "x-ms-copy-id";

pub(crate) const COPY_STATUS: &str = "x-ms-copy-status";

pub(crate) const COPY_STATUS_DESCRIPTION: &str = "x-ms-copy-status-description";

/// Copies in progress by id. Clearing the flag aborts the copy.
#[derive(Default)]
pub(crate) struct RunningCopies(Mutex<HashMap<String, Arc<AtomicBool>>>);

impl RunningCopies {
    pub fn begin(&self, id: &str) -> Arc<AtomicBool> {
        let keep_going = Arc::new(AtomicBool::new(true));
        self.running().insert(id.to_owned(), keep_going.clone());
        keep_going
    }

    pub fn running(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<AtomicBool>>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Marks a pending copy as failed if it is not in progress in this process.
    pub fn fail_if_interrupted(&self, properties: &mut Properties) {
        if is_pending(properties) && !properties.get(COPY_ID).is_some_and(|id| self.running().contains_key(id)) {
            set_property(properties, COPY_STATUS, "failed");
            set_property(
                properties,
                COPY_STATUS_DESCRIPTION,
                "500 InternalError \"The server stopped in the middle of the copy.\"",
            );
        }
    }
}

/// Whether these are the properties of a copy in progress or of an interrupted one.
pub(crate) fn is_pending(properties: &Properties) -> bool {
    properties.get(COPY_STATUS) == Some("pending")
}

pub(crate) fn set_property(properties: &mut Properties, name: &str, value: &str) {
    // Values are made here or come from a header, so they are printable; another one is left out.
    let _ = properties.set(name, value);
}
