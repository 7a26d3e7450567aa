//! Secrets inside cluster and job specifications: taken out before anything is stored or answered, sealed as one bag,
//! opened again only to give a node its orders. What is left in the specification can be shown to anyone.

use std::collections::BTreeMap;

use corro_model::batchai::{ClusterSpec, JobSpec, MountVolumes, StorageCredentials};
use corro_model::password::PasswordVerifier;
use corro_model::{ApiError, Secret};
use corro_store::Sealed;
use corro_store::seal::random;
use serde::{Deserialize, Serialize};

use super::App;

const PURPOSE: &str = "specification";

/// What was taken out of one specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bag {
    /// Account keys by the mount path of the share they open.
    pub mounts: BTreeMap<String, Secret>,
    /// Secret variables by name.
    pub variables: BTreeMap<String, Secret>,
    /// The password of the container registry.
    pub registry: Option<Secret>,
    /// What proves the administrator's password; the password itself is not kept.
    #[serde(default)]
    pub admin: Option<PasswordVerifier>,
}

pub fn take_from_job(spec: &mut JobSpec) -> Bag {
    let mut bag = Bag { mounts: take_mount_keys(spec.mount_volumes.as_mut()), ..Bag::default() };
    for variable in &mut spec.secrets {
        bag.variables.extend(variable.value.take().map(|value| (variable.name.clone(), value)));
    }
    let registry = spec.container_settings.as_mut().and_then(|c| c.image_source_registry.credentials.as_mut());
    bag.registry = registry.and_then(|credentials| credentials.password.take());
    bag
}

/// The admin password is dropped for good: nodes need no more than what proves it.
pub fn take_from_cluster(spec: &mut ClusterSpec) -> Bag {
    spec.user_account_settings.admin_user_password = None;
    let volumes = spec.node_setup.as_mut().and_then(|setup| setup.mount_volumes.as_mut());
    let mut bag = Bag { mounts: take_mount_keys(volumes), ..Bag::default() };
    if let Some(task) = spec.node_setup.as_mut().and_then(|setup| setup.setup_task.as_mut()) {
        for variable in &mut task.secrets {
            bag.variables.extend(variable.value.take().map(|value| (variable.name.clone(), value)));
        }
    }
    bag
}

fn take_mount_keys(volumes: Option<&mut MountVolumes>) -> BTreeMap<String, Secret> {
    let Some(volumes) = volumes else { return BTreeMap::new() };
    let shares = volumes.azure_file_shares.iter_mut().map(|share| (&share.relative_mount_path, &mut share.credentials));
    let containers =
        volumes.azure_blob_file_systems.iter_mut().map(|blob| (&blob.relative_mount_path, &mut blob.credentials));
    let mut keys = BTreeMap::new();
    for (path, credentials) in shares.chain(containers) {
        // Answers show `{}` where credentials were given.
        let credentials = credentials.get_or_insert_with(StorageCredentials::default);
        keys.extend(credentials.account_key.take().map(|key| (path.clone(), key)));
    }
    keys
}

/// What proves the administrator's password, if there is one. Slow on purpose, so on a thread that may block.
pub async fn admin_verifier(spec: &ClusterSpec) -> Option<PasswordVerifier> {
    let password = spec.user_account_settings.admin_user_password.clone()?;
    tokio::task::spawn_blocking(move || PasswordVerifier::new(&password, random())).await.ok()
}

impl App {
    /// `None` when there is nothing to keep.
    pub fn seal_bag(&self, bag: Bag) -> Option<Sealed> {
        if bag == Bag::default() {
            return None;
        }
        Some(self.vault.seal(PURPOSE, &serde_json::to_string(&bag).expect("a bag is plain data")))
    }

    pub fn open_bag(&self, sealed: Option<&Sealed>) -> Result<Bag, ApiError> {
        let Some(sealed) = sealed else { return Ok(Bag::default()) };
        let text = self.unseal(PURPOSE, sealed)?;
        serde_json::from_str(text.expose())
            .map_err(|_| ApiError::new(500, "InternalError", "A sealed specification does not read back"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_canary_is_left_in_a_job() {
        let mut spec: JobSpec = serde_json::from_value(serde_json::json!({
            "nodeCount": 1, "stdOutErrPathPrefix": "x",
            "customToolkitSettings": {"commandLine": "true"},
            "secrets": [{"name": "TOKEN", "value": "canary1"}],
            "mountVolumes": {"azureFileShares": [{
                "accountName": "a", "azureFileUrl": "https://a.b/s", "relativeMountPath": "s",
                "credentials": {"accountKey": "canary2"}
            }]},
            "containerSettings": {"imageSourceRegistry": {
                "image": "i", "credentials": {"username": "u", "password": "canary3"}
            }}
        }))
        .expect("a literal");
        let bag = take_from_job(&mut spec);
        let left = serde_json::to_string(&spec).expect("plain data");
        assert!(!left.contains("canary"), "{left}");
        assert!(left.contains(r#""credentials":{}"#) && left.contains(r#""secrets":[{"name":"TOKEN"}]"#), "{left}");
        assert_eq!(bag.mounts["s"].expose(), "canary2");
        assert_eq!(bag.variables["TOKEN"].expose(), "canary1");
        assert_eq!(bag.registry.expect("a password").expose(), "canary3");
    }
}
