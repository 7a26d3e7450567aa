//! Types that several Batch AI resources share: references, lists, errors inside resources, variables, provisioning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Secret, Timestamp};

pub type Tags = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceId {
    pub id: String,
}

/// A page of a list. `nextLink` is absolute and absent on the last page.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub value: Vec<T>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_link: Option<String>,
}

impl<T> Page<T> {
    pub fn whole(value: Vec<T>) -> Self {
        Self { value, next_link: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProvisioningState {
    Creating,
    /// File servers only: the machine exists and its disks are being attached.
    Updating,
    Succeeded,
    Failed,
    Deleting,
}

/// Creation time and provisioning state of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provisioning {
    pub creation_time: Timestamp,
    pub provisioning_state: ProvisioningState,
    pub provisioning_state_transition_time: Timestamp,
}

impl Provisioning {
    pub fn new(state: ProvisioningState, now: Timestamp) -> Self {
        Self { creation_time: now, provisioning_state: state, provisioning_state_transition_time: now }
    }

    pub fn is_deleting(&self) -> bool {
        self.provisioning_state == ProvisioningState::Deleting
    }

    pub fn set_state(&mut self, state: ProvisioningState, now: Timestamp) {
        if self.provisioning_state != state {
            self.provisioning_state = state;
            self.provisioning_state_transition_time = now;
        }
    }
}

/// An error inside a cluster or job, unlike [`ApiError`](crate::ApiError), which answers a bad request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchAiError {
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<NameValuePair>,
}

impl BatchAiError {
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), details: Vec::new() }
    }

    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.details.push(NameValuePair { name: name.to_owned(), value: value.into() });
        self
    }

    /// The value of a detail.
    pub fn detail(&self, name: &str) -> Option<&str> {
        self.details.iter().find(|detail| detail.name == name).map(|detail| detail.value.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameValuePair {
    pub name: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentVariable {
    pub name: String,
    pub value: String,
}

/// An environment variable whose value is stored encrypted and never returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretVariable {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_secret_reference: Option<KeyVaultSecretReference>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyVaultSecretReference {
    pub source_vault: ResourceId,
    pub secret_url: String,
}
