//! What this installation is: its subscription, tenant, token key and administrator. Made on the first start.

use corro_model::{ApiError, Secret, Timestamp};
use corro_store::seal::{digest, random};
use corro_store::{InstanceRecord, PrincipalRecord, Store, Vault};

use super::guid;
use super::principals::everything;

const TOKEN_KEY: &str = "token key";
/// The name of the principal that the first start creates.
pub const ADMINISTRATOR: &str = "administrator";

/// How the administrator proves who they are.
pub struct AdminCredential {
    pub client_id: String,
    pub client_secret: Secret,
}

/// Identity of the installation, with the token key opened.
pub struct Instance {
    pub subscription: String,
    pub tenant: String,
    pub token_key: Vec<u8>,
}

pub async fn ensure_instance(store: &Store, vault: &Vault) -> Result<Instance, ApiError> {
    if store.snapshot().this().is_none() {
        let record = InstanceRecord {
            subscription: guid(),
            tenant: guid(),
            token_key: vault.seal(TOKEN_KEY, &hex(&random::<32>())),
        };
        let put = store.commit(move |txn| {
            txn.put(corro_store::state::SELF.to_owned(), record);
            Ok::<_, ApiError>(())
        });
        put.await?;
    }
    let snapshot = store.snapshot();
    let record = snapshot.this().expect("made above");
    let key = vault.open_sealed(TOKEN_KEY, &record.token_key).map_err(|error| {
        let message = format!("the data directory's master key does not fit its database: {error}");
        ApiError::new(500, "InternalError", message)
    })?;
    Ok(Instance {
        subscription: record.subscription.clone(),
        tenant: record.tenant.clone(),
        token_key: key.expose().as_bytes().to_vec(),
    })
}

/// Keeps `known` when it still opens the door; otherwise gives the administrator a new secret. Whoever can write to the
/// data directory is the administrator anyway, so a lost secret is replaced rather than guarded.
pub async fn ensure_administrator(
    store: &Store,
    known: Option<AdminCredential>,
    now: Timestamp,
) -> Result<AdminCredential, ApiError> {
    let snapshot = store.snapshot();
    let present = snapshot.principals.iter().find(|(_, principal)| principal.name == ADMINISTRATOR);
    let is_whole = present.is_some_and(|(_, record)| !record.assignments.is_empty());
    // The profile on this machine may be somebody else's by now.
    let known = known.filter(|known| {
        let is_administrator = present.is_some_and(|(id, _)| *id == known.client_id);
        is_administrator && verify(&snapshot, &known.client_id, &known.client_secret)
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
    let record = PrincipalRecord {
        name: ADMINISTRATOR.to_owned(),
        secret_digest: digest(client_secret.expose()),
        created: now,
        assignments: vec![everything()],
    };
    let id = client_id.clone();
    let put = store.commit(move |txn| {
        txn.put(id, record);
        Ok::<_, ApiError>(())
    });
    put.await?;
    Ok(AdminCredential { client_id, client_secret })
}

/// Does the secret belong to the client? Digests are compared, so the time taken tells nothing about the secret.
pub fn verify(state: &corro_store::State, client_id: &str, secret: &Secret) -> bool {
    let given = digest(secret.expose());
    state.principals.get(client_id).is_some_and(|principal| principal.secret_digest == given)
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
