//! A directory of a job's output and its listing.

use corro_client::{Client, ClientError};
use corro_model::batchai::OutputFile;
use corro_model::ops::JobsListOutputFiles;

use crate::resource::resource_ref::ResourceRef;

/// A directory below one of the output directories of a job.
pub struct OutputDirectory {
    pub job: ResourceRef,
    /// `stdouterr`, or an id of the job's outputDirectories.
    pub id: String,
    pub path: String,
}

impl OutputDirectory {
    /// Lists the files, with SAS URLs that are valid for `expiry` minutes.
    pub async fn list(&self, client: &Client, expiry: u32) -> Result<Vec<OutputFile>, ClientError> {
        let expiry = expiry.to_string();
        let query = [
            ("outputdirectoryid", self.id.as_str()),
            ("directory", self.path.as_str()),
            ("linkexpiryinminutes", expiry.as_str()),
            ("maxresults", "1000"),
        ];
        client.list::<JobsListOutputFiles, _>(&self.job.values(), &query).await
    }
}
