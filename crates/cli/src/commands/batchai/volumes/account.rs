//! The default storage account of volumes that name none.

use corro_model::Secret;

use super::MountArgs;
use crate::error::CliError;
use crate::session::setting;

/// The default storage account, from arguments, environment or az's configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectiveAccount {
    pub name: Option<String>,
    pub key: Option<Secret>,
    /// The key of a name on the command line is looked up before everything else.
    pub look_up: bool,
}

impl EffectiveAccount {
    pub fn of(args: &MountArgs) -> EffectiveAccount {
        match &args.storage_account_name {
            Some(name) => EffectiveAccount {
                name: Some(name.clone()),
                key: args.storage_account_key.as_deref().map(Secret::new),
                look_up: args.storage_account_key.is_none(),
            },
            None => EffectiveAccount {
                name: setting("batchai", "storage_account"),
                key: setting("batchai", "storage_key").map(Secret::new),
                look_up: false,
            },
        }
    }

    pub fn name(&self) -> Result<&str, CliError> {
        self.name.as_deref().ok_or_else(|| {
            CliError::new(
                "Please configure Azure Storage account name via AZURE_BATCHAI_STORAGE_ACCOUNT or provide \
                 storage_account value in batchai section of your az configuration file.",
            )
            .hint("or give --storage-account-name")
        })
    }

    pub fn key(&self) -> Result<&Secret, CliError> {
        self.key.as_ref().ok_or_else(|| {
            CliError::new(
                "Please configure Azure Storage account key via AZURE_BATCHAI_STORAGE_KEY or provide storage_key \
                 value in batchai section of your az configuration file.",
            )
            .hint("or give --storage-account-name, whose key is then looked up")
        })
    }
}
