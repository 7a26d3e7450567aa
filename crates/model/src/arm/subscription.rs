//! The one subscription of a server: its tenant, its regions, its resource providers, and its resources in generic
//! form.

use serde::{Deserialize, Serialize};

use crate::batchai::Tags;

/// Display name of the one subscription of a server.
pub const SUBSCRIPTION_NAME: &str = "Corro";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tenant {
    pub id: String,
    pub tenant_id: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    pub id: String,
    pub subscription_id: String,
    /// Absent in responses of older servers.
    #[serde(default)]
    pub tenant_id: String,
    pub display_name: String,
    pub state: String,
    #[serde(default)]
    pub subscription_policies: SubscriptionPolicies,
    #[serde(default)]
    pub authorization_source: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionPolicies {
    pub location_placement_id: String,
    pub quota_id: String,
    pub spending_limit: String,
}

impl Subscription {
    pub fn new(id: &str, tenant: &str) -> Self {
        Self {
            id: format!("/subscriptions/{id}"),
            subscription_id: id.to_owned(),
            tenant_id: tenant.to_owned(),
            display_name: SUBSCRIPTION_NAME.to_owned(),
            state: "Enabled".to_owned(),
            subscription_policies: SubscriptionPolicies {
                location_placement_id: "Public_2014-09-01".to_owned(),
                quota_id: "PayAsYouGo_2014-09-01".to_owned(),
                spending_limit: "Off".to_owned(),
            },
            authorization_source: "RoleBased".to_owned(),
        }
    }
}

/// A region. All resources are on the server itself; region names are labels that users choose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Location {
    pub id: String,
    pub name: String,
    pub display_name: String,
    pub latitude: String,
    pub longitude: String,
}

/// Regions of the retired service: name, display name, latitude, longitude.
const REGIONS: [[&str; 4]; 10] = [
    ["eastus", "East US", "37.3719", "-79.8164"],
    ["eastus2", "East US 2", "36.6681", "-78.3889"],
    ["southcentralus", "South Central US", "29.4167", "-98.5000"],
    ["northcentralus", "North Central US", "41.8819", "-87.6278"],
    ["westus2", "West US 2", "47.233", "-119.852"],
    ["northeurope", "North Europe", "53.3478", "-6.2597"],
    ["westeurope", "West Europe", "52.3667", "4.9"],
    ["uksouth", "UK South", "50.941", "-0.799"],
    ["southeastasia", "Southeast Asia", "1.283", "103.833"],
    ["australiaeast", "Australia East", "-33.86", "151.2094"],
];

/// The regions of `REGIONS`, then regions in use that it does not list.
pub fn locations<'a>(subscription: &str, in_use: impl Iterator<Item = &'a str>) -> Vec<Location> {
    let location = |[name, display_name, latitude, longitude]: [&str; 4]| Location {
        id: format!("/subscriptions/{subscription}/locations/{name}"),
        name: name.to_owned(),
        display_name: display_name.to_owned(),
        latitude: latitude.to_owned(),
        longitude: longitude.to_owned(),
    };
    let mut found: Vec<Location> = REGIONS.into_iter().map(location).collect();
    for name in in_use {
        let is_known =
            |known: &Location| [&known.name, &known.display_name].iter().any(|n| n.eq_ignore_ascii_case(name));
        if !found.iter().any(is_known) {
            found.push(location([name, name, "0", "0"]));
        }
    }
    found
}

/// A resource provider: one namespace with its resource types.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    pub id: String,
    pub namespace: String,
    pub registration_state: String,
    #[serde(default)]
    pub resource_types: Vec<ProviderResourceType>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderResourceType {
    pub resource_type: String,
    pub locations: Vec<String>,
    pub api_versions: Vec<String>,
}

const BATCHAI_TYPES: &[&str] = &[
    "workspaces",
    "workspaces/clusters",
    "workspaces/fileservers",
    "workspaces/experiments",
    "workspaces/experiments/jobs",
    "operations",
    "locations",
    "locations/operationresults",
    "locations/operationstatuses",
    "locations/usages",
];

/// Namespace, resource types, accepted api-versions. The third is empty: the tutorial registers it.
const PROVIDERS: [(&str, &[&str], &[&str]); 3] = [
    ("Microsoft.BatchAI", BATCHAI_TYPES, &[crate::api_versions::BATCHAI_VERSION]),
    (
        "Microsoft.Storage",
        &["storageAccounts", "checkNameAvailability"],
        &["2018-07-01", crate::api_versions::STORAGE_VERSION, "2017-10-01"],
    ),
    ("Microsoft.Batch", &[], &[]),
];

/// All resource providers. Each is registered from the start.
pub fn providers(subscription: &str) -> Vec<Provider> {
    let provider = |(namespace, types, versions): (&str, &[&str], &[&str])| Provider {
        id: format!("/subscriptions/{subscription}/providers/{namespace}"),
        namespace: namespace.to_owned(),
        registration_state: "Registered".to_owned(),
        resource_types: types
            .iter()
            .map(|resource_type| ProviderResourceType {
                resource_type: (*resource_type).to_owned(),
                locations: REGIONS.iter().map(|[_, display_name, ..]| (*display_name).to_owned()).collect(),
                api_versions: versions.iter().map(|version| (*version).to_owned()).collect(),
            })
            .collect(),
    };
    PROVIDERS.into_iter().map(provider).collect()
}

/// A resource of any type, as in lists over all types.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GenericResource {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub resource_type: String,
    pub location: String,
    #[serde(default)]
    pub tags: Tags,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<super::AccountSku>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_in_use_are_listed_once() {
        let found = locations("s", ["eastus", "East US", "mylab", "mylab"].into_iter());
        assert_eq!(found.len(), REGIONS.len() + 1);
        assert_eq!(found[0].id, "/subscriptions/s/locations/eastus");
        assert_eq!(found.last().map(|last| last.display_name.as_str()), Some("mylab"));
    }
}
