//! A share by the file service of a Corro server, and the numbers that programs know its refusals by.

use std::cell::RefCell;
use std::sync::{Arc, RwLock};
use std::time::SystemTime;

use bytes::Bytes;
use corro_client::files::{Appending, State};
use corro_client::{ClientError, FileService, files};

use crate::inodes::Kind;
use crate::lane;
use crate::remote::{Answer, Block, Entry, Page, Problem, Remote, Room, Status};
use crate::settings::Login;
use crate::writeback::Piece;

#[derive(Debug)]
pub struct Share {
    service: Arc<Door>,
    share: String,
    /// The directory of the share that is mounted; the whole share when empty.
    inside: String,
    /// Tells this mount from every other, for what it appends.
    writer: String,
}

/// The service as it is signed for now.
#[derive(Debug)]
pub struct Door {
    service: RwLock<Arc<FileService>>,
    /// A new credential may come at any time, so one that has ended is waited out.
    is_renewed: bool,
}

/// A lane's own connection, and the service that it was made from.
struct Own {
    of: Arc<FileService>,
    service: Arc<FileService>,
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

impl Door {
    pub fn new(service: FileService, is_renewed: bool) -> Door {
        Door { service: RwLock::new(Arc::new(service)), is_renewed }
    }

    pub fn renew(&self, login: Login) -> Result<(), ClientError> {
        let renewed = FileService::clone(&self.common()).signing_with(login.into())?;
        *self.service.write().expect("no one panics while holding it") = Arc::new(renewed);
        Ok(())
    }

    fn common(&self) -> Arc<FileService> {
        self.service.read().expect("no one panics while holding it").clone()
    }

    /// For one request: on a lane over the lane's own connection, elsewhere over those that all share.
    fn now(&self) -> Arc<FileService> {
        let common = self.common();
        if !lane::is_here() {
            return common;
        }
        OWN.with_borrow_mut(|own| {
            let service = match own.as_ref() {
                Some(own) if Arc::ptr_eq(&own.of, &common) => return own.service.clone(),
                Some(own) => Ok(own.service.signing_as(&common)),
                None => common.alone(),
            };
            let Ok(service) = service.map(Arc::new) else { return common };
            *own = Some(Own { of: common, service: service.clone() });
            service
        })
    }
}

impl Share {
    pub fn new(service: Arc<Door>, share: &str, inside: &str) -> Share {
        let (share, inside) = (share.to_owned(), inside.trim_matches('/').to_owned());
        Share { service, share, inside, writer: uuid::Uuid::new_v4().simple().to_string() }
    }

    fn at(&self, path: &str) -> String {
        match (self.inside.is_empty(), path.is_empty()) {
            (true, _) => path.to_owned(),
            (false, true) => self.inside.clone(),
            (false, false) => format!("{}/{path}", self.inside),
        }
    }

    fn problem(&self, error: ClientError) -> Problem {
        match &error {
            ClientError::Api(refusal) if self.service.is_renewed && refusal.code == "AuthenticationFailed" => {
                Problem::Passing { why: chain(&error) }
            }
            _ => problem(error),
        }
    }
}

impl Remote for Share {
    async fn about(&self, path: &str) -> Answer<Status> {
        let (service, place) = (self.service.now(), self.at(path));
        let about = match path.is_empty() {
            // The directory that is mounted may be reached through links; within it they are shown.
            true => service.about_target(&self.share, &place).await,
            false => service.about(&self.share, &place).await,
        };
        about.map(status).map_err(|error| self.problem(error))
    }

    async fn list(&self, path: &str, from: &str) -> Answer<Page> {
        let page = self
            .service
            .now()
            .list_briefly(&self.share, &self.at(path), from)
            .await
            .map_err(|error| self.problem(error))?;
        let entry = |brief: files::Brief| Entry { name: brief.name, status: status(brief.state) };
        Ok(Page { entries: page.entries.into_iter().map(entry).collect(), next: page.next })
    }

    async fn read(&self, path: &str, offset: u64, length: u64) -> Answer<Bytes> {
        self.service
            .now()
            .read_range(&self.share, &self.at(path), offset, length)
            .await
            .map_err(|error| self.problem(error))
    }

    async fn write(&self, path: &str, batch: &[Piece]) -> Answer<()> {
        let (service, path) = (self.service.now(), self.at(path));
        let written = match batch {
            [Piece { offset, content }] => service.write_growing(&self.share, &path, *offset, content.clone()).await,
            batch => {
                let ranges: Vec<_> = batch.iter().map(|piece| (piece.offset, piece.content.clone())).collect();
                match service.write_ranges(&self.share, &path, &ranges, false).await {
                    Err(ClientError::Api(refusal)) if refusal.code == "InvalidQueryParameterValue" => {
                        // An older server, which takes one at a time.
                        for (offset, content) in ranges {
                            let written = service.write_growing(&self.share, &path, offset, content).await;
                            written.map_err(|error| self.problem(error))?;
                        }
                        Ok(())
                    }
                    written => written,
                }
            }
        };
        written.map_err(|error| self.problem(error))
    }

