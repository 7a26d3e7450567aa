//! [`Remote`] over the file service of a Corro server, and the mapping of its errors to errno values.

use std::cell::RefCell;
use std::sync::{Arc, RwLock};
use std::time::SystemTime;

use bytes::Bytes;
use corro_base::error_chain;
use corro_client::files::{AppendToken, FileState};
use corro_client::{ClientError, FileService, files};

use crate::inodes::Kind;
use crate::remote::{AppendBlock, Entry, Page, Remote, RemoteError, RemoteResult, SpaceInfo, Status};
use crate::settings::Login;
use crate::thread_runtime;
use crate::writeback::DirtyRange;

/// A share or a directory of it, accessed through the file service.
#[derive(Debug)]
pub struct Share {
    service: Arc<RenewableClient>,
    share: String,
    /// Mounted directory of the share; empty for the whole share.
    inside: String,
    /// Identifies this mount in append requests.
    writer: String,
}

/// The client with the current credential.
#[derive(Debug)]
pub struct RenewableClient {
    service: RwLock<Arc<FileService>>,
    /// A new credential may arrive at any time, so an expired one is retried.
    is_renewable: bool,
}

/// A request thread's own client with a connection of its own, and the shared client it was made from.
struct ThreadClient {
    base: Arc<FileService>,
    service: Arc<FileService>,
}

thread_local! {
    static THREAD_CLIENT: RefCell<Option<ThreadClient>> = const { RefCell::new(None) };
}

impl RenewableClient {
    pub fn new(service: FileService, is_renewable: bool) -> RenewableClient {
        RenewableClient { service: RwLock::new(Arc::new(service)), is_renewable }
    }

    pub fn renew(&self, login: Login) -> Result<(), ClientError> {
        let renewed = FileService::clone(&self.shared_client()).signing_with(login.into())?;
        *self.service.write().expect("no one panics while holding it") = Arc::new(renewed);
        Ok(())
    }

    fn shared_client(&self) -> Arc<FileService> {
        self.service.read().expect("no one panics while holding it").clone()
    }

    /// Client for one request: the thread's own on a request thread, else the shared one.
    fn client(&self) -> Arc<FileService> {
        let shared_client = self.shared_client();
        if !thread_runtime::is_request_thread() {
            return shared_client;
        }
        THREAD_CLIENT.with_borrow_mut(|own| {
            let service = match own.as_ref() {
                Some(own) if Arc::ptr_eq(&own.base, &shared_client) => return own.service.clone(),
                Some(own) => Ok(own.service.signing_as(&shared_client)),
                None => shared_client.dedicated(),
            };
            let Ok(service) = service.map(Arc::new) else { return shared_client };
            *own = Some(ThreadClient { base: shared_client, service: service.clone() });
            service
        })
    }
}

impl Share {
    pub fn new(service: Arc<RenewableClient>, share: &str, inside: &str) -> Share {
        let (share, inside) = (share.to_owned(), inside.trim_matches('/').to_owned());
        Share { service, share, inside, writer: uuid::Uuid::new_v4().simple().to_string() }
    }

    fn full_path(&self, path: &str) -> String {
        match (self.inside.is_empty(), path.is_empty()) {
            (true, _) => path.to_owned(),
            (false, true) => self.inside.clone(),
            (false, false) => format!("{}/{path}", self.inside),
        }
    }

    fn remote_error(&self, error: ClientError) -> RemoteError {
        match &error {
            ClientError::Api(refusal) if self.service.is_renewable && refusal.code == "AuthenticationFailed" => {
                RemoteError::Transient { why: error_chain::join(&error) }
            }
            _ => remote_error(error),
        }
    }
}

impl Remote for Share {
    async fn stat(&self, path: &str) -> RemoteResult<Status> {
        let (service, place) = (self.service.client(), self.full_path(path));
        let about = match path.is_empty() {
            // The mounted directory itself may be reached through symlinks; inside of it they are shown.
            true => service.target_state(&self.share, &place).await,
            false => service.file_state(&self.share, &place).await,
        };
        about.map(status).map_err(|error| self.remote_error(error))
    }

