//! Operations of the public API, one type each: method, path, request body, response. Each path is defined only here.
//! Fixed path segments match without regard to case.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use crate::api_versions::*;
use crate::arm::*;
use crate::batchai::*;
use crate::explain::Explanation;
use crate::history::HistoryEntry;
use crate::host::*;
use crate::metrics::JobMetrics;
use crate::usage::UsageReport;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    Get,
    Head,
    Put,
    Patch,
    Post,
    Delete,
}

impl Method {
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        }
    }
}

pub trait Operation {
    const ID: &'static str;
    const METHOD: Method;
    /// Path template with fixed segments and `{parameters}`.
    const PATH: &'static str;
    /// The `api-version` that Corro's client sends.
    const VERSION: &'static str;
    type Request: Serialize + DeserializeOwned + Send + 'static;
    type Response: Serialize + DeserializeOwned + Send + 'static;
}

/// A request or response without a body.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct NoBody {}

/// The path of `O` with its parameters filled in and percent-encoded.
pub fn path_of<O: Operation>(values: &[(&str, &str)]) -> String {
    fill(O::PATH, values)
}

fn fill(template: &str, values: &[(&str, &str)]) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    const PATH_SEGMENT_ESCAPES: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    let mut path = String::with_capacity(template.len() + 64);
    for segment in template.split('/').skip(1) {
        path.push('/');
        match segment.strip_prefix('{').and_then(|s| s.strip_suffix('}')) {
            None => path.push_str(segment),
            Some(name) => {
                let value = values.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value);
                path.extend(utf8_percent_encode(value, &PATH_SEGMENT_ESCAPES));
            }
        }
    }
    path
}

/// Matches `path` against `template` and returns its parameters, percent-decoded. Fixed segments match in any case.
pub fn match_path(template: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
    let mut found = Vec::new();
    let mut given = path.strip_prefix('/')?.trim_end_matches('/').split('/');
    for segment in template.split('/').skip(1) {
        let actual = given.next()?;
        match segment.strip_prefix('{').and_then(|s| s.strip_suffix('}')) {
            None if segment.eq_ignore_ascii_case(actual) => {}
            None => return None,
            Some(name) => {
                let value = percent_encoding::percent_decode_str(actual).decode_utf8().ok()?;
                if value.is_empty() {
                    return None;
                }
                found.push((name, value.into_owned()));
            }
        }
    }
    given.next().is_none().then_some(found)
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident $id:literal $method:ident $path:expr, $version:expr, $request:ty => $response:ty;)*) => {
        $(
            $(#[$doc])*
            pub struct $name;
            impl Operation for $name {
                const ID: &'static str = $id;
                const METHOD: Method = Method::$method;
                const PATH: &'static str = $path;
                const VERSION: &'static str = $version;
                type Request = $request;
                type Response = $response;
            }
        )*

        /// Id, method and path of every operation, for tables and tests.
        pub const ALL: &[(&str, Method, &str)] = &[$(($id, Method::$method, $path)),*];
    };
}

macro_rules! sub {
    ($rest:literal) => {
        concat!("/subscriptions/{subscription}", $rest)
    };
}
macro_rules! group {
    ($rest:literal) => {
        concat!("/subscriptions/{subscription}/resourceGroups/{group}", $rest)
    };
}
macro_rules! ws {
    ($rest:literal) => {
        concat!(
            "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.BatchAI/workspaces/{workspace}",
            $rest
        )
    };
}
macro_rules! sto {
    ($rest:literal) => {
        concat!(
            "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Storage/storageAccounts",
            $rest
        )
    };
}

