//! Secrets in cluster and job specifications. They are extracted before a specification is stored or returned, sealed
//! as one bundle, and decrypted only for the desired state of a node. The remaining specification contains no secret.

use std::collections::BTreeMap;

use corro_model::batchai::{
    ClusterSpec, JobSpec, KeyVaultSecretReference, MountVolumes, SecretVariable, StorageCredentials,
};
use corro_model::password::PasswordVerifier;
use corro_model::{ApiError, Secret};
use corro_store::Ciphertext;
use corro_store::encryption::random;
use serde::{Deserialize, Serialize};

use crate::app::App;

const PURPOSE: &str = "specification";

/// Secrets of one specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecretBundle {
    /// Account keys, by mount path.
    pub mounts: BTreeMap<String, Secret>,
    /// Secret environment variables, by name.
    pub variables: BTreeMap<String, Secret>,
    /// Password of the container registry.
    pub registry: Option<Secret>,
    /// Key Vault URLs, by the field they were given in. Never fetched; stored to compare requests.
    #[serde(default)]
    pub vault: BTreeMap<String, String>,
    /// Application Insights instrumentation key.
    #[serde(default)]
    pub instrumentation: Option<Secret>,
    /// Verifier of the administrator's password. The password itself is not stored.
    #[serde(default)]
    pub admin: Option<PasswordVerifier>,
}

impl SecretBundle {
    fn extract_reference(&mut self, place: String, reference: &mut Option<KeyVaultSecretReference>) {
        self.vault.extend(reference.take().map(|reference| (place, reference.secret_url)));
    }

    fn extract_variables(&mut self, variables: &mut [SecretVariable]) {
        for variable in variables {
            self.variables.extend(variable.value.take().map(|value| (variable.name.clone(), value)));
            self.extract_reference(format!("secrets/{}", variable.name), &mut variable.value_secret_reference);
        }
    }

    fn extract_mount_keys(&mut self, volumes: Option<&mut MountVolumes>) {
        let Some(volumes) = volumes else { return };
        let shares =
            volumes.azure_file_shares.iter_mut().map(|share| (&share.relative_mount_path, &mut share.credentials));
        let containers =
            volumes.azure_blob_file_systems.iter_mut().map(|blob| (&blob.relative_mount_path, &mut blob.credentials));
        for (path, credentials) in shares.chain(containers) {
            // Responses show `{}` where credentials were given.
            let credentials = credentials.get_or_insert_with(StorageCredentials::default);
            self.mounts.extend(credentials.account_key.take().map(|key| (path.clone(), key)));
            self.extract_reference(format!("mounts/{path}"), &mut credentials.account_key_secret_reference);
        }
    }
}

pub fn extract_job_secrets(spec: &mut JobSpec) -> SecretBundle {
    let mut bundle = SecretBundle::default();
    bundle.extract_mount_keys(spec.mount_volumes.as_mut());
    bundle.extract_variables(&mut spec.secrets);
    let registry = spec.container_settings.as_mut().and_then(|c| c.image_source_registry.credentials.as_mut());
    if let Some(credentials) = registry {
        bundle.registry = credentials.password.take();
        bundle.extract_reference("registry".to_owned(), &mut credentials.password_secret_reference);
    }
    bundle
}

/// Drops the administrator's password for good: nodes need only its verifier.
pub fn extract_cluster_secrets(spec: &mut ClusterSpec) -> SecretBundle {
    spec.user_account_settings.admin_user_password = None;
    let mut bundle = SecretBundle::default();
    let Some(setup) = &mut spec.node_setup else { return bundle };
    bundle.extract_mount_keys(setup.mount_volumes.as_mut());
    if let Some(task) = &mut setup.setup_task {
        bundle.extract_variables(&mut task.secrets);
    }
    if let Some(counters) = &mut setup.performance_counters_settings {
        let reference = &mut counters.app_insights_reference;
        bundle.instrumentation = reference.instrumentation_key.take();
        bundle.extract_reference("insights".to_owned(), &mut reference.instrumentation_key_secret_reference);
    }
    bundle
}

/// Verifier of the administrator's password, if one is given. Deliberately slow, so computed on a blocking thread.
pub async fn admin_verifier(spec: &ClusterSpec) -> Option<PasswordVerifier> {
    let password = spec.user_account_settings.password()?.clone();
    tokio::task::spawn_blocking(move || PasswordVerifier::new(&password, random())).await.ok()
}

impl App {
    /// Returns `None` if there is no secret.
    pub fn seal_secrets(&self, bundle: SecretBundle) -> Option<Ciphertext> {
        if bundle == SecretBundle::default() {
            return None;
        }
        Some(self.installation.vault.seal(PURPOSE, &serde_json::to_string(&bundle).expect("a bundle is plain data")))
    }

    pub fn open_secrets(&self, sealed: Option<&Ciphertext>) -> Result<SecretBundle, ApiError> {
        let Some(sealed) = sealed else { return Ok(SecretBundle::default()) };
        let text = self.unseal(PURPOSE, sealed)?;
        serde_json::from_str(text.expose())
            .map_err(|_| ApiError::new(500, "InternalError", "The secrets of a stored specification cannot be read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_remains_in_a_job_specification() {
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
        let bundle = extract_job_secrets(&mut spec);
        let left = serde_json::to_string(&spec).expect("plain data");
        assert!(!left.contains("canary"), "{left}");
        assert!(left.contains(r#""credentials":{}"#) && left.contains(r#""secrets":[{"name":"TOKEN"}]"#), "{left}");
        assert_eq!(bundle.mounts["s"].expose(), "canary2");
        assert_eq!(bundle.variables["TOKEN"].expose(), "canary1");
        assert_eq!(bundle.registry.expect("a password").expose(), "canary3");
    }

    #[test]
    fn no_secret_remains_in_a_cluster_specification() {
        let mut spec: ClusterSpec = serde_json::from_value(serde_json::json!({
            "vmSize": "x", "userAccountSettings": {"adminUserName": "me", "adminUserPassword": "canary1"},
            "nodeSetup": {
                "mountVolumes": {"azureBlobFileSystems": [{
                    "accountName": "a", "containerName": "c", "relativeMountPath": "b",
                    "credentials": {"accountKeySecretReference": {"sourceVault": {"id": "v"}, "secretUrl": "canary2"}}
                }]},
                "setupTask": {"commandLine": "a", "stdOutErrPathPrefix": "x", "secrets": [{"name": "S", "value": "canary3"}]},
                "performanceCountersSettings": {"appInsightsReference": {
                    "component": {"id": "i"}, "instrumentationKey": "canary4"
                }}
            }
        }))
        .expect("a literal");
        let bundle = extract_cluster_secrets(&mut spec);
        let left = serde_json::to_string(&spec).expect("plain data");
        assert!(!left.contains("canary"), "{left}");
        assert_eq!(bundle.vault["mounts/b"], "canary2");
        assert_eq!(bundle.instrumentation.expect("a key").expose(), "canary4");
    }
}
