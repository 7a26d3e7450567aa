//! Table of record kinds: for each record type its name in the database, its key type, its table in the state and its index.

use std::sync::Arc;

use corro_model::{ClusterKey, ExperimentKey, FileServerKey, GroupKey, JobKey, NodeId, WorkspaceKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::State;
use crate::history::HistorySubject;
use crate::records::*;

/// Inserts one decoded record into a state.
pub(crate) type InsertRecord = Box<dyn FnOnce(&mut State) + Send>;

/// Kind of record: its table in the snapshot and its name in the database.
pub trait Record: HistorySubject + Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    const KIND: &'static str;
    /// History event of a new record.
    const CREATED_EVENT: &'static str = "created";
    /// Changed by a state machine, which writes its history events itself.
    const HAS_STATE_MACHINE: bool = false;
    type Key: Clone + Ord + Serialize + DeserializeOwned + Send + Sync + 'static;
    fn table(state: &State) -> &Table<Self::Key, Self>;
    fn table_mut(state: &mut State) -> &mut Table<Self::Key, Self>;
    /// Updates the index after the record under `key` changed from `old` to `new`.
    fn reindex(_state: &mut State, _key: &Self::Key, _old: Option<&Arc<Self>>, _new: Option<&Arc<Self>>) {}
}

macro_rules! records {
    ($($record:ident $kind:literal $key:ty => $table:ident $(indexed by $index:ident)? $(moving, $came:literal)?;)*) => {
        $(impl Record for $record {
            const KIND: &'static str = $kind;
            $(const CREATED_EVENT: &'static str = $came;
            const HAS_STATE_MACHINE: bool = true;)?
            type Key = $key;
            fn table(state: &State) -> &Table<$key, Self> {
                &state.$table
            }
            fn table_mut(state: &mut State) -> &mut Table<$key, Self> {
                &mut state.$table
            }
            $(fn reindex(state: &mut State, key: &$key, old: Option<&Arc<Self>>, new: Option<&Arc<Self>>) {
                state.$index(key, old, new);
            })?
        })*

        /// Decodes one stored row; `None` for an unknown kind.
        pub(crate) fn decode_row(kind: &str, key: &str, body: &str) -> Result<Option<InsertRecord>, serde_json::Error> {
            Ok(Some(match kind {
                $($kind => {
                    let key: $key = serde_json::from_value(serde_json::Value::String(key.to_owned()))?;
                    let record = Arc::new(serde_json::from_str::<$record>(body)?);
                    Box::new(move |state| state.put(key, record))
                })*
                _ => return Ok(None),
            }))
        }
    };
}

records! {
    InstanceRecord "instance" String => instance;
    PrincipalRecord "principal" String => principals;
    GroupRecord "group" GroupKey => groups;
    WorkspaceRecord "workspace" WorkspaceKey => workspaces;
    ExperimentRecord "experiment" ExperimentKey => experiments;
    ClusterRecord "cluster" ClusterKey => clusters;
    FileServerRecord "fileServer" FileServerKey => file_servers;
    NodeRecord "node" NodeId => nodes indexed by index_node moving, "allocated";
    JobRecord "job" JobKey => jobs indexed by index_job moving, "submitted";
    AccountRecord "account" String => accounts;
    OperationRecord "operation" String => operations indexed by index_operation;
    HostRecord "host" String => hosts;
    HostTokenRecord "hostToken" String => host_tokens;
    DeliveryRecord "delivery" String => deliveries;
}
