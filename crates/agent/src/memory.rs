//! What an agent must know after a crash: which attempt it had begun, where its leftovers are, and how it ended. Written
//! before anything of the attempt starts. Entered by the driver only.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use corro_model::AttemptId;
use corro_model::node::{ObservedTask, TaskOrder};

use crate::directories::{Directories, JobName, remove_shared_temp};
use crate::durable;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begun {
    pub attempt: AttemptId,
    pub job: JobName,
    /// To be removed with the job; only the master does.
    pub shared_temp: Option<PathBuf>,
    /// How it ended, so that the truth can be told again.
    pub ended: Option<ObservedTask>,
}

impl Begun {
    pub fn new(order: &TaskOrder) -> Begun {
        Begun {
            attempt: order.attempt.clone(),
            job: JobName::from(order),
            shared_temp: order.is_master().then(|| order.shared_temp.clone()),
            ended: None,
        }
    }

    pub fn load(root: &Path) -> io::Result<Option<Begun>> {
        durable::read(&root.join(ATTEMPT))
    }

    pub fn save(&self, root: &Path) -> io::Result<()> {
        durable::write(&root.join(ATTEMPT), self)
    }

    pub fn forget(root: &Path) -> io::Result<()> {
        durable::remove(&root.join(ATTEMPT))
    }

    /// Removes the job's directories. Blocks on the disk.
    pub fn clean(&self, directories: &Directories) -> io::Result<()> {
        directories.remove_job(&self.job)?;
        self.shared_temp.as_deref().map_or(Ok(()), remove_shared_temp)
    }
}

const ATTEMPT: &str = "attempt.json";