operations! {
    TenantsList "Tenants_List" Get "/tenants", SUBSCRIPTIONS_VERSION, NoBody => Page<Tenant>;
    SubscriptionsList "Subscriptions_List" Get "/subscriptions", SUBSCRIPTIONS_VERSION, NoBody => Page<Subscription>;
    SubscriptionsGet "Subscriptions_Get" Get sub!(""), SUBSCRIPTIONS_VERSION, NoBody => Subscription;
    LocationsList "Subscriptions_ListLocations" Get sub!("/locations"), SUBSCRIPTIONS_VERSION, NoBody => Page<Location>;
    ProvidersList "Providers_List" Get sub!("/providers"), GROUPS_VERSION, NoBody => Page<Provider>;
    ProvidersGet "Providers_Get" Get sub!("/providers/{provider}"), GROUPS_VERSION, NoBody => Provider;
    /// Registers a provider. Clients do this before first use; every provider is already registered.
    ProvidersRegister "Providers_Register" Post sub!("/providers/{provider}/register"), GROUPS_VERSION, NoBody => Provider;
    ProvidersUnregister "Providers_Unregister" Post sub!("/providers/{provider}/unregister"), GROUPS_VERSION, NoBody => Provider;
    /// Query: `$filter`.
    ResourcesList "Resources_List" Get sub!("/resources"), GROUPS_VERSION, NoBody => Page<GenericResource>;
    ResourcesListByGroup "Resources_ListByResourceGroup" Get group!("/resources"), GROUPS_VERSION, NoBody => Page<GenericResource>;

    GroupsCreate "ResourceGroups_CreateOrUpdate" Put group!(""), GROUPS_VERSION, GroupCreateParameters => Group;
    GroupsUpdate "ResourceGroups_Update" Patch group!(""), GROUPS_VERSION, GroupUpdateParameters => Group;
    GroupsGet "ResourceGroups_Get" Get group!(""), GROUPS_VERSION, NoBody => Group;
    GroupsCheck "ResourceGroups_CheckExistence" Head group!(""), GROUPS_VERSION, NoBody => NoBody;
    GroupsList "ResourceGroups_List" Get sub!("/resourceGroups"), GROUPS_VERSION, NoBody => Page<Group>;
    GroupsDelete "ResourceGroups_Delete" Delete group!(""), GROUPS_VERSION, NoBody => NoBody;
    GroupOperation "ResourceGroups_OperationResult" Get sub!("/operationresults/{operation}"), GROUPS_VERSION, NoBody => NoBody;

    AccountsCreate "StorageAccounts_Create" Put sto!("/{account}"), STORAGE_VERSION, AccountCreateParameters => StorageAccount;
    AccountsUpdate "StorageAccounts_Update" Patch sto!("/{account}"), STORAGE_VERSION, AccountUpdateParameters => StorageAccount;
    AccountsGet "StorageAccounts_GetProperties" Get sto!("/{account}"), STORAGE_VERSION, NoBody => StorageAccount;
    AccountsListByGroup "StorageAccounts_ListByResourceGroup" Get sto!(""), STORAGE_VERSION, NoBody => Page<StorageAccount>;
    AccountsList "StorageAccounts_List" Get sub!("/providers/Microsoft.Storage/storageAccounts"), STORAGE_VERSION, NoBody => Page<StorageAccount>;
    AccountsListKeys "StorageAccounts_ListKeys" Post sto!("/{account}/listKeys"), STORAGE_VERSION, NoBody => AccountKeys;
    AccountsRegenerateKey "StorageAccounts_RegenerateKey" Post sto!("/{account}/regenerateKey"), STORAGE_VERSION, RegenerateKeyRequest => AccountKeys;
    AccountsDelete "StorageAccounts_Delete" Delete sto!("/{account}"), STORAGE_VERSION, NoBody => NoBody;
    AccountsCheckName "StorageAccounts_CheckNameAvailability" Post sub!("/providers/Microsoft.Storage/checkNameAvailability"), STORAGE_VERSION, NameAvailabilityRequest => NameAvailability;
    StorageUsages "Usages_ListByLocation" Get sub!("/providers/Microsoft.Storage/locations/{location}/usages"), STORAGE_VERSION, NoBody => Page<Usage>;
    /// Form of older clients, from before quotas were per region.
    StorageUsagesEverywhere "Usages_ListEverywhere" Get sub!("/providers/Microsoft.Storage/usages"), STORAGE_VERSION, NoBody => Page<Usage>;

    WorkspacesCreate "Workspaces_Create" Put ws!(""), BATCHAI_VERSION, WorkspaceCreateParameters => Workspace;
    WorkspacesUpdate "Workspaces_Update" Patch ws!(""), BATCHAI_VERSION, WorkspaceUpdateParameters => Workspace;
    WorkspacesGet "Workspaces_Get" Get ws!(""), BATCHAI_VERSION, NoBody => Workspace;
    WorkspacesDelete "Workspaces_Delete" Delete ws!(""), BATCHAI_VERSION, NoBody => NoBody;
    WorkspacesListByGroup "Workspaces_ListByResourceGroup" Get group!("/providers/Microsoft.BatchAI/workspaces"), BATCHAI_VERSION, NoBody => Page<Workspace>;
    WorkspacesList "Workspaces_List" Get sub!("/providers/Microsoft.BatchAI/workspaces"), BATCHAI_VERSION, NoBody => Page<Workspace>;

    ExperimentsCreate "Experiments_Create" Put ws!("/experiments/{experiment}"), BATCHAI_VERSION, NoBody => Experiment;
    ExperimentsGet "Experiments_Get" Get ws!("/experiments/{experiment}"), BATCHAI_VERSION, NoBody => Experiment;
    ExperimentsList "Experiments_ListByWorkspace" Get ws!("/experiments"), BATCHAI_VERSION, NoBody => Page<Experiment>;
    ExperimentsDelete "Experiments_Delete" Delete ws!("/experiments/{experiment}"), BATCHAI_VERSION, NoBody => NoBody;
    /// Corro extension: replaces the notifications of an experiment's jobs. An empty object removes them.
    ExperimentsNotify "Corro_Experiments_Notify" Put ws!("/experiments/{experiment}/notifications"), BATCHAI_VERSION, Notifications => Experiment;

    ClustersCreate "Clusters_Create" Put ws!("/clusters/{cluster}"), BATCHAI_VERSION, ClusterCreateParameters => Cluster;
    ClustersGet "Clusters_Get" Get ws!("/clusters/{cluster}"), BATCHAI_VERSION, NoBody => Cluster;
    ClustersUpdate "Clusters_Update" Patch ws!("/clusters/{cluster}"), BATCHAI_VERSION, ClusterUpdateParameters => Cluster;
    ClustersList "Clusters_ListByWorkspace" Get ws!("/clusters"), BATCHAI_VERSION, NoBody => Page<Cluster>;
    ClustersDelete "Clusters_Delete" Delete ws!("/clusters/{cluster}"), BATCHAI_VERSION, NoBody => NoBody;

    /// SSH login information of each node whose SSH endpoint is known.
    ClustersListRemoteLogin "Clusters_ListRemoteLoginInformation" Post ws!("/clusters/{cluster}/listRemoteLoginInformation"), BATCHAI_VERSION, NoBody => Page<RemoteLoginInformation>;

    FileServersCreate "FileServers_Create" Put ws!("/fileServers/{fileServer}"), BATCHAI_VERSION, FileServerCreateParameters => FileServer;
    FileServersGet "FileServers_Get" Get ws!("/fileServers/{fileServer}"), BATCHAI_VERSION, NoBody => FileServer;
    FileServersList "FileServers_ListByWorkspace" Get ws!("/fileServers"), BATCHAI_VERSION, NoBody => Page<FileServer>;
    FileServersDelete "FileServers_Delete" Delete ws!("/fileServers/{fileServer}"), BATCHAI_VERSION, NoBody => NoBody;

    JobsCreate "Jobs_Create" Put ws!("/experiments/{experiment}/jobs/{job}"), BATCHAI_VERSION, JobCreateParameters => Job;
    JobsGet "Jobs_Get" Get ws!("/experiments/{experiment}/jobs/{job}"), BATCHAI_VERSION, NoBody => Job;
    JobsList "Jobs_ListByExperiment" Get ws!("/experiments/{experiment}/jobs"), BATCHAI_VERSION, NoBody => Page<Job>;
    JobsDelete "Jobs_Delete" Delete ws!("/experiments/{experiment}/jobs/{job}"), BATCHAI_VERSION, NoBody => NoBody;
    JobsTerminate "Jobs_Terminate" Post ws!("/experiments/{experiment}/jobs/{job}/terminate"), BATCHAI_VERSION, NoBody => NoBody;
    /// Query: `outputdirectoryid` (required), `directory`, `linkexpiryinminutes`, `maxresults`.
    JobsListOutputFiles "Jobs_ListOutputFiles" Post ws!("/experiments/{experiment}/jobs/{job}/listOutputFiles"), BATCHAI_VERSION, NoBody => Page<OutputFile>;

    /// SSH login information of nodes that run the job now and whose SSH endpoint is known.
    JobsListRemoteLogin "Jobs_ListRemoteLoginInformation" Post ws!("/experiments/{experiment}/jobs/{job}/listRemoteLoginInformation"), BATCHAI_VERSION, NoBody => Page<RemoteLoginInformation>;

    OperationsList "Operations_List" Get "/providers/Microsoft.BatchAI/operations", BATCHAI_VERSION, NoBody => Page<ProviderOperation>;
    UsagesList "Usages_List" Get sub!("/providers/Microsoft.BatchAI/locations/{location}/usages"), BATCHAI_VERSION, NoBody => Page<Usage>;

    /// Target of the `Azure-AsyncOperation` header. The service's two names are the reverse of the usual.
    OperationResult "Operations_Result" Get sub!("/providers/Microsoft.BatchAI/locations/{location}/operationresults/{operation}"), BATCHAI_VERSION, NoBody => AsyncOperation;
    /// Target of the `Location` header: 202 while in progress, then 200.
    OperationStatus "Operations_Status" Get sub!("/providers/Microsoft.BatchAI/locations/{location}/operationstatuses/{operation}"), BATCHAI_VERSION, NoBody => NoBody;

    /// Corro extension: creates a principal. The password is only in this response.
    PrincipalsCreate "Corro_Principals_Create" Post sub!("/providers/Corro/principals"), BATCHAI_VERSION, PrincipalCreateParameters => PrincipalCredential;
    PrincipalsList "Corro_Principals_List" Get sub!("/providers/Corro/principals"), BATCHAI_VERSION, NoBody => Page<Principal>;
    PrincipalsGet "Corro_Principals_Get" Get sub!("/providers/Corro/principals/{principal}"), BATCHAI_VERSION, NoBody => Principal;
    PrincipalsDelete "Corro_Principals_Delete" Delete sub!("/providers/Corro/principals/{principal}"), BATCHAI_VERSION, NoBody => NoBody;
    /// Query: `years`.
    PrincipalsReset "Corro_Principals_ResetCredentials" Post sub!("/providers/Corro/principals/{principal}/resetCredentials"), BATCHAI_VERSION, NoBody => PrincipalCredential;
    /// Ends all logins and connections of a principal; its password stays valid.
    PrincipalsRevokeTokens "Corro_Principals_RevokeTokens" Post sub!("/providers/Corro/principals/{principal}/revokeTokens"), BATCHAI_VERSION, NoBody => NoBody;

    /// Corro extension: all nodes whose cluster the caller may read.
    NodesList "Corro_Nodes_List" Get sub!("/providers/Corro/nodes"), BATCHAI_VERSION, NoBody => Page<NodeSummary>;
    /// Corro extension: all clusters that the caller may read.
    ClustersListAll "Corro_Clusters_List" Get sub!("/providers/Corro/clusters"), BATCHAI_VERSION, NoBody => Page<Cluster>;
    /// Corro extension: all jobs that the caller may read, newest first. Query: `state`, `cluster` (an id), `text`,
    /// `marker`, `maxresults`.
    JobsListAll "Corro_Jobs_List" Get sub!("/providers/Corro/jobs"), BATCHAI_VERSION, NoBody => JobSummaries;
    /// Corro extension: all experiments that the caller may read, with the states of their jobs.
    ExperimentsListAll "Corro_Experiments_List" Get sub!("/providers/Corro/experiments"), BATCHAI_VERSION, NoBody => Page<ExperimentSummary>;
    /// Corro extension: version and start of the server.
    ServerGet "Corro_Server_Get" Get sub!("/providers/Corro/server"), BATCHAI_VERSION, NoBody => ServerStatus;
    /// Corro extension: the principal that the request's token belongs to.
    CallerGet "Corro_Caller_Get" Get sub!("/providers/Corro/caller"), BATCHAI_VERSION, NoBody => CallerIdentity;
    /// Corro extension: resources with `text` in their name that the caller may read, best match first. Query: `text`,
    /// `maxresults`.
    Search "Corro_Search" Get sub!("/providers/Corro/search"), BATCHAI_VERSION, NoBody => Page<SearchResult>;
    /// Corro extension: the shares of all accounts that the caller may read.
    SharesListAll "Corro_Shares_List" Get sub!("/providers/Corro/shares"), BATCHAI_VERSION, NoBody => Page<ShareSummary>;
    /// Corro extension: creates a share, for clients that hold no account key.
    SharesCreate "Corro_Shares_Create" Put sto!("/{account}/shares/{share}"), STORAGE_VERSION, NoBody => ShareSummary;
    /// Corro extension: SAS query string for a share. Requires the permission to list the account's keys.
    SharesLink "Corro_Shares_Link" Post sto!("/{account}/shares/{share}/link"), STORAGE_VERSION, NoBody => ShareLink;
    /// Corro extension: node counts of a cluster over time. Query: `hours`.
    ClustersHistory "Corro_Clusters_History" Get ws!("/clusters/{cluster}/history"), BATCHAI_VERSION, NoBody => ClusterHistory;
    /// Corro extension: preempts a node of a low-priority cluster.
    NodesPreempt "Corro_Nodes_Preempt" Post ws!("/clusters/{cluster}/nodes/{node}/preempt"), BATCHAI_VERSION, PreemptParameters => NodeSummary;
    /// Corro extension: CPU and memory of a node's tasks over time, as far as the server has recorded them.
    NodesResources "Corro_Nodes_Resources" Get ws!("/clusters/{cluster}/nodes/{node}/resources"), BATCHAI_VERSION, NoBody => NodeResources;
    /// Corro extension: CPU and memory of a job's last attempt over time, by node.
    JobsResources "Corro_Jobs_Resources" Get ws!("/experiments/{experiment}/jobs/{job}/resources"), BATCHAI_VERSION, NoBody => JobResources;
    /// Corro extension: current resource usage of a job's processes, queried from the agents of its nodes.
    JobsProcesses "Corro_Jobs_Processes" Get ws!("/experiments/{experiment}/jobs/{job}/processes"), BATCHAI_VERSION, NoBody => JobProcesses;
    /// Corro extension: starts a timeline recording on all ranks of a running job.
    JobsRecordTimeline "Corro_Jobs_RecordTimeline" Post ws!("/experiments/{experiment}/jobs/{job}/timeline"), BATCHAI_VERSION, TimelineParameters => JobTimeline;
    /// Corro extension: the last recorded timeline, as a Chrome trace.
    JobsTimeline "Corro_Jobs_Timeline" Get ws!("/experiments/{experiment}/jobs/{job}/timeline"), BATCHAI_VERSION, NoBody => JobTimeline;
    /// Corro extension: changes the note, tags or pin of a job.
    JobsAnnotate "Corro_Jobs_Annotate" Patch ws!("/experiments/{experiment}/jobs/{job}/annotations"), BATCHAI_VERSION, AnnotationChanges => JobAnnotations;
    /// Corro extension: explains the state of a job in plain words, with its events.
    JobsWhy "Corro_Jobs_Why" Get ws!("/experiments/{experiment}/jobs/{job}/why"), BATCHAI_VERSION, NoBody => Explanation;

    /// Corro extension: upgrades the connection to a WebSocket that carries a byte stream to a port of a running job's
    /// node. `target`: the port, `notebook` or `ssh`. Query: `node` (an id; default: the first node).
    JobsTunnel "Corro_Jobs_Tunnel" Get ws!("/experiments/{experiment}/jobs/{job}/tunnels/{target}"), BATCHAI_VERSION, NoBody => NoBody;

    /// Corro extension: training curves from a job's output. Query: `names`, `ranks` (comma-separated numbers, `all` or
    /// `average`), `points`, `after`. `Accept: text/csv` returns CSV.
    JobsMetrics "Corro_Jobs_Metrics" Get ws!("/experiments/{experiment}/jobs/{job}/metrics"), BATCHAI_VERSION, NoBody => JobMetrics;

    /// Corro extension: creates a join token for hosts. The token is only in this response.
    HostTokensCreate "Corro_HostTokens_Create" Post sub!("/providers/Corro/hostTokens"), BATCHAI_VERSION, HostTokenParameters => HostTokenCreated;
    HostTokensList "Corro_HostTokens_List" Get sub!("/providers/Corro/hostTokens"), BATCHAI_VERSION, NoBody => Page<HostToken>;
    /// Revokes a join token; hosts that joined with it stay.
    HostTokensDelete "Corro_HostTokens_Delete" Delete sub!("/providers/Corro/hostTokens/{token}"), BATCHAI_VERSION, NoBody => NoBody;
    /// Corro extension: hosts that have joined.
    HostsList "Corro_Hosts_List" Get sub!("/providers/Corro/hosts"), BATCHAI_VERSION, NoBody => Page<Host>;
    HostsGet "Corro_Hosts_Get" Get sub!("/providers/Corro/hosts/{host}"), BATCHAI_VERSION, NoBody => Host;
    HostsCordon "Corro_Hosts_Cordon" Post sub!("/providers/Corro/hosts/{host}/cordon"), BATCHAI_VERSION, NoBody => Host;
    HostsUncordon "Corro_Hosts_Uncordon" Post sub!("/providers/Corro/hosts/{host}/uncordon"), BATCHAI_VERSION, NoBody => Host;
    HostsDrain "Corro_Hosts_Drain" Post sub!("/providers/Corro/hosts/{host}/drain"), BATCHAI_VERSION, DrainParameters => Host;
    /// Query: `now`.
    HostsRemove "Corro_Hosts_Remove" Delete sub!("/providers/Corro/hosts/{host}"), BATCHAI_VERSION, NoBody => NoBody;

    /// Corro extension: history, newest first. Query: `resource`, `kind`, `actor`, `since`, `marker`, `after` (oldest
    /// first), `maxresults`.
    HistoryList "Corro_History" Get sub!("/providers/Corro/history"), BATCHAI_VERSION, NoBody => Page<HistoryEntry>;
    /// Corro extension: node-hours of jobs (quotas are `usages`). Query: `since`, `until`, `by` (user, experiment,
    /// cluster, job).
    UsageGet "Corro_Usage" Get sub!("/providers/Corro/usage"), BATCHAI_VERSION, NoBody => UsageReport;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_fill_and_match_back_in_any_case() {
        let values = [("subscription", "s"), ("group", "a b"), ("workspace", "w"), ("experiment", "e"), ("job", "j")];
        let path = path_of::<JobsGet>(&values);
        assert_eq!(
            path,
            "/subscriptions/s/resourceGroups/a%20b/providers/Microsoft.BatchAI/workspaces/w/experiments/e/jobs/j"
        );
        let lower = path.replace("resourceGroups", "resourcegroups").replace("BatchAI", "batchai");
        let found = match_path(JobsGet::PATH, &lower).expect("case does not matter");
        assert!(found.contains(&("group", "a b".to_owned())));
        assert_eq!(match_path(JobsGet::PATH, "/subscriptions/s"), None);
        assert_eq!(match_path(JobsGet::PATH, &format!("{path}/more")), None);
    }

    #[test]
    fn no_two_operations_answer_the_same_request() {
        for (i, (id, method, path)) in ALL.iter().enumerate() {
            for (other, other_method, other_path) in &ALL[i + 1..] {
                assert!(method != other_method || path != other_path, "{id} and {other} are the same request");
            }
        }
    }
}
