//! The resources of a submitted job: group, workspace, experiment, cluster, storage account and share. Finds those that exist and creates what is
//! missing. Creating is idempotent, so a second run after an interruption goes on where the first one stopped.

use corro_client::{Client, Credential, FileService};
use corro_model::arm::{
    AccountCreateParameters, AccountSku, GroupCreateParameters, NameAvailabilityRequest, StorageAccount,
};
use corro_model::batchai::{
    AutoScaleSettings, Cluster, ClusterCreateParameters, ClusterSpec, ClusterUpdateParameters, ClusterUpdateProperties,
    ScaleSettings, WorkspaceCreateParameters,
};
use corro_model::ops::{
    AccountsCheckName, AccountsCreate, AccountsGet, AccountsListByGroup, ClustersCreate, ClustersList, ClustersUpdate,
    ExperimentsCreate, ExperimentsGet, GroupsCheck, GroupsCreate, GroupsGet, NoBody, WorkspacesCreate, WorkspacesGet,
};

use super::names::{self, NodeResources};
use crate::commands::batchai::admin_account::{self, AdminArgs};
use crate::commands::storage::auth::find_account_key;
use crate::error::CliError;
use crate::output::units::format_count;
use crate::session::Session;
use crate::stdio::note;

/// Names of a job's resources. `None`: found or created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceNames {
    pub group: String,
    pub workspace: String,
    pub experiment: String,
    pub cluster: Option<String>,
    pub account: Option<String>,
    pub share: String,
}

/// Location of new groups. It is only reported.
const LOCATION: &str = "eastus";
/// Tag of the storage account that holds the directories of submitted jobs.
const ACCOUNT_TAG: (&str, &str) = ("purpose", "corro-submit");

/// Creates group, workspace and experiment if they do not exist.
pub async fn ensure_experiment(client: &Client, names: &ResourceNames) -> Result<(), CliError> {
    let path = [("group", &*names.group), ("workspace", &names.workspace), ("experiment", &names.experiment)];
    if client.find::<ExperimentsGet>(&path).await?.is_some() {
        return Ok(());
    }
    let mut created = ensure_workspace(client, &names.group, &names.workspace).await?;
    client.run::<ExperimentsCreate>(&path, &NoBody {}).await?;
    created.push(format!("experiment {}", names.experiment));
    note(format_args!("Created {}", created.join(", ")));
    Ok(())
}

/// Creates group and workspace if they do not exist. Returns what was created.
pub async fn ensure_workspace(client: &Client, group: &str, workspace: &str) -> Result<Vec<String>, CliError> {
    let path = [("group", group), ("workspace", workspace)];
    let mut created = ensure_group(client, group).await?;
    if client.find::<WorkspacesGet>(&path).await?.is_none() {
        let location = client.get::<GroupsGet>(&path).await?.location;
        client
            .run::<WorkspacesCreate>(&path, &WorkspaceCreateParameters { location, tags: Default::default() })
            .await?;
        created.push(format!("workspace {workspace}"));
    }
    Ok(created)
}

/// Creates the group if it does not exist. Returns what was created.
pub async fn ensure_group(client: &Client, group: &str) -> Result<Vec<String>, CliError> {
    let path = [("group", group)];
    if client.exists::<GroupsCheck>(&path).await? {
        return Ok(Vec::new());
    }
    let parameters = GroupCreateParameters { location: LOCATION.to_owned(), tags: None };
    client.call::<GroupsCreate>(&path, &[], &parameters).await?;
    Ok(vec![format!("resource group {group}")])
}

/// What to do about the cluster of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterChoice {
    /// This cluster has enough nodes, or can have.
    Use(String),
    /// This cluster follows its jobs, and its maximum has to be raised.
    Grow(String),
    /// No cluster fits: make this one.
    Create { name: String, vm_size: &'static str },
}

/// Facts about an existing cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFacts {
    pub name: String,
    pub vm_size: String,
    /// The most nodes that it has or may have.
    pub max_nodes: u32,
    pub scales: bool,
}

