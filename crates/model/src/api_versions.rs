//! Values of the query parameter `api-version` that each Azure resource provider is called with.

pub const BATCHAI_VERSION: &str = "2018-05-01";
pub const GROUPS_VERSION: &str = "2018-05-01";
pub const STORAGE_VERSION: &str = "2018-02-01";
pub const SUBSCRIPTIONS_VERSION: &str = "2016-06-01";