    async fn create_with(&self, path: &str, batch: &[Piece]) -> Answer<bool> {
        let ranges: Vec<_> = batch.iter().map(|piece| (piece.offset, piece.content.clone())).collect();
        match self.service.now().write_ranges(&self.share, &self.at(path), &ranges, true).await {
            Ok(()) => Ok(true),
            // An older server, which writes only to what is there; or no such directory, as the making of the file will tell.
            Err(ClientError::Api(refusal)) if refusal.code == "InvalidQueryParameterValue" || refusal.status == 404 => {
                Ok(false)
            }
            Err(error) => Err(self.problem(error)),
        }
    }

    async fn append(&self, path: &str, block: &Block) -> Answer<(u64, Status)> {
        let writer = format!("{}-{}", self.writer, block.file);
        let appending = Appending { writer, number: block.number, again: block.again };
        let appended = self.service.now().append(&self.share, &self.at(path), block.content.clone(), &appending).await;
        appended.map(|(offset, state)| (offset, status(state))).map_err(|error| self.problem(error))
    }

    async fn create(&self, path: &str) -> Answer<()> {
        self.service.now().create_new(&self.share, &self.at(path)).await.map_err(|error| self.problem(error))
    }

    async fn make_directory(&self, path: &str) -> Answer<()> {
        self.service.now().create_new_directory(&self.share, &self.at(path)).await.map_err(|error| self.problem(error))
    }

    async fn read_link(&self, path: &str) -> Answer<Vec<u8>> {
        self.service.now().read_link_text(&self.share, &self.at(path)).await.map_err(|error| self.problem(error))
    }

    async fn make_link(&self, path: &str, text: &[u8]) -> Answer<()> {
        match self.service.now().create_link(&self.share, &self.at(path), text).await {
            // An older server, which has no links.
            Err(ClientError::Api(refusal)) if refusal.code == "InvalidQueryParameterValue" => {
                Err(Problem::Refused { errno: libc::EPERM, why: refusal.to_string() })
            }
            made => made.map_err(|error| self.problem(error)),
        }
    }

    async fn remove(&self, path: &str, kind: Kind) -> Answer<()> {
        let removed = match kind {
            Kind::File | Kind::Link => self.service.now().delete_file(&self.share, &self.at(path)).await,
            Kind::Directory => self.service.now().delete_directory(&self.share, &self.at(path)).await,
        };
        removed.map_err(|error| self.problem(error))
    }

    async fn rename(&self, from: &str, to: &str, kind: Kind, replace: bool) -> Answer<()> {
        let kind = match kind {
            Kind::File => files::Kind::File,
            Kind::Directory => files::Kind::Directory,
            Kind::Link => files::Kind::Link,
        };
        self.service
            .now()
            .rename(&self.share, (&self.at(from), &self.at(to)), kind, replace)
            .await
            .map_err(|error| self.problem(error))
    }

    async fn resize(&self, path: &str, length: u64) -> Answer<()> {
        self.service.now().resize(&self.share, &self.at(path), length).await.map_err(|error| self.problem(error))
    }

    async fn set_modified(&self, path: &str, modified: SystemTime) -> Answer<()> {
        self.service
            .now()
            .set_modified(&self.share, &self.at(path), modified)
            .await
            .map(drop)
            .map_err(|error| self.problem(error))
    }

    async fn sync(&self, path: &str) -> Answer<()> {
        self.service.now().sync(&self.share, &self.at(path)).await.map_err(|error| self.problem(error))
    }

    async fn room(&self) -> Answer<Room> {
        let room = self.service.now().room(&self.share).await.map_err(|error| self.problem(error))?;
        Ok(Room { used: room.used, quota: room.quota })
    }
}

fn status(state: State) -> Status {
    let kind = match state.kind {
        files::Kind::File => Kind::File,
        files::Kind::Directory => Kind::Directory,
        files::Kind::Link => Kind::Link,
    };
    Status { kind, length: state.length, modified: state.modified, etag: state.etag }
}

fn problem(error: ClientError) -> Problem {
    let why = chain(&error);
    match &error {
        ClientError::Api(refusal) if !error.is_transient() => {
            Problem::Refused { errno: errno_of(refusal.status, &refusal.code), why }
        }
        ClientError::InvalidPath { .. } | ClientError::InvalidHeader { .. } => {
            Problem::Refused { errno: libc::EINVAL, why }
        }
        ClientError::UnexpectedFileAnswer { .. } | ClientError::Untrusted { .. } | ClientError::NotTls { .. } => {
            Problem::Refused { errno: libc::EIO, why }
        }
        _ => Problem::Passing { why },
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

/// The error and what is behind it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_numbers_that_programs_know() {
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
