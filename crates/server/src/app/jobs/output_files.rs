//! Output files of a job, listed from the share or container they are stored on, each with a temporary download URL.

use corro_model::batchai::{FileProperties, FileType, MountVolumes, OutputFile, STDOUTERR};
use corro_model::mount::{find_container, find_share};
use corro_model::storage::sas;
use corro_model::{ApiError, Timestamp};
use corro_shares::{Kind, PageRequest, Share, ShareError, SharePath};
use corro_store::{JobRecord, State};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::app::App;
use crate::app::access::caller::ClientProgram;
use crate::app::resources::lookup::{JobPath, find_job};

/// Parameters of a listing.
#[derive(Clone, Debug)]
pub struct Listing {
    pub output_directory_id: String,
    /// Path relative to the output directory.
    pub directory: String,
    pub link_expiry_minutes: i64,
    pub max_results: usize,
    /// First name of the page; empty for the first page.
    pub from: String,
}

const PATH_ESCAPES: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

impl App {
    /// Lists the files and returns the name at which the next page begins. A missing directory yields an empty list.
    /// Blocking: reads a directory.
    pub fn output_files(
        &self,
        path: &JobPath,
        listing: &Listing,
        base_url: &str,
    ) -> Result<(Vec<OutputFile>, Option<String>), ApiError> {
        let snapshot = self.snapshot();
        let (_, job) = find_job(&snapshot, path)?;
        if let ClientProgram::Azure(address) = &self.request.client {
            self.telemetry.log_followers.record_listing(address, &job.segment, self.now());
        }
        let id = listing.output_directory_id.as_str();
        let tree = output_tree(&snapshot, &job, id).ok_or_else(|| {
            let message = format!("The specified outputDirectoryId {id} is not present on a mount root");
            ApiError::new(400, "OutputDirectoryNotOnMountRoot", message).about("outputdirectoryid")
        })?;
        let (account, share_name) = (tree.account, tree.name);
        let text = normalize(&format!("{}/{}", tree.inside, listing.directory));
        let directory = SharePath::parse(&text).map_err(|error| {
            ApiError::invalid("directory", format!("'{}' cannot be listed: {error}", listing.directory))
        })?;
        let page = PageRequest { prefix: "", from: &listing.from, limit: listing.max_results, described: false };
        let page = match self.open_tree(&tree).and_then(|share| share.list_page(&directory, page)) {
            Ok(page) => page,
            Err(error) if is_missing(&error) => return Ok((Vec::new(), None)),
            Err(error) => return Err(unreadable(&error)),
        };
        let Some(key) = self.raw_account_keys(account).and_then(|keys| keys.into_iter().next()) else {
            return Ok((Vec::new(), None));
        };
        let expires = self.now().seconds() + listing.link_expiry_minutes * 60;
        let file = |entry: &corro_shares::Entry| {
            if entry.kind() == Kind::Directory {
                return Ok(OutputFile {
                    name: entry.name.clone(),
                    file_type: FileType::Directory,
                    download_url: None,
                    properties: None,
                });
            }
            let path = match directory.is_root() {
                true => entry.name.clone(),
                false => format!("{}/{}", directory.as_str(), entry.name),
            };
            let resource = if tree.is_container { sas::Resource::Blob } else { sas::Resource::File };
            // The link is tied to the caller's credential and becomes invalid with it.
            let query = sas::link_query(
                resource,
                "rl",
                &key,
                (account, share_name, &path),
                expires,
                &self.request.caller.credential,
            )
            .map_err(|error| ApiError::invalid("linkexpiryinminutes", error.to_string()))?;
            let url =
                format!("{base_url}/{account}/{share_name}/{}?{query}", utf8_percent_encode(&path, &PATH_ESCAPES));
            let modified = Timestamp::from(entry.modified()).seconds() * 1000;
            Ok(OutputFile {
                name: entry.name.clone(),
                file_type: FileType::File,
                download_url: Some(url),
                properties: Some(FileProperties {
                    last_modified: Timestamp::from_millis(modified),
                    content_length: entry.len(),
                }),
            })
        };
        // The API has only files and directories. A dangling symbolic link is neither.
        let entries = page.entries.iter().filter(|entry| entry.kind() != Kind::Link);
        let files = entries.map(file).collect::<Result<_, ApiError>>()?;
        Ok((files, page.next))
    }
}

impl App {
    pub fn open_tree(&self, tree: &OutputTree) -> Result<Share, ShareError> {
        match tree.is_container {
            true => self.storage.shares.container(tree.account, tree.name),
            false => self.storage.shares.share(tree.account, tree.name),
        }
    }
}

/// Path on a share or in a container.
pub struct OutputTree<'a> {
    account: &'a str,
    name: &'a str,
    pub inside: String,
    is_container: bool,
}

/// Location of the job's output directory `id`. `None` if there is no such directory, or it is on a node's local disk.
pub fn output_tree<'a>(snapshot: &'a State, job: &'a JobRecord, id: &str) -> Option<OutputTree<'a>> {
    let (prefix, below) = if id == STDOUTERR {
        (job.spec.std_out_err_path_prefix.as_str(), format!("{}/stdouterr", job.segment))
    } else {
        let directory = job.spec.output_directories.iter().find(|directory| directory.id == id)?;
        let suffix = directory.path_suffix.as_deref().unwrap_or_default();
        (directory.path_prefix.as_str(), format!("{}/outputs/{suffix}", job.segment))
    };
    let tree = tree_at(snapshot, job, prefix)?;
    Some(OutputTree { inside: normalize(&format!("{}/{below}", tree.inside)), ..tree })
}

/// Location of a path of a job file that begins with a mount root. `None` if it is not on a share or in a container.
pub fn tree_at<'a>(snapshot: &'a State, job: &'a JobRecord, path: &str) -> Option<OutputTree<'a>> {
    let cluster = snapshot.clusters.get(&job.cluster);
    let volumes = cluster.and_then(|cluster| cluster.spec.node_setup.as_ref()?.mount_volumes.as_ref());
    find_tree(path, volumes, job.spec.mount_volumes.as_ref())
}

fn find_tree<'a>(
    path: &str,
    cluster: Option<&'a MountVolumes>,
    job: Option<&'a MountVolumes>,
) -> Option<OutputTree<'a>> {
    if let Some(found) = find_share(path, cluster, job) {
        let (account, name) = found.share.account().zip(found.share.share_name())?;
        return Some(OutputTree { account, name, inside: found.inside, is_container: false });
    }
    let (container, inside) = find_container(path, cluster, job)?;
    Some(OutputTree {
        account: container.account_name.as_deref()?,
        name: &container.container_name,
        inside,
        is_container: true,
    })
}

/// Removes empty and `.` components. `..` stays and is rejected by [`SharePath`].
fn normalize(path: &str) -> String {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").collect::<Vec<_>>().join("/")
}

/// Whether the error means that nothing is there; includes invalid names.
fn is_missing(error: &ShareError) -> bool {
    matches!(error.code(), "ResourceNotFound" | "ParentNotFound" | "ShareNotFound" | "InvalidResourceName")
}

fn unreadable(error: &ShareError) -> ApiError {
    tracing::error!(error = error as &dyn std::error::Error, "a job's output directory cannot be read");
    ApiError::new(500, "InternalError", "The server cannot read the job's output directory. See the server's log.")
}
