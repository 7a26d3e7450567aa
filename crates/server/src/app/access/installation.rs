//! Identity of this installation: subscription, tenant, token key and administrator. Created at the first start.

use std::path::{Path, PathBuf};

use corro_model::{ApiError, Secret, Timestamp};
use corro_store::data_dir::{DATABASE, MASTER_KEY};
use corro_store::encryption::{EncryptionError, digest, random};
use corro_store::{InstanceRecord, PrincipalRecord, State, Store, StoreError, Vault};

use crate::app::access::caller::owner_of_subscription;
use crate::app::guid;
use crate::digest::hex;

/// Name of the principal that the first start creates.
pub const ADMINISTRATOR: &str = "administrator";

/// Client id and secret of the administrator.
pub struct AdminCredential {
    pub client_id: String,
    pub client_secret: Secret,
}

/// Identity of this installation, with its keys decrypted.
pub struct Installation {
    pub subscription: String,
    pub tenant: String,
    /// Key of access tokens and of all keyed digests.
    pub token_key: Vec<u8>,
    /// Encrypts the secrets in the database.
    pub vault: Vault,
}

#[derive(Debug, thiserror::Error)]
pub enum InstallationError {
    #[error(
        "the database {database} exists, but its master key {key} is missing: put the key back, or restore a backup with 'corro admin restore'"
    )]
    KeyMissing { database: PathBuf, key: PathBuf },
    #[error(
        "the master key {key} does not match the database {database}: put the right key there, or restore a backup with 'corro admin restore'"
    )]
    WrongKey { database: PathBuf, key: PathBuf, source: EncryptionError },
    #[error(
        "the master key {key} exists, but its database {database} is missing or empty: put it back, or restore a backup with 'corro admin restore' (to start over, move {key} away)"
    )]
    DatabaseLost { database: PathBuf, key: PathBuf },
    #[error("cannot use the master key {key}")]
    Key { key: PathBuf, source: EncryptionError },
    #[error("cannot record the identity of this installation")]
    Commit(#[from] ApiError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Refuses a database whose secrets the master key beside it does not decrypt. Called before anything is changed.
pub fn check_master_key(state: &State, data: &Path) -> Result<(), InstallationError> {
    let (key, database) = (data.join(MASTER_KEY), data.join(DATABASE));
    let unusable = |source| InstallationError::Key { key: key.clone(), source };
    match (state.instance_record(), Vault::read(&key).map_err(unusable)?) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(InstallationError::DatabaseLost { database, key }),
        (Some(record), Some(vault)) => match record.open_token_key(&vault) {
            Ok(_) => Ok(()),
            Err(source) => Err(InstallationError::WrongKey { database, key, source }),
        },
        (Some(record), None) => {
            let draft = Vault::read_pending(&key).ok().flatten();
            match draft.is_some_and(|vault| record.open_token_key(&vault).is_ok()) {
                true => Ok(()),
                false => Err(InstallationError::KeyMissing { database, key }),
            }
        }
    }
}

/// Loads the identity and the vault, or creates both at the first start. A new master key is written as a draft and
/// renamed after the record that needs it is committed. So a key without a database, or a database without a key, is
/// never the result of an interrupted start.
pub async fn ensure_installation(store: &Store, data: &Path) -> Result<Installation, InstallationError> {
    let (key, database) = (data.join(MASTER_KEY), data.join(DATABASE));
    let unusable = |source| InstallationError::Key { key: key.clone(), source };
    let this = store.snapshot().instance_record().cloned();
    let (vault, record) = match (this, Vault::read(&key).map_err(unusable)?) {
        (Some(record), Some(vault)) => (vault, record),
        (None, Some(_)) => return Err(InstallationError::DatabaseLost { database, key }),
        (Some(record), None) => {
            let draft = Vault::read_pending(&key).ok().flatten();
            let Some(vault) = draft.filter(|vault| record.open_token_key(vault).is_ok()) else {
                return Err(InstallationError::KeyMissing { database, key });
            };
            Vault::activate_pending(&key).map_err(unusable)?;
            (vault, record)
        }
        (None, None) => {
            let vault = Vault::create_pending(&key).map_err(unusable)?;
            let token_key = vault.seal(InstanceRecord::TOKEN_KEY, &hex(&random::<32>()));
            let record = InstanceRecord { subscription: guid(), tenant: guid(), token_key };
            let stored = record.clone();
            let put = store.commit(move |txn| {
                txn.put(corro_store::state::SELF.to_owned(), stored);
                Ok::<_, ApiError>(())
            });
            put.await?;
            Vault::activate_pending(&key).map_err(unusable)?;
            (vault, record)
        }
    };
    let token_key = record.open_token_key(&vault).map_err(|source| InstallationError::WrongKey {
        database,
        key: key.clone(),
        source,
    })?;
    let InstanceRecord { subscription, tenant, .. } = record;
    Ok(Installation { subscription, tenant, token_key: token_key.expose().as_bytes().to_vec(), vault })
}

