//! The TensorBoard event files of a job: those in the directory of a submitted job, and those in the output directories of other jobs, each with a link
//! by which it can be read.

use corro_client::{Client, ClientError, Credential, FileService};
use corro_model::batchai::{Job, STDOUTERR};

use crate::commands::storage::auth::find_account_key;
use crate::error::CliError;
use crate::job_follow::output_directory::OutputDirectory;
use crate::project_upload::job_directory::{JobDirectory, OWN_DIRECTORY};
use crate::resource::resource_ref::ResourceRef;
use crate::session::Session;

/// Part of the name of every event file.
const EVENT_FILE: &str = ".tfevents.";
const LINK_MINUTES: u32 = 60;
/// Directories that are looked into in each output directory.
const MAX_DIRECTORIES: usize = 500;

/// An event file of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFile {
    /// Path below the job's directory in the mirror.
    pub path: String,
    /// SAS URL, valid for an hour.
    pub link: String,
}

impl EventFile {
    /// Account, share and path on the share, from the link: `SERVER/ACCOUNT/SHARE/PATH?...`.
    pub fn location(&self, server: &str) -> Option<(String, String, String)> {
        let path = self.link.split('?').next()?.strip_prefix(server)?.strip_prefix('/')?;
        let mut parts = path.splitn(3, '/').map(decode);
        Some((parts.next()??, parts.next()??, parts.next()??))
    }
}

/// Lists the event files of a job. A job that has not started has none.
pub async fn list(session: &Session, target: &ResourceRef, job: &Job) -> Result<Vec<EventFile>, CliError> {
    match JobDirectory::of(&job.properties.spec) {
        Some(directory) => of_directory(session, &directory).await,
        None => {
            let outputs = &job.properties.spec.output_directories;
            let ids = outputs.iter().map(|directory| directory.id.as_str()).chain([STDOUTERR]);
            let mut found = Vec::new();
            for id in ids {
                of_output_directory(session.client()?, target, id, &mut found)
                    .await
                    .map_err(|error| target.request_error(error))?;
            }
            Ok(found)
        }
    }
}

/// Event files anywhere in the directory of a submitted job.
async fn of_directory(session: &Session, directory: &JobDirectory) -> Result<Vec<EventFile>, CliError> {
    let client = session.client()?;
    let key = find_account_key(client, &directory.account).await?;
    let endpoint = format!("{}/{}", client.server(), directory.account);
    let files = FileService::new(&endpoint, &directory.account, Credential::Key(key))?.trusting(&session.trust()?)?;
    let walked = match files.walk(&directory.share, &directory.path).await {
        Ok(walked) => walked,
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let prefix = format!("{}/", directory.path);
    let event_file = |path: String| {
        let below = path.strip_prefix(&prefix).filter(|below| is_event_file(below))?;
        let link = files.read_link(&directory.share, &path, LINK_MINUTES)?;
        Some(EventFile { path: below.to_owned(), link })
    };
    // A link may lead out of the job's directory.
    Ok(walked.into_iter().filter(|file| file.link.is_none()).filter_map(|file| event_file(file.path)).collect())
}

/// Event files in an output directory and the directories below it.
async fn of_output_directory(
    client: &Client,
    target: &ResourceRef,
    id: &str,
    found: &mut Vec<EventFile>,
) -> Result<(), ClientError> {
    let mut directories = vec![".".to_owned()];
    let mut n_looked_at = 0;
    while let Some(path) = directories.pop().filter(|_| n_looked_at < MAX_DIRECTORIES) {
        n_looked_at += 1;
        let directory = OutputDirectory { job: target.clone(), id: id.to_owned(), path: path.clone() };
        let listed = match directory.list(client, LINK_MINUTES).await {
            Ok(listed) => listed,
            // A queued job has no directories yet.
            Err(error) if error.is_not_found() || error.status() == Some(409) => return Ok(()),
            Err(error) => return Err(error),
        };
        for file in listed {
            let below = if path == "." { file.name.clone() } else { format!("{path}/{}", file.name) };
            match file.download_url {
                Some(link) if is_event_file(&below) => {
                    let path = if id == STDOUTERR { below } else { format!("{id}/{below}") };
                    found.push(EventFile { path, link });
                }
                Some(_) => {}
                None => directories.push(below),
            }
        }
    }
    Ok(())
}

/// Whether a path is that of an event file that may be written below the mirror.
fn is_event_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_plain = path.split('/').all(|part| !["", ".", ".."].contains(&part));
    name.contains(EVENT_FILE) && is_plain && !path.starts_with(&format!("{OWN_DIRECTORY}/"))
}

/// Decodes a percent-encoded segment; `None` if it is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_files_have_their_names() {
        for path in ["events.out.tfevents.1.host", "logs/train/events.out.tfevents.1.host.1.v2"] {
            assert!(is_event_file(path), "{path}");
        }
        for path in [
            "tfevents",
            "a.tfevents.d/model.bin",
            "../events.out.tfevents.1",
            "/events.out.tfevents.1",
            ".corro/logs/events.out.tfevents.1",
        ] {
            assert!(!is_event_file(path), "{path}");
        }
    }

    #[test]
    fn the_place_on_the_share_is_in_the_link() {
        let file = EventFile {
            path: "x".to_owned(),
            link: "http://h:1/acc/share/w/e/train%2D1/a%20b.tfevents.1?sv=2018&sig=%2F".to_owned(),
        };
        let expected = ("acc".to_owned(), "share".to_owned(), "w/e/train-1/a b.tfevents.1".to_owned());
        assert_eq!(file.location("http://h:1"), Some(expected));
        assert_eq!(file.location("http://other:1"), None);
        assert_eq!(decode("%zz%4"), Some("%zz%4".to_owned()));
    }
}