    async fn list(&self, path: &str, from: &str) -> RemoteResult<Page> {
        let page = self
            .service
            .client()
            .list_entries_brief(&self.share, &self.full_path(path), from)
            .await
            .map_err(|error| self.remote_error(error))?;
        let entry = |brief: files::BriefEntry| Entry { name: brief.name, status: status(brief.state) };
        Ok(Page { entries: page.entries.into_iter().map(entry).collect(), next: page.next })
    }

    async fn read(&self, path: &str, offset: u64, length: u64) -> RemoteResult<Bytes> {
        self.service
            .client()
            .read_range(&self.share, &self.full_path(path), offset, length)
            .await
            .map_err(|error| self.remote_error(error))
    }

    async fn write(&self, path: &str, batch: &[DirtyRange]) -> RemoteResult<()> {
        let (service, path) = (self.service.client(), self.full_path(path));
        let written = match batch {
            [DirtyRange { offset, content }] => {
                service.write_extending(&self.share, &path, *offset, content.clone()).await
            }
            batch => {
                let ranges: Vec<_> = batch.iter().map(|piece| (piece.offset, piece.content.clone())).collect();
                match service.write_ranges(&self.share, &path, &ranges, false).await {
                    Err(ClientError::Api(refusal)) if refusal.code == "InvalidQueryParameterValue" => {
                        // An older server takes one range per request.
                        for (offset, content) in ranges {
                            let written = service.write_extending(&self.share, &path, offset, content).await;
                            written.map_err(|error| self.remote_error(error))?;
                        }
                        Ok(())
                    }
                    written => written,
                }
            }
        };
        written.map_err(|error| self.remote_error(error))
    }

    async fn create_with(&self, path: &str, batch: &[DirtyRange]) -> RemoteResult<bool> {
        let ranges: Vec<_> = batch.iter().map(|piece| (piece.offset, piece.content.clone())).collect();
        match self.service.client().write_ranges(&self.share, &self.full_path(path), &ranges, true).await {
            Ok(()) => Ok(true),
            // An older server writes to existing files only. A missing directory is reported by the following `create`.
            Err(ClientError::Api(refusal)) if refusal.code == "InvalidQueryParameterValue" || refusal.status == 404 => {
                Ok(false)
            }
            Err(error) => Err(self.remote_error(error)),
        }
    }

    async fn append(&self, path: &str, block: &AppendBlock) -> RemoteResult<(u64, Status)> {
        let writer = format!("{}-{}", self.writer, block.file);
        let appending = AppendToken { writer, number: block.number, again: block.retry_from };
        let appended =
            self.service.client().append(&self.share, &self.full_path(path), block.content.clone(), &appending).await;
        appended.map(|(offset, state)| (offset, status(state))).map_err(|error| self.remote_error(error))
    }

    async fn create(&self, path: &str) -> RemoteResult<()> {
        self.service
            .client()
            .create_new(&self.share, &self.full_path(path))
            .await
            .map_err(|error| self.remote_error(error))
    }

    async fn create_directory(&self, path: &str) -> RemoteResult<()> {
        self.service
            .client()
            .create_new_directory(&self.share, &self.full_path(path))
            .await
            .map_err(|error| self.remote_error(error))
    }

    async fn read_link(&self, path: &str) -> RemoteResult<Vec<u8>> {
        self.service
            .client()
            .read_link_text(&self.share, &self.full_path(path))
            .await
            .map_err(|error| self.remote_error(error))
    }

    async fn create_link(&self, path: &str, text: &[u8]) -> RemoteResult<()> {
        match self.service.client().create_link(&self.share, &self.full_path(path), text).await {
            // An older server has no symlinks.
            Err(ClientError::Api(refusal)) if refusal.code == "InvalidQueryParameterValue" => {
                Err(RemoteError::Permanent { errno: libc::EPERM, why: refusal.to_string() })
            }
            made => made.map_err(|error| self.remote_error(error)),
        }
    }

    async fn remove(&self, path: &str, kind: Kind) -> RemoteResult<()> {
        let removed = match kind {
            Kind::File | Kind::Link => self.service.client().delete_file(&self.share, &self.full_path(path)).await,
            Kind::Directory => self.service.client().delete_directory(&self.share, &self.full_path(path)).await,
        };
        removed.map_err(|error| self.remote_error(error))
    }

