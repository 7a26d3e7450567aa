//! A share by the file service of a Corro server, and the numbers that programs know its refusals by.

use std::time::SystemTime;

use bytes::Bytes;
use corro_client::files::{Appending, State};
use corro_client::{ClientError, FileService, files};

use crate::inodes::Kind;
use crate::remote::{Answer, Block, Entry, Page, Problem, Remote, Room, Status};

#[derive(Debug)]
pub struct Share {
    service: FileService,
    share: String,
    /// Tells this mount from every other, for what it appends.
    writer: String,
}

impl Share {
    pub fn new(service: FileService, share: &str) -> Share {
        Share { service, share: share.to_owned(), writer: uuid::Uuid::new_v4().simple().to_string() }
    }
}

impl Remote for Share {
    async fn about(&self, path: &str) -> Answer<Status> {
        self.service.about(&self.share, path).await.map(status).map_err(problem)
    }

    async fn list(&self, path: &str, from: &str) -> Answer<Page> {
        let page = self.service.list_briefly(&self.share, path, from).await.map_err(problem)?;
        let entry = |brief: files::Brief| Entry { name: brief.name, status: status(brief.state) };
        Ok(Page { entries: page.entries.into_iter().map(entry).collect(), next: page.next })
    }

    async fn read(&self, path: &str, offset: u64, length: u64) -> Answer<Bytes> {
        self.service.read_range(&self.share, path, offset, length).await.map_err(problem)
    }

    async fn write(&self, path: &str, offset: u64, content: Bytes) -> Answer<()> {
        self.service.write_growing(&self.share, path, offset, content).await.map_err(problem)
    }

    async fn append(&self, path: &str, block: &Block) -> Answer<(u64, Status)> {
        let writer = format!("{}-{}", self.writer, block.file);
        let appending = Appending { writer, number: block.number, again: block.again };
        let appended = self.service.append(&self.share, path, block.content.clone(), &appending).await;
        appended.map(|(offset, state)| (offset, status(state))).map_err(problem)
    }

    async fn create(&self, path: &str) -> Answer<()> {
        self.service.create_new(&self.share, path).await.map_err(problem)
    }

    async fn make_directory(&self, path: &str) -> Answer<()> {
        self.service.create_new_directory(&self.share, path).await.map_err(problem)
    }

    async fn remove(&self, path: &str, kind: Kind) -> Answer<()> {
        let removed = match kind {
            Kind::File => self.service.delete_file(&self.share, path).await,
            Kind::Directory => self.service.delete_directory(&self.share, path).await,
        };
        removed.map_err(problem)
    }

    async fn rename(&self, from: &str, to: &str, kind: Kind, replace: bool) -> Answer<()> {
        let kind = match kind {
            Kind::File => files::Kind::File,
            Kind::Directory => files::Kind::Directory,
        };
        self.service.rename(&self.share, (from, to), kind, replace).await.map_err(problem)
    }

    async fn resize(&self, path: &str, length: u64) -> Answer<()> {
        self.service.resize(&self.share, path, length).await.map_err(problem)
    }

    async fn set_modified(&self, path: &str, modified: SystemTime) -> Answer<()> {
        self.service.set_modified(&self.share, path, modified).await.map(drop).map_err(problem)
    }

    async fn sync(&self, path: &str) -> Answer<()> {
        self.service.sync(&self.share, path).await.map_err(problem)
    }

    async fn room(&self) -> Answer<Room> {
        let room = self.service.room(&self.share).await.map_err(problem)?;
        Ok(Room { used: room.used, quota: room.quota })
    }
}

fn status(state: State) -> Status {
    let kind = match state.kind {
        files::Kind::File => Kind::File,
        files::Kind::Directory => Kind::Directory,
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