/// Keeps the credential `known` if it is still valid; otherwise gives the administrator a new secret. Replacing a lost
/// secret is safe: write access to the data directory is administrator access anyway.
pub async fn ensure_administrator(
    store: &Store,
    known: Option<AdminCredential>,
    now: Timestamp,
) -> Result<AdminCredential, ApiError> {
    let snapshot = store.snapshot();
    let present = snapshot.principals.iter().find(|(_, principal)| principal.name == ADMINISTRATOR);
    let is_whole = present.is_some_and(|(_, record)| !record.assignments.is_empty());
    // The profile on this machine may belong to another principal by now.
    let known = known.filter(|known| {
        let is_administrator = present.is_some_and(|(id, _)| *id == known.client_id);
        is_administrator && verify_secret(&snapshot, &known.client_id, &known.client_secret)
    });
    if let Some(known) = known {
        if is_whole {
            return Ok(known);
        }
        return put_administrator(store, known, now).await;
    }
    let client_id = present.map_or_else(guid, |(id, _)| id.clone());
    put_administrator(store, AdminCredential { client_id, client_secret: Secret::new(hex(&random::<32>())) }, now).await
}

async fn put_administrator(
    store: &Store,
    credential: AdminCredential,
    now: Timestamp,
) -> Result<AdminCredential, ApiError> {
    let AdminCredential { client_id, client_secret } = credential;
    let (created, revocations) =
        store.snapshot().principals.get(&client_id).map_or((now, 0), |record| (record.created, record.revocations));
    let record = PrincipalRecord {
        name: ADMINISTRATOR.to_owned(),
        secret_digest: digest(client_secret.expose()),
        created,
        assignments: vec![owner_of_subscription()],
        expires: None,
        revocations,
    };
    let id = client_id.clone();
    let put = store.commit(move |txn| {
        txn.put(id, record);
        Ok::<_, ApiError>(())
    });
    put.await?;
    Ok(AdminCredential { client_id, client_secret })
}

/// Whether the secret is the client's. Compares digests, so timing reveals nothing about the secret.
pub fn verify_secret(state: &corro_store::State, client_id: &str, secret: &Secret) -> bool {
    let given = digest(secret.expose());
    state.principals.get(client_id).is_some_and(|principal| principal.secret_digest == given)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    async fn start(data: &Path) -> Result<Installation, InstallationError> {
        let store = Store::open_checked(&data.join(DATABASE), |state| check_master_key(state, data))?;
        let instance = ensure_installation(&store, data).await;
        store.close().await.expect("closes");
        instance
    }

    #[tokio::test]
    async fn a_start_reuses_its_identity_and_refuses_a_missing_key_or_database() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let (key, database) = (dir.path().join(MASTER_KEY), dir.path().join(DATABASE));
        let first = start(dir.path()).await.expect("a first start");
        let again = start(dir.path()).await.expect("a second start");
        assert_eq!((&again.subscription, &again.token_key), (&first.subscription, &first.token_key));
        let right = fs::read(&key).expect("a key");

        // A missing key is not replaced by a new one.
        fs::remove_file(&key).expect("removed");
        assert!(matches!(start(dir.path()).await, Err(InstallationError::KeyMissing { .. })));
        assert!(!key.exists() && !key.with_extension("draft").exists());
        fs::write(&key, [7; 32]).expect("another key");
        assert!(matches!(start(dir.path()).await, Err(InstallationError::WrongKey { .. })));
        fs::write(&key, [7; 3]).expect("no key");
        assert!(matches!(start(dir.path()).await, Err(InstallationError::Key { .. })));

        // A start interrupted before the key was renamed.
        fs::remove_file(&key).expect("removed");
        fs::write(key.with_extension("draft"), &right).expect("a draft");
        assert_eq!(start(dir.path()).await.expect("it goes on").subscription, first.subscription);
        assert_eq!(fs::read(&key).expect("a key"), right);

        // A missing database is not replaced by a new one either.
        let whole = fs::read(&database).expect("a database");
        fs::write(&database, "").expect("emptied");
        let is_lost = |error: &InstallationError| {
            matches!(
                error,
                InstallationError::Store(StoreError::DatabaseFiles(
                    corro_store::DatabaseFileError::DatabaseLost { .. }
                ))
            )
        };
        assert!(start(dir.path()).await.is_err_and(|error| is_lost(&error)));
        fs::remove_file(&database).expect("removed");
        let error = start(dir.path()).await.err().expect("refused").to_string();
        assert!(error.contains("corro.db") && error.contains("restore") && !database.exists(), "{error}");
        fs::write(&database, whole).expect("put back");
        start(dir.path()).await.expect("as before");

        // A first start interrupted before anything was committed.
        let other = tempfile::tempdir().expect("a temp dir");
        Store::open(&other.path().join(DATABASE)).expect("a store").close().await.expect("closes");
        fs::write(other.path().join(MASTER_KEY).with_extension("draft"), [1; 32]).expect("a draft");
        start(other.path()).await.expect("it begins again");
    }
}
