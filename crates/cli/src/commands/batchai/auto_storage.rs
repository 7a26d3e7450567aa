//! `--use-auto-storage`: one storage account per region, in a resource group of its own, created if missing. Idempotent.

use corro_client::{Client, Credential, FileService};
use corro_model::Secret;
use corro_model::arm::{
    AccountCreateParameters, AccountSku, GroupCreateParameters, NameAvailabilityRequest, STORAGE_ACCOUNT_TYPE,
    StorageAccount,
};
use corro_model::batchai::MountVolumes;
use corro_model::ops::{
    AccountsCheckName, AccountsCreate, AccountsListByGroup, GroupsCheck, GroupsCreate, WorkspacesGet,
};

use crate::commands::batchai::volumes::{container_of, share_of, with_key};
use crate::commands::storage::auth::find_account_key;
use crate::error::CliError;
use crate::resource::resource_ref::ResourceRef;
use crate::session::Session;
use crate::stdio::note;

const GROUP: &str = "batchaiautostorage";
const SHARE: &str = "batchaishare";
const CONTAINER: &str = "batchaicontainer";
const SHARE_PATH: &str = "autoafs";
const CONTAINER_PATH: &str = "autobfs";
const ACCOUNT_PREFIX: &str = "bai";
const RANDOM_LETTERS: usize = 12;

/// The account, with its share and container created.
pub struct AutoAccount {
    name: String,
    key: Secret,
}

impl AutoAccount {
    /// Adds share and container to the volumes of a cluster.
    pub fn mount(&self, volumes: &mut MountVolumes) {
        let mut share = share_of(&self.name, SHARE, SHARE_PATH);
        share.credentials = Some(with_key(self.key.clone()));
        volumes.azure_file_shares.push(share);
        let mut container = container_of(&self.name, CONTAINER, CONTAINER_PATH);
        container.credentials = Some(with_key(self.key.clone()));
        volumes.azure_blob_file_systems.push(container);
    }
}

/// The account for the region of the target's workspace.
pub async fn ensure(session: &Session, target: &ResourceRef) -> Result<AutoAccount, CliError> {
    let client = session.client()?;
    let workspace = client.get::<WorkspacesGet>(&target.values()).await.map_err(|error| target.request_error(error))?;
    ensure_group(client, &workspace.location).await?;
    let name = ensure_account(client, &workspace.location).await?;
    let key = find_account_key(client, &name).await?;
    let endpoint = format!("{}/{name}", client.server());
    let files = FileService::new(&endpoint, &name, Credential::Key(key.clone()))?.trusting(&session.trust()?)?;
    files.create_share(SHARE, None, &Default::default()).await?;
    files.create_container(CONTAINER).await?;
    Ok(AutoAccount { name, key })
}

async fn ensure_group(client: &Client, location: &str) -> Result<(), CliError> {
    let path = [("group", GROUP)];
    if client.exists::<GroupsCheck>(&path).await? {
        note(format_args!("BatchAI will use existing {GROUP} resource group for auto-storage account"));
        return Ok(());
    }
    note(format_args!("Creating {GROUP} resource group for auto-storage account"));
    let parameters = GroupCreateParameters { location: location.to_owned(), tags: None };
    client.call::<GroupsCreate>(&path, &[], &parameters).await?;
    Ok(())
}

async fn ensure_account(client: &Client, location: &str) -> Result<String, CliError> {
    let accounts: Vec<StorageAccount> = client.list::<AccountsListByGroup, _>(&[("group", GROUP)], &[]).await?;
    let here = canonical(location);
    if let Some(found) = accounts.into_iter().find(|account| canonical(&account.properties.primary_location) == here) {
        note(format_args!("Using existing {} storage account as an auto-storage account", found.name));
        return Ok(found.name);
    }
    let name = loop {
        let name = random_name()?;
        let request = NameAvailabilityRequest { name: name.clone(), kind: Some(STORAGE_ACCOUNT_TYPE.to_owned()) };
        if client.call::<AccountsCheckName>(&[], &[], &request).await?.name_available {
            break name;
        }
    };
    let parameters = AccountCreateParameters {
        sku: AccountSku { name: "Standard_LRS".to_owned(), tier: None },
        kind: "Storage".to_owned(),
        location: location.to_owned(),
        tags: None,
        identity: None,
        properties: None,
    };
    client.run::<AccountsCreate>(&[("group", GROUP), ("account", &name)], &parameters).await?;
    note(format_args!("Created auto storage account {name}"));
    Ok(name)
}

/// Normalises region names: `East US` and `eastus` are the same.
fn canonical(location: &str) -> String {
    location.to_lowercase().replace(' ', "")
}

fn random_name() -> Result<String, CliError> {
    let mut bytes = [0u8; RANDOM_LETTERS];
    getrandom::fill(&mut bytes).map_err(|error| CliError::from_error(&error))?;
    Ok(name_of(&bytes))
}

fn name_of(random: &[u8]) -> String {
    let letters = random.iter().map(|byte| char::from(b'a' + byte % 26));
    ACCOUNT_PREFIX.chars().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::names::{NameKind, check_name};

    #[test]
    fn names_are_those_of_accounts() {
        let name = name_of(&[0, 25, 26, 255, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(name, "baiazavbcdefghi");
        check_name(NameKind::StorageAccount, &name).expect("allowed");
    }

    #[test]
    fn regions_have_two_spellings() {
        assert_eq!(canonical("East US"), canonical("eastus"));
    }
}
