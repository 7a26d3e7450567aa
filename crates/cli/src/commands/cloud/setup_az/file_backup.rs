//! Backup of the files that `setup-az --write` changes, and their restoration. The backup is written before any change, so that an interrupted run can
//! be undone. A file without other changes is restored byte for byte; otherwise only our part is removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{az_logins, hosts_file};
use crate::error::CliError;
use crate::ini_edit;
use crate::session::Ini;
use crate::text_file::{read_optional, remove_if_exists, replace, write_error};

const BACKUP_FILE: &str = "undo.json";

/// Content of the backup file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct BackupRecord {
    /// Name of the cloud in az.
    pub cloud: String,
    pub files: Vec<FileBackup>,
}

/// Backup of one file.
#[derive(Debug, Serialize, Deserialize)]
pub struct FileBackup {
    pub path: PathBuf,
    pub part: ManagedPart,
    /// Content before the first change; `None` if there was no file.
    pub before: Option<String>,
    /// Whether `--write` created its directory.
    pub made_dir: bool,
}

/// The part of a file that `--write` manages. The serialized names are those of existing backup files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ManagedPart {
    /// The section of our cloud in `clouds.config`.
    #[serde(rename = "Cloud")]
    CloudSection,
    /// `name` of `[cloud]` in `config`: the active cloud.
    #[serde(rename = "Active")]
    ActiveCloud,
    /// The block in the hosts file.
    #[serde(rename = "Names")]
    HostsBlock,
    /// Logins at our cloud in `azureProfile.json`.
    Logins,
}

impl BackupRecord {
    pub fn load(dir: &Path) -> Result<Option<BackupRecord>, CliError> {
        let path = dir.join(BACKUP_FILE);
        let Some(text) = read_optional(&path)? else { return Ok(None) };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| CliError::new(format!("{} is not a valid backup", path.display())).cause(error))
    }

    pub fn save(&self, dir: &Path) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(self).map_err(|error| CliError::from_error(&error))?;
        let path = dir.join(BACKUP_FILE);
        replace(&path, &text).map_err(|error| write_error(&path, &error))
    }

    pub fn remove(dir: &Path) -> io::Result<()> {
        remove_if_exists(&dir.join(BACKUP_FILE))
    }

    pub fn find(&self, path: &Path) -> Option<&FileBackup> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl FileBackup {
    /// Restores the file. Idempotent.
    pub fn restore(&self, cloud: &str) -> io::Result<()> {
        let current = fs::read_to_string(&self.path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(String::new()),
            _ => Err(error),
        })?;
        match self.restored_text(cloud, &current) {
            Some(text) if text == current && self.path.exists() => {}
            Some(text) => replace(&self.path, &text)?,
            None => remove_if_exists(&self.path)?,
        }
        if self.made_dir {
            // Fails, as it should, if the directory is not empty.
            let _ = self.path.parent().map(fs::remove_dir);
        }
        Ok(())
    }

    /// The text to restore; `None` if the file is to be removed.
    fn restored_text(&self, cloud: &str, current: &str) -> Option<String> {
        let before = self.before.as_deref().unwrap_or_default();
        let rest = match self.part {
            // A section of that name existed before, so it is not ours.
            ManagedPart::CloudSection if Ini::parse(before).has_section(cloud) => current.to_owned(),
            ManagedPart::CloudSection => ini_edit::without_section(current, cloud),
            ManagedPart::ActiveCloud => {
                match (Ini::parse(current).get("cloud", "name"), Ini::parse(before).get("cloud", "name")) {
                    (Some(active), Some(previous)) if active == cloud => {
                        ini_edit::with_option(current, "cloud", "name", &previous)
                    }
                    (Some(active), None) if active == cloud => ini_edit::without_option(current, "cloud", "name"),
                    _ => current.to_owned(),
                }
            }
            ManagedPart::HostsBlock => hosts_file::without_block(current),
            ManagedPart::Logins => return az_logins::without_cloud(current, self.before.as_deref(), cloud),
        };
        let is_unchanged = match self.part {
            ManagedPart::HostsBlock => rest.trim_end() == before.trim_end(),
            _ => Ini::parse(&rest).has_same_content(&Ini::parse(before)),
        };
        if is_unchanged { self.before.clone() } else { Some(rest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(part: ManagedPart, before: Option<&str>, current: &str, expected: Option<&str>) {
        let before = before.map(str::to_owned);
        let file = FileBackup { path: PathBuf::new(), part, before, made_dir: false };
        assert_eq!(file.restored_text("corro", current).as_deref(), expected, "{current}");
    }

    #[test]
    fn files_are_restored_byte_for_byte_unless_others_changed_them() {
        let clouds = "# mine\n[other]\nEndpoint_X: 1\n";
        let by_us = format!("{clouds}\n[corro]\nendpoint_resource_manager = u\n");
        // The old bytes are restored if only our part differs, also after `az` has rewritten the file in its own format.
        check(ManagedPart::CloudSection, Some(clouds), &by_us, Some(clouds));
        let by_az = "[other]\nendpoint_x = 1\n\n[corro]\nendpoint_resource_manager = u\nsubscription = s\n\n";
        check(ManagedPart::CloudSection, Some(clouds), by_az, Some(clouds));
        check(ManagedPart::CloudSection, Some(clouds), clouds, Some(clouds));
        check(ManagedPart::CloudSection, None, "[corro]\na = 1\n", None);
        check(ManagedPart::CloudSection, None, "", None);
        // A cloud that was added since stays.
        check(
            ManagedPart::CloudSection,
            Some(clouds),
            &format!("{by_az}[new]\nb = 2\n"),
            Some("[other]\nendpoint_x = 1\n\n[new]\nb = 2\n"),
        );
        // A cloud of that name that existed before is not ours.
        check(ManagedPart::CloudSection, Some("[corro]\na = 1\n"), "[corro]\na = 1\n\n", Some("[corro]\na = 1\n"));
    }

    #[test]
    fn the_active_cloud_is_restored_unless_another_was_chosen() {
        let before = "[core]\nx = 1\n[cloud]\nname = AzureChinaCloud\n";
        check(ManagedPart::ActiveCloud, Some(before), &before.replace("AzureChinaCloud", "corro"), Some(before));
        check(ManagedPart::ActiveCloud, None, "[cloud]\nname = corro\n", None);
        check(ManagedPart::ActiveCloud, Some("[core]\n"), "[core]\n\n[cloud]\nname = corro\n", Some("[core]\n"));
        let chosen = before.replace("AzureChinaCloud", "AzureCloud");
        check(ManagedPart::ActiveCloud, Some(before), &chosen, Some(&chosen));
        let more = "[cloud]\nname = corro\n\n[defaults]\ngroup = g\n";
        check(
            ManagedPart::ActiveCloud,
            Some("[cloud]\nname = A\n"),
            more,
            Some("[cloud]\nname = A\n\n[defaults]\ngroup = g\n"),
        );
    }
}
