//! Operations of the resource provider for role definitions, as returned by `Operations_List`.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderOperation {
    pub name: String,
    pub display: OperationDisplay,
    pub origin: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationDisplay {
    pub provider: String,
    pub operation: String,
    pub resource: String,
    pub description: String,
}

/// Action, resource type, description.
const OPERATIONS: [(&str, &str, &str); 26] = [
    ("workspaces/read", "Workspaces", "List or get workspaces"),
    ("workspaces/write", "Workspaces", "Create or update a workspace"),
    ("workspaces/delete", "Workspaces", "Delete a workspace with everything in it"),
    ("workspaces/experiments/read", "Experiments", "List or get experiments"),
    ("workspaces/experiments/write", "Experiments", "Create or update an experiment"),
    ("workspaces/experiments/delete", "Experiments", "Delete an experiment with its jobs"),
    ("clusters/read", "Clusters", "List or get clusters"),
    ("workspaces/clusters/read", "Clusters", "List or get clusters"),
    ("workspaces/clusters/write", "Clusters", "Create or update a cluster"),
    ("workspaces/clusters/delete", "Clusters", "Delete a cluster"),
    ("workspaces/clusters/remoteLoginInformation/action", "Clusters", "List how to log in to a cluster's nodes"),
    ("workspaces/experiments/jobs/read", "Jobs", "List or get jobs"),
    ("workspaces/experiments/jobs/write", "Jobs", "Create or update a job"),
    ("workspaces/experiments/jobs/delete", "Jobs", "Delete a job"),
    ("workspaces/experiments/jobs/terminate/action", "Jobs", "Terminate a job"),
    ("workspaces/experiments/jobs/remoteLoginInformation/action", "Jobs", "List how to log in to a job's nodes"),
    ("workspaces/experiments/jobs/listoutputfiles/action", "Jobs", "List a job's output files"),
    ("fileservers/read", "Fileservers", "List or get file servers"),
    ("workspaces/fileservers/read", "Fileservers", "List or get file servers"),
    ("workspaces/fileservers/write", "Fileservers", "Create or update a file server"),
    ("workspaces/fileservers/delete", "Fileservers", "Delete a file server"),
    ("locations/usages/read", "Usages", "Get what is in use and what is allowed"),
    ("register/action", "Resource Provider", "Register the resource provider"),
    ("unregister/action", "Resource Provider", "Unregister the resource provider"),
    ("locations/operationresults/read", "Operation Results", "Get the result of an operation"),
    ("locations/operationstatuses/read", "Operation Statuses", "Get the status of an operation"),
];

pub fn provider_operations() -> Vec<ProviderOperation> {
    let operation = |(action, resource, text): (&str, &str, &str)| ProviderOperation {
        name: format!("Microsoft.BatchAI/{action}"),
        display: OperationDisplay {
            provider: "Microsoft Batch AI".to_owned(),
            operation: text.to_owned(),
            resource: format!("Batch AI {resource}"),
            description: text.to_owned(),
        },
        origin: "user,system".to_owned(),
    };
    OPERATIONS.into_iter().map(operation).collect()
}