    async fn rename(&self, from: &str, to: &str, kind: Kind, replace: bool) -> RemoteResult<()> {
        let kind = match kind {
            Kind::File => files::EntryKind::File,
            Kind::Directory => files::EntryKind::Directory,
            Kind::Link => files::EntryKind::Link,
        };
        self.service
            .client()
            .rename(&self.share, (&self.full_path(from), &self.full_path(to)), kind, replace)
            .await
            .map_err(|error| self.remote_error(error))
    }

    async fn resize(&self, path: &str, length: u64) -> RemoteResult<()> {
        self.service
            .client()
            .resize(&self.share, &self.full_path(path), length)
            .await
            .map_err(|error| self.remote_error(error))
    }

    async fn set_modified(&self, path: &str, modified: SystemTime) -> RemoteResult<()> {
        self.service
            .client()
            .set_modified(&self.share, &self.full_path(path), modified)
            .await
            .map(drop)
            .map_err(|error| self.remote_error(error))
    }

    async fn sync(&self, path: &str) -> RemoteResult<()> {
        self.service.client().sync(&self.share, &self.full_path(path)).await.map_err(|error| self.remote_error(error))
    }

    async fn space_info(&self) -> RemoteResult<SpaceInfo> {
        let room = self.service.client().share_space(&self.share).await.map_err(|error| self.remote_error(error))?;
        Ok(SpaceInfo { used: room.used, quota: room.quota })
    }
}

fn status(state: FileState) -> Status {
    let kind = match state.kind {
        files::EntryKind::File => Kind::File,
        files::EntryKind::Directory => Kind::Directory,
        files::EntryKind::Link => Kind::Link,
    };
    Status { kind, length: state.length, modified: state.modified, etag: state.etag }
}

fn remote_error(error: ClientError) -> RemoteError {
    let why = error_chain::join(&error);
    match &error {
        ClientError::Api(refusal) if !error.is_transient() => {
            RemoteError::Permanent { errno: errno_of(refusal.status, &refusal.code), why }
        }
        ClientError::InvalidPath { .. } | ClientError::InvalidHeader { .. } => {
            RemoteError::Permanent { errno: libc::EINVAL, why }
        }
        ClientError::UnexpectedFileAnswer { .. } | ClientError::Untrusted { .. } | ClientError::NotTls { .. } => {
            RemoteError::Permanent { errno: libc::EIO, why }
        }
        _ => RemoteError::Transient { why },
    }
}

fn errno_of(status: u16, code: &str) -> i32 {
    match (status, code) {
        (_, "ShareSizeLimitReached" | "InsufficientStorage") | (507, _) => libc::ENOSPC,
        (_, "DirectoryNotEmpty") => libc::ENOTEMPTY,
        (_, "ResourceTypeMismatch") => libc::EISDIR,
        (_, "ResourceAlreadyExists") => libc::EEXIST,
        (_, "ReadOnlyAttribute") => libc::EPERM,
        (_, "ShareNotFound" | "ContainerNotFound") => libc::ESTALE,
        (_, "CannotVerifyCopySource") | (404, _) => libc::ENOENT,
        (_, "InvalidResourceName" | "InvalidFileOrDirectoryPathName" | "InvalidUri") => libc::EINVAL,
        (_, code) if code.starts_with("Lease") => libc::EBUSY,
        (401 | 403, _) => libc::EACCES,
        (413, _) => libc::EFBIG,
        (409 | 412, _) => libc::EBUSY,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_errors_map_to_errno() {
        let check = |status, code, errno| assert_eq!(errno_of(status, code), errno, "{status} {code}");
        check(404, "ResourceNotFound", libc::ENOENT);
        check(404, "ParentNotFound", libc::ENOENT);
        check(404, "ShareNotFound", libc::ESTALE);
        check(409, "ShareSizeLimitReached", libc::ENOSPC);
        check(507, "Whatever", libc::ENOSPC);
        check(409, "ResourceAlreadyExists", libc::EEXIST);
        check(409, "DirectoryNotEmpty", libc::ENOTEMPTY);
        check(412, "LeaseIdMissing", libc::EBUSY);
        check(403, "AuthenticationFailed", libc::EACCES);
        check(400, "InvalidResourceName", libc::EINVAL);
        check(400, "Odd", libc::EIO);
    }
}