impl ClusterFacts {
    fn of(cluster: &Cluster) -> ClusterFacts {
        let scale = &cluster.properties.spec.scale_settings;
        let manual = scale.manual.as_ref().map(|manual| manual.target_node_count);
        let automatic = scale.auto_scale.as_ref().map(|scale| scale.maximum_node_count);
        ClusterFacts {
            name: cluster.name.clone(),
            vm_size: cluster.properties.spec.vm_size.clone(),
            max_nodes: manual.or(automatic).unwrap_or(0).try_into().unwrap_or(0),
            scales: automatic.is_some(),
        }
    }

    fn fits(&self, wanted: &NodeResources) -> bool {
        wanted.is_empty() || corro_model::vm_size::find(&self.vm_size).is_some_and(|size| wanted.fit(size))
    }
}

/// Chooses the cluster for a job of `nodes` nodes. Pure. A named cluster must exist and fit. Otherwise the first choice is the cluster that an earlier
/// submission made for these resources, then the only cluster that fits.
pub fn choose_cluster(
    clusters: &[ClusterFacts],
    named: Option<&str>,
    nodes: u32,
    wanted: &NodeResources,
) -> Result<ClusterChoice, CliError> {
    let use_or_grow = |cluster: &ClusterFacts| match cluster {
        cluster if cluster.max_nodes >= nodes => Ok(ClusterChoice::Use(cluster.name.clone())),
        cluster if cluster.scales => Ok(ClusterChoice::Grow(cluster.name.clone())),
        cluster => Err(CliError::new(format!(
            "the cluster {} has {}, and the job needs {nodes}",
            cluster.name,
            format_count(cluster.max_nodes.into(), "node")
        ))
        .hint(format!(
            "give it more nodes with 'corro cluster resize {} -t {nodes}', or use another --cluster",
            cluster.name
        ))),
    };
    let size = names::smallest_vm_size(wanted).ok_or_else(|| {
        CliError::new(format!("no VM size has {}", wanted.text()))
            .hint("ask for less on each node, and for more nodes with --nodes")
    })?;
    if let Some(name) = named {
        let find = |cluster: &&ClusterFacts| cluster.name.eq_ignore_ascii_case(name);
        let Some(cluster) = clusters.iter().find(find) else {
            return Ok(ClusterChoice::Create { name: name.to_owned(), vm_size: size.name });
        };
        if !cluster.fits(wanted) {
            return Err(CliError::new(format!(
                "the nodes of the cluster {} ({}) do not have {}",
                cluster.name,
                cluster.vm_size,
                wanted.text()
            ))
            .hint("use another --cluster, or leave it out to get one that fits"));
        }
        return use_or_grow(cluster);
    }
    let own = names::cluster_name(wanted, size);
    if let Some(cluster) = clusters.iter().find(|cluster| cluster.name == own && cluster.fits(wanted)) {
        return use_or_grow(cluster);
    }
    let fitting: Vec<&ClusterFacts> = clusters
        .iter()
        .filter(|cluster| cluster.fits(wanted) && (cluster.max_nodes >= nodes || cluster.scales))
        .collect();
    match fitting[..] {
        [only] => use_or_grow(only),
        _ => Ok(ClusterChoice::Create { name: own, vm_size: size.name }),
    }
}

