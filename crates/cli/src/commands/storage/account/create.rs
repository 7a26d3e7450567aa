//! `corro storage account create`: arguments and request.

use std::collections::BTreeMap;

use clap::Args;
use corro_model::arm::{
    AccountCreateParameters, AccountCreateProperties, AccountEncryption, AccountIdentity, AccountSettings, AccountSku,
    CustomDomain, EncryptedService, NetworkRules,
};
use corro_model::names::{NameKind, check_name};
use corro_model::ops::{AccountsCreate, GroupsGet};

use super::NameArgs;
use crate::error::CliError;
use crate::output::Shape;
use crate::progress::Spinner;
use crate::resource::args::ResourceNames;
use crate::resource::resource_ref::parse_tags;
use crate::session::{Session, setting};

#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    account: NameArgs,
    /// Location to show [default: the location of the resource group]
    #[arg(long, short = 'l', value_name = "LOCATION")]
    location: Option<String>,
    /// Redundancy. Stored and shown, but not used
    #[arg(long, value_name = "SKU", default_value = "Standard_RAGRS", ignore_case = true,
          value_parser = ["Standard_LRS", "Standard_GRS", "Standard_RAGRS", "Standard_ZRS", "Premium_LRS"])]
    sku: String,
    /// Kind of the account. Stored and shown, but not used
    #[arg(long, value_name = "KIND", default_value = "Storage", ignore_case = true,
          value_parser = ["Storage", "StorageV2", "BlobStorage"])]
    kind: String,
    /// Tags, as KEY=VALUE pairs separated by spaces
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    tags: Vec<String>,
    /// Accept requests over HTTPS only
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "false", value_name = "BOOL")]
    https_only: bool,
    /// Access tier, for the kinds StorageV2 and BlobStorage. Stored and shown, but not used
    #[arg(long, value_name = "TIER", ignore_case = true, value_parser = ["Cool", "Hot"])]
    access_tier: Option<String>,
    /// Services to show as encrypted, in addition to blob and file
    #[arg(long, value_name = "SERVICE", num_args = 1.., ignore_case = true, value_parser = ["blob", "file", "queue", "table"])]
    encryption_services: Vec<String>,
    /// Custom domain. Stored and shown, but not used
    #[arg(long, value_name = "DOMAIN")]
    custom_domain: Option<String>,
    /// Assign an identity. Stored and shown, but not used
    #[arg(long)]
    assign_identity: bool,
    /// Services that bypass network rules. Stored and shown, but not used
    #[arg(long, value_name = "WHO", num_args = 1.., ignore_case = true,
          value_parser = ["None", "Logging", "Metrics", "AzureServices"])]
    bypass: Vec<String>,
    /// Default action of network rules. Must be Allow, because the server has no network rules
    #[arg(long, value_name = "ACTION", ignore_case = true, value_parser = ["Allow", "Deny"])]
    default_action: Option<String>,
}

pub async fn run(session: &Session, args: CreateArgs) -> Result<(), CliError> {
    let target = args.account.target()?;
    check_name(NameKind::StorageAccount, target.name("account"))?;
    let location = match args.location.clone().or_else(|| setting("defaults", "location")) {
        Some(location) => location,
        None => {
            let group = session.client()?.get::<GroupsGet>(&[("group", target.name("group"))]).await;
            group.map_err(|error| target.request_error(error))?.location
        }
    };
    let parameters = args.parameters(location);
    let spinner = Spinner::start("Creating");
    let account = session.client()?.run::<AccountsCreate>(&target.values(), &parameters).await;
    drop(spinner);
    let account = account.map_err(|error| {
        let field = error.api().and_then(|error| error.target.clone());
        target.request_error(error).with_option_names(field.as_deref(), &OPTIONS)
    });
    session.print(Shape::StorageAccount, None, &account?)
}

/// Last segments of the API fields that the options set, with their options.
const OPTIONS: [(&str, &str); 3] = [
    ("supportsHttpsTrafficOnly", "--https-only"),
    ("accessTier", "--access-tier"),
    ("networkAcls", "--default-action"),
];

impl CreateArgs {
    fn parameters(self, location: String) -> AccountCreateParameters {
        let enabled = EncryptedService { enabled: true, last_enabled_time: None };
        let services: BTreeMap<_, _> =
            self.encryption_services.into_iter().map(|service| (service.to_lowercase(), enabled.clone())).collect();
        let encryption =
            (!services.is_empty()).then(|| AccountEncryption { services, key_source: "Microsoft.Storage".to_owned() });
        let rules_given = !self.bypass.is_empty() || self.default_action.is_some();
        let network_rules = rules_given.then(|| {
            let mut rules = NetworkRules::default();
            if !self.bypass.is_empty() {
                rules.bypass = self.bypass.join(", ");
            }
            rules.default_action = self.default_action.unwrap_or(rules.default_action);
            rules
        });
        let settings = AccountSettings {
            access_tier: self.access_tier,
            custom_domain: self.custom_domain.map(|name| CustomDomain { name, use_sub_domain_name: None }),
            encryption,
            network_rules,
        };
        AccountCreateParameters {
            sku: AccountSku { name: self.sku, tier: None },
            kind: self.kind,
            location,
            tags: (!self.tags.is_empty()).then(|| parse_tags(&self.tags)),
            identity: self.assign_identity.then(|| AccountIdentity {
                kind: "SystemAssigned".to_owned(),
                principal_id: None,
                tenant_id: None,
            }),
            properties: Some(AccountCreateProperties { supports_https_traffic_only: self.https_only, settings }),
        }
    }
}
