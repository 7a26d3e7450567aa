//! Symbolic links of a mounted share. They are shown to the kernel as links, which resolves them on this machine, as on NFS: a link whose text is
//! absolute leads to a place of this machine, not of the server.

use std::time::SystemTime;

use super::{Found, Volume, lock};
use crate::inodes::Kind;
use crate::remote::{Problem, Remote, Status};

impl<R: Remote> Volume<R> {
    pub async fn read_link(&self, inode: u64) -> Result<Vec<u8>, i32> {
        let path = self.shared.path(inode)?;
        self.shared.patience.insist(format!("read the link {path}"), |_| self.remote().read_link(&path)).await
    }

    pub async fn make_link(&self, parent: u64, name: &str, text: &[u8]) -> Result<Found, i32> {
        let path = self.path_of(parent, name)?;
        let made = self.shared.patience.insist(format!("make the link {path}"), |again| {
            let path = path.clone();
            async move {
                match self.remote().make_link(&path, text).await {
                    Err(Problem::Refused { errno: libc::EEXIST, why }) if again => {
                        // One with the same text is what the first try made, most likely.
                        match self.remote().read_link(&path).await {
                            Ok(made) if made == text => Ok(()),
                            Err(Problem::Passing { why }) => Err(Problem::Passing { why }),
                            _ => Err(Problem::Refused { errno: libc::EEXIST, why }),
                        }
                    }
                    made => made,
                }
            }
        });
        made.await.inspect_err(|errno| self.on_others_name(parent, *errno))?;
        lock(&self.later).on_made(parent);
        let (length, modified) = (text.len() as u64, SystemTime::now());
        Ok(self.told_of(parent, name, Status { kind: Kind::Link, length, modified, etag: String::new() }))
    }
}