/// The cluster that runs the job, created or grown if necessary. Returns its id and name.
pub async fn ensure_cluster(
    client: &Client,
    names: &ResourceNames,
    nodes: u32,
    wanted: &NodeResources,
) -> Result<(String, String), CliError> {
    let workspace = [("group", &*names.group), ("workspace", &names.workspace)];
    let clusters: Vec<Cluster> = client.list::<ClustersList, _>(&workspace, &[]).await?;
    let facts: Vec<ClusterFacts> = clusters.iter().map(ClusterFacts::of).collect();
    let choice = choose_cluster(&facts, names.cluster.as_deref(), nodes, wanted)?;
    let cluster = match &choice {
        ClusterChoice::Use(name) => clusters.into_iter().find(|cluster| cluster.name == *name).expect("it was chosen"),
        ClusterChoice::Grow(name) => {
            note(format_args!("Raising the maximum of the cluster {name} to {}", format_count(nodes.into(), "node")));
            let found = clusters.into_iter().find(|cluster| cluster.name == *name).expect("it was chosen");
            let scale = found.properties.spec.scale_settings.auto_scale.expect("it follows its jobs");
            let scale = AutoScaleSettings { maximum_node_count: nodes as i32, ..scale };
            let scale_settings = Some(ScaleSettings { manual: None, auto_scale: Some(scale) });
            let update = ClusterUpdateParameters { properties: ClusterUpdateProperties { scale_settings } };
            client.run::<ClustersUpdate>(&[&workspace[..], &[("cluster", name)]].concat(), &update).await?
        }
        ClusterChoice::Create { name, vm_size } => {
            note(format_args!(
                "Creating the cluster {name}: up to {} of size {vm_size}, none while no job needs them",
                format_count(nodes.into(), "node")
            ));
            let parameters = ClusterCreateParameters { properties: cluster_spec(vm_size, nodes)? };
            client.run::<ClustersCreate>(&[&workspace[..], &[("cluster", name)]].concat(), &parameters).await?
        }
    };
    Ok((cluster.id, cluster.name))
}

fn cluster_spec(vm_size: &str, nodes: u32) -> Result<ClusterSpec, CliError> {
    let account = admin_account::account(&AdminArgs::generating_keys(), Default::default())?;
    let scale = AutoScaleSettings { minimum_node_count: 0, maximum_node_count: nodes as i32, initial_node_count: 0 };
    Ok(ClusterSpec {
        vm_size: vm_size.to_owned(),
        vm_priority: Default::default(),
        scale_settings: ScaleSettings { manual: None, auto_scale: Some(scale) },
        virtual_machine_configuration: None,
        user_account_settings: account,
        node_setup: None,
        subnet: None,
    })
}

/// The storage account for job directories and a client for its files, with the share created.
pub async fn ensure_share(session: &Session, names: &ResourceNames) -> Result<(String, FileService), CliError> {
    let client = session.client()?;
    let account = ensure_account(client, &names.group, names.account.as_deref()).await?;
    let key = find_account_key(client, &account).await?;
    let endpoint = format!("{}/{account}", client.server());
    let files = FileService::new(&endpoint, &account, Credential::Key(key))?.trusting(&session.trust()?)?;
    if files.create_share(&names.share, None, &Default::default()).await? {
        note(format_args!("Created share {} in storage account {account}", names.share));
    }
    Ok((account, files))
}

/// The named account, the group's account for submitted jobs, the group's only account, or a new one.
pub async fn ensure_account(client: &Client, group: &str, named: Option<&str>) -> Result<String, CliError> {
    let accounts: Vec<StorageAccount> = client.list::<AccountsListByGroup, _>(&[("group", group)], &[]).await?;
    if let Some(name) = named {
        // It may be in another group.
        if accounts.iter().any(|account| account.name == name) || find_account_key(client, name).await.is_ok() {
            return Ok(name.to_owned());
        }
        return create_account(client, group, name).await;
    }
    let has_tag =
        |account: &&StorageAccount| account.tags.get(ACCOUNT_TAG.0).is_some_and(|value| value == ACCOUNT_TAG.1);
    match (accounts.iter().find(has_tag), &accounts[..]) {
        (Some(account), _) | (None, [account]) => Ok(account.name.clone()),
        _ => create_account(client, group, &free_account_name(client, group).await?).await,
    }
}

/// A name that no account has: that of the group, else with a number.
async fn free_account_name(client: &Client, group: &str) -> Result<String, CliError> {
    const MAX_NUMBER: u32 = 99;
    let base = names::account_name(group);
    for number in 1..=MAX_NUMBER {
        let name = if number == 1 { base.clone() } else { format!("{}{number}", &base[..base.len().min(22)]) };
        let request = NameAvailabilityRequest { name: name.clone(), kind: None };
        if client.call::<AccountsCheckName>(&[], &[], &request).await?.name_available {
            return Ok(name);
        }
    }
    Err(CliError::new(format!("no name like {base} is free for a storage account"))
        .hint("name one with --account-name"))
}

