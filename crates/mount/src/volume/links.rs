//! Symbolic links of a mounted share. The kernel resolves them on this machine, as on NFS: an absolute target leads to
//! a path of this machine, not of the server.

use std::time::SystemTime;

use super::{Lookup, Volume, lock};
use crate::inodes::Kind;
use crate::remote::{Remote, RemoteError, Status};

impl<R: Remote> Volume<R> {
    pub async fn read_link(&self, inode: u64) -> Result<Vec<u8>, i32> {
        let path = self.shared.path(inode)?;
        self.shared.retry.run(format!("read the link {path}"), |_| self.remote().read_link(&path)).await
    }

    pub async fn create_link(&self, parent: u64, name: &str, text: &[u8]) -> Result<Lookup, i32> {
        let path = self.child_path(parent, name)?;
        let created_dirs = self.shared.retry.run(format!("create the link {path}"), |is_retry| {
            let path = path.clone();
            async move {
                match self.remote().create_link(&path, text).await {
                    Err(RemoteError::Permanent { errno: libc::EEXIST, why }) if is_retry => {
                        // A link with the same text was most likely created by the first attempt.
                        match self.remote().read_link(&path).await {
                            Ok(created_dirs) if created_dirs == text => Ok(()),
                            Err(RemoteError::Transient { why }) => Err(RemoteError::Transient { why }),
                            _ => Err(RemoteError::Permanent { errno: libc::EEXIST, why }),
                        }
                    }
                    created_dirs => created_dirs,
                }
            }
        });
        created_dirs.await.inspect_err(|errno| self.on_foreign_entry(parent, *errno))?;
        lock(&self.deferred).on_created(parent);
        let (length, modified) = (text.len() as u64, SystemTime::now());
        Ok(self.record_lookup(parent, name, Status { kind: Kind::Link, length, modified, etag: String::new() }))
    }
}
