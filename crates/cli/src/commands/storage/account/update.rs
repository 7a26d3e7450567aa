//! `corro storage account update` and `show-usage`.

use clap::Args;
use corro_model::arm::{
    AccountIdentity, AccountSettings, AccountSku, AccountUpdateParameters, AccountUpdateProperties, CustomDomain,
};
use corro_model::batchai::Usage;
use corro_model::ops::{AccountsUpdate, StorageUsages};
use serde_json::json;

use super::NameArgs;
use crate::error::CliError;
use crate::output::Shape;
use crate::resource::args::ResourceNames;
use crate::resource::resource_ref::parse_tags;
use crate::session::{Session, setting};

#[derive(Args, Debug)]
pub struct UpdateArgs {
    #[command(flatten)]
    account: NameArgs,
    /// Redundancy. Stored and shown, but not used
    #[arg(long, value_name = "SKU", ignore_case = true,
          value_parser = ["Standard_LRS", "Standard_GRS", "Standard_RAGRS", "Standard_ZRS", "Premium_LRS"])]
    sku: Option<String>,
    /// Replace all tags with these KEY=VALUE pairs. '' removes all tags
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    tags: Option<Vec<String>>,
    /// Accept requests over HTTPS only
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    https_only: Option<bool>,
    /// Access tier, for the kinds StorageV2 and BlobStorage. Stored and shown, but not used
    #[arg(long, value_name = "TIER", ignore_case = true, value_parser = ["Cool", "Hot"])]
    access_tier: Option<String>,
    /// Custom domain. Stored and shown, but not used
    #[arg(long, value_name = "DOMAIN")]
    custom_domain: Option<String>,
    /// Assign an identity. Stored and shown, but not used
    #[arg(long)]
    assign_identity: bool,
}

#[derive(Args, Debug)]
pub struct UsageArgs {
    /// Location, such as eastus [default: $AZURE_DEFAULTS_LOCATION]
    #[arg(long, short = 'l', value_name = "LOCATION")]
    location: Option<String>,
}

pub async fn run(session: &Session, args: UpdateArgs) -> Result<(), CliError> {
    let (account, parameters) = args.parts();
    let target = account.in_its_group(session).await?.target()?;
    let account = session.client()?.call::<AccountsUpdate>(&target.values(), &[], &parameters).await;
    session.print(Shape::StorageAccount, None, &account.map_err(|error| target.request_error(error))?)
}

pub async fn show_usage(session: &Session, args: UsageArgs) -> Result<(), CliError> {
    let location = args
        .location
        .or_else(|| setting("defaults", "location"))
        .ok_or_else(|| CliError::missing_arguments(&["--location/-l"], &["--location/-l"]))?;
    let usages: Vec<Usage> = session.client()?.list::<StorageUsages, _>(&[("location", &location)], &[]).await?;
    match usages.iter().find(|usage| usage.name.value == "StorageAccounts") {
        Some(usage) => session.print_value(&json!(usage)),
        None => Ok(()),
    }
}

impl UpdateArgs {
    /// The account, and the request that changes it.
    fn parts(self) -> (NameArgs, AccountUpdateParameters) {
        let settings = AccountSettings {
            access_tier: self.access_tier,
            custom_domain: self.custom_domain.map(|name| CustomDomain { name, use_sub_domain_name: None }),
            ..AccountSettings::default()
        };
        let parameters = AccountUpdateParameters {
            sku: self.sku.map(|name| AccountSku { name, tier: None }),
            kind: None,
            tags: self.tags.as_deref().map(parse_tags),
            identity: self.assign_identity.then(|| AccountIdentity {
                kind: "SystemAssigned".to_owned(),
                principal_id: None,
                tenant_id: None,
            }),
            properties: Some(AccountUpdateProperties { supports_https_traffic_only: self.https_only, settings }),
        };
        (self.account, parameters)
    }
}