async fn create_account(client: &Client, group: &str, name: &str) -> Result<String, CliError> {
    let path = [("group", group), ("account", name)];
    let location = client.get::<GroupsGet>(&path).await?.location;
    let (key, value) = ACCOUNT_TAG;
    let parameters = AccountCreateParameters {
        sku: AccountSku { name: "Standard_LRS".to_owned(), tier: None },
        kind: "Storage".to_owned(),
        location,
        tags: Some([(key.to_owned(), value.to_owned())].into()),
        identity: None,
        properties: None,
    };
    client.run::<AccountsCreate>(&path, &parameters).await?;
    Ok(client.get::<AccountsGet>(&path).await?.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str, vm_size: &str, max_nodes: u32, scales: bool) -> ClusterFacts {
        ClusterFacts { name: name.to_owned(), vm_size: vm_size.to_owned(), max_nodes, scales }
    }

    fn check(
        clusters: &[ClusterFacts],
        named: Option<&str>,
        nodes: u32,
        gpus: Option<u32>,
        expected: Result<&str, &str>,
    ) {
        let wanted = NodeResources { gpus, ..NodeResources::default() };
        let chosen = choose_cluster(clusters, named, nodes, &wanted).map(|choice| match choice {
            ClusterChoice::Use(name) => format!("use {name}"),
            ClusterChoice::Grow(name) => format!("grow {name}"),
            ClusterChoice::Create { name, vm_size } => format!("create {name} {vm_size}"),
        });
        let chosen = chosen.map_err(|error| error.message);
        assert_eq!(chosen.as_deref().map_err(|error| error.as_str()), expected);
    }

    #[test]
    fn without_clusters_one_is_created() {
        check(&[], None, 4, None, Ok("create default STANDARD_D2_V2"));
        check(&[], None, 1, Some(1), Ok("create nc6 STANDARD_NC6"));
        check(&[], Some("mine"), 1, None, Ok("create mine STANDARD_D2_V2"));
        check(&[], None, 1, Some(99), Err("no VM size has 99 GPUs"));
    }

    #[test]
    fn an_existing_cluster_is_used_if_it_fits() {
        let cpu = || cluster("four", "STANDARD_D2_V2", 4, false);
        let gpu = || cluster("gpus", "STANDARD_NC12", 2, true);
        check(&[cpu()], None, 4, None, Ok("use four"));
        check(&[cpu()], None, 5, None, Ok("create default STANDARD_D2_V2"));
        check(&[cpu()], None, 1, Some(1), Ok("create nc6 STANDARD_NC6"));
        check(&[cpu(), gpu()], None, 1, Some(2), Ok("use gpus"));
        check(&[cpu(), gpu()], None, 3, Some(1), Ok("grow gpus"));
        // Two fit: neither is meant.
        check(&[cpu(), gpu()], None, 1, None, Ok("create default STANDARD_D2_V2"));
        check(&[cpu(), cluster("default", "STANDARD_D2_V2", 1, true)], None, 2, None, Ok("grow default"));
    }

    #[test]
    fn a_named_cluster_is_used_or_refused() {
        let clusters = [cluster("four", "STANDARD_D2_V2", 4, false), cluster("gpus", "STANDARD_NC6", 2, true)];
        check(&clusters, Some("FOUR"), 2, None, Ok("use four"));
        check(&clusters, Some("gpus"), 3, Some(1), Ok("grow gpus"));
        check(&clusters, Some("four"), 8, None, Err("the cluster four has 4 nodes, and the job needs 8"));
        let message = "the nodes of the cluster four (STANDARD_D2_V2) do not have 1 GPU";
        check(&clusters, Some("four"), 1, Some(1), Err(message));
    }
}
