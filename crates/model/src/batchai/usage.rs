//! Quotas of a region: current use and limit.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Always `Count`.
    pub unit: String,
    pub current_value: i32,
    pub limit: i64,
    pub name: UsageName,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageName {
    pub value: String,
    pub localized_value: String,
}

impl Usage {
    /// A count. The display name is derived from `name`.
    pub fn count(name: impl Into<String>, current_value: i32, limit: i64) -> Self {
        let value = name.into();
        let localized_value = value.replace("LowPriority", "Low Priority");
        Self { unit: "Count".to_owned(), current_value, limit, name: UsageName { value, localized_value } }
    }
}
