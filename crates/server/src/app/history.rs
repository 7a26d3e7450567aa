//! Who did what: the history is read here, and every change carries the name of whoever asked for it.

use corro_model::ApiError;
use corro_model::history::{HistoryEntry, HistoryFilter};

use super::App;
use super::principals::Caller;

impl App {
    /// The same rules, applied on behalf of `caller`: what is changed through it is noted as theirs.
    pub fn acting_as(&self, caller: Caller, address: &str) -> Self {
        Self { store: self.store.acting_from(&caller.id, address), caller: caller.into(), ..self.clone() }
    }

    /// What happened, newest first.
    pub async fn history(&self, filter: HistoryFilter) -> Result<Vec<HistoryEntry>, ApiError> {
        let store = self.store.clone();
        let read = tokio::task::spawn_blocking(move || store.history(&filter)).await;
        let read = read.map_err(|_| ApiError::new(503, "ServerStopping", "The server is stopping"))?;
        read.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "the history cannot be read");
            error.into()
        })
    }
}
