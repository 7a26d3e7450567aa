//! Notification of one commit: changed rows, and the state before and after. Broadcast after the commit is durable; not
//! stored.

use std::sync::Arc;

use corro_model::Timestamp;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

use crate::state::{Record, State};

/// Commits that a slow receiver may lag behind. Each holds two states, which share unchanged parts.
pub(crate) const EVENT_BACKLOG: usize = 256;

pub struct CommitEvent {
    pub before: Arc<State>,
    pub after: Arc<State>,
    /// Kind and key of each changed row, as in the database.
    pub rows: Vec<(&'static str, String)>,
    pub time: Timestamp,
}

impl CommitEvent {
    /// Record under `key` before and after the commit.
    pub fn records<R: Record>(&self, key: &str) -> (Option<Arc<R>>, Option<Arc<R>>) {
        let text: StrDeserializer<'_, Error> = key.into_deserializer();
        let key = R::Key::deserialize(text).expect("keys are plain text");
        (R::table(&self.before).get(&key).cloned(), R::table(&self.after).get(&key).cloned())
    }
}
