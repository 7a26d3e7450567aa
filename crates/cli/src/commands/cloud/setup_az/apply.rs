//! `--write` and `--undo`: the cloud and the active cloud in the configuration of `az`, the CA bundle, a file to source, and names in the hosts file.
//! The files of `az` are edited directly rather than by running `az`: a change of a few lines can be undone to the byte, and any version of `az`
//! works, even one that is installed later.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::cloud_config::CloudConfig;
use super::file_backup::{BackupRecord, FileBackup, ManagedPart};
use super::script::Shell;
use super::{az_logins, ca_bundle, hosts_file};
use crate::error::CliError;
use crate::ini_edit;
use crate::session::{Ini, az_config_dir};
use crate::text_file::{read_optional, remove_if_exists, replace, write_error};

const BUNDLE_FILE: &str = "ca-bundle.pem";

/// Directories and files that are changed.
pub struct SetupPaths {
    /// Directory for our own files.
    pub corro_dir: PathBuf,
    /// Configuration directory of `az`.
    pub az_dir: PathBuf,
    pub hosts_file: PathBuf,
}

impl SetupPaths {
    pub fn new(hosts_file: &Path) -> Result<SetupPaths, CliError> {
        let no_home = || {
            CliError::new("cannot find the configuration of az: there is no home directory")
                .hint("set AZURE_CONFIG_DIR")
        };
        let corro_dir = corro_client::profile::config_dir()?.join("az");
        Ok(SetupPaths { corro_dir, az_dir: az_config_dir().ok_or_else(no_home)?, hosts_file: hosts_file.to_owned() })
    }

    pub fn bundle(&self) -> PathBuf {
        self.corro_dir.join(BUNDLE_FILE)
    }
}

/// Result of `--write`.
pub struct WriteReport {
    pub changed: Vec<PathBuf>,
    /// The cloud that was active before, and is again after an undo.
    pub previous_cloud: String,
    pub env_file: PathBuf,
    pub bundle: Option<ca_bundle::CaBundle>,
    /// Set if the hosts file could not be written.
    pub hosts_error: Option<io::Error>,
}

/// Planned change of a file, with its current and its new text.
struct FileChange {
    path: PathBuf,
    part: ManagedPart,
    current: Option<String>,
    new: Option<String>,
}

/// Writes the configuration. `hosts_block` is the block for the hosts file, if this machine needs one. Idempotent.
pub fn write(
    config: &CloudConfig,
    paths: &SetupPaths,
    hosts_block: Option<&str>,
    shell: Shell,
) -> Result<WriteReport, CliError> {
    let mut backup = BackupRecord::load(&paths.corro_dir)?
        .unwrap_or_else(|| BackupRecord { cloud: config.cloud.clone(), files: Vec::new() });
    if backup.cloud != config.cloud {
        return Err(CliError::new(format!("az is set up already, with the cloud '{}'", backup.cloud))
            .hint("undo that first with 'corro cloud setup-az --undo'"));
    }
    let logins = paths.az_dir.join("azureProfile.json");
    let current = read_optional(&logins)?;
    // Logins are made by `az` itself; the file is only backed up.
    let no_change = FileChange { path: logins, part: ManagedPart::Logins, new: current.clone(), current };
    let mut changes = vec![cloud_change(config, paths, &backup)?, active_change(config, paths)?, no_change];
    if let Some(block) = hosts_block {
        let current = read_optional(&paths.hosts_file)?;
        let new = Some(hosts_file::with_block(current.as_deref().unwrap_or_default(), block));
        changes.push(FileChange { path: paths.hosts_file.clone(), part: ManagedPart::HostsBlock, current, new });
    }
    let made_dir = create_dir(&paths.az_dir)?;
    create_dir(&paths.corro_dir)?;
    for change in &changes {
        if backup.find(&change.path).is_none() {
            backup.files.push(back_up(change, made_dir));
        }
    }
    backup.save(&paths.corro_dir)?;

    let bundle = config.authority.as_ref().map(|text| ca_bundle::build(text, &paths.bundle())).transpose()?;
    let env_file = paths.corro_dir.join(shell.file_name());
    let mut report = WriteReport {
        changed: Vec::new(),
        previous_cloud: previous_cloud(&backup),
        env_file,
        bundle,
        hosts_error: None,
    };
    let env_text = shell.environment_file(config, report.bundle.as_ref().map(|_| paths.bundle()).as_deref());
    let mut own_files = vec![(report.env_file.clone(), env_text)];
    own_files.extend(report.bundle.as_ref().map(|bundle| (paths.bundle(), bundle.text.clone())));
    for (path, text) in own_files {
        if read_optional(&path)?.as_deref() != Some(&text) {
            replace(&path, &text).map_err(|error| write_error(&path, &error))?;
            report.changed.push(path);
        }
    }
    for FileChange { path, part, current, new } in changes {
        let Some(new) = new.filter(|new| current.as_ref() != Some(new)) else { continue };
        match replace(&path, &new) {
            Ok(()) => report.changed.push(path),
            Err(error) if part == ManagedPart::HostsBlock && current.is_some() => report.hosts_error = Some(error),
            Err(error) => return Err(write_error(&path, &error)),
        }
    }
    Ok(report)
}

/// Result of `--undo`.
pub struct UndoReport {
    pub cloud: String,
    /// The cloud that is active again.
    pub previous_cloud: String,
    pub restored: Vec<PathBuf>,
    /// Files that could not be restored; a further undo tries again.
    pub failed: Vec<(PathBuf, ManagedPart, io::Error)>,
}

/// Restores all files; `None` if there is no backup.
pub fn undo(paths: &SetupPaths) -> Result<Option<UndoReport>, CliError> {
    let Some(mut backup) = BackupRecord::load(&paths.corro_dir)? else { return Ok(None) };
    let (cloud, previous_cloud) = (backup.cloud.clone(), previous_cloud(&backup));
    let mut report = UndoReport { cloud: cloud.clone(), previous_cloud, restored: Vec::new(), failed: Vec::new() };
    let mut remaining = Vec::new();
    // Needs the logins, which are removed below.
    remove_passwords(paths, &cloud)?;
    for file in backup.files.drain(..) {
        match file.restore(&cloud) {
            Ok(()) => report.restored.push(file.path),
            Err(error) => {
                report.failed.push((file.path.clone(), file.part, error));
                remaining.push(file);
            }
        }
    }
    for name in Shell::ALL.map(Shell::file_name).into_iter().chain([BUNDLE_FILE]) {
        let path = paths.corro_dir.join(name);
        remove_if_exists(&path).map_err(|error| write_error(&path, &error))?;
    }
    if remaining.is_empty() {
        BackupRecord::remove(&paths.corro_dir).map_err(|error| write_error(&paths.corro_dir, &error))?;
        let _ = fs::remove_dir(&paths.corro_dir);
    } else {
        BackupRecord { files: remaining, ..backup }.save(&paths.corro_dir)?;
    }
    Ok(Some(report))
}

/// Removes passwords of logins at our cloud, which `az` stores in clear text. They are not backed up, so this file is not restored to the byte.
fn remove_passwords(paths: &SetupPaths, cloud: &str) -> Result<(), CliError> {
    let profile = read_optional(&paths.az_dir.join("azureProfile.json"))?.unwrap_or_default();
    let path = paths.az_dir.join("accessTokens.json");
    let tokens = read_optional(&path)?.unwrap_or_default();
    match az_logins::without_principals(&tokens, &az_logins::principals(&profile, cloud)).as_deref() {
        None => Ok(()),
        Some("[]") => remove_if_exists(&path).map_err(|error| write_error(&path, &error)),
        Some(rest) => replace(&path, rest).map_err(|error| write_error(&path, &error)),
    }
}

fn cloud_change(config: &CloudConfig, paths: &SetupPaths, backup: &BackupRecord) -> Result<FileChange, CliError> {
    let path = paths.az_dir.join("clouds.config");
    let current = read_optional(&path)?;
    let text = current.clone().unwrap_or_default();
    let options = config.options();
    let parsed = Ini::parse(&text);
    let is_same =
        options.iter().all(|(option, value)| parsed.get(&config.cloud.to_lowercase(), option).as_ref() == Some(value));
    if backup.find(&path).is_none() && parsed.has_section(&config.cloud) && !is_same {
        return Err(CliError::new(format!("az has another cloud named '{}' already", config.cloud))
            .hint("choose another name with --cloud NAME, or remove that one with 'az cloud unregister'"));
    }
    let set =
        |text: String, (option, value): &(&str, String)| ini_edit::with_option(&text, &config.cloud, option, value);
    let new = Some(options.iter().fold(text, set));
    Ok(FileChange { path, part: ManagedPart::CloudSection, current, new })
}

fn active_change(config: &CloudConfig, paths: &SetupPaths) -> Result<FileChange, CliError> {
    let path = paths.az_dir.join("config");
    let current = read_optional(&path)?;
    let new = Some(ini_edit::with_option(current.as_deref().unwrap_or_default(), "cloud", "name", &config.cloud));
    Ok(FileChange { path, part: ManagedPart::ActiveCloud, current, new })
}

fn back_up(change: &FileChange, made_dir: bool) -> FileBackup {
    let before = match change.part {
        // A block that the user wrote by hand, as the printed steps say, is not part of the original file.
        ManagedPart::HostsBlock => change.current.as_deref().map(hosts_file::without_block),
        ManagedPart::CloudSection | ManagedPart::ActiveCloud | ManagedPart::Logins => change.current.clone(),
    };
    let made_dir = made_dir && change.part != ManagedPart::HostsBlock;
    FileBackup { path: change.path.clone(), part: change.part, before, made_dir }
}

/// The active cloud in the backup; az's default if there was none.
fn previous_cloud(backup: &BackupRecord) -> String {
    let active = backup.files.iter().find(|file| file.part == ManagedPart::ActiveCloud);
    let name = active.and_then(|file| Ini::parse(file.before.as_deref()?).get("cloud", "name"));
    name.unwrap_or_else(|| "AzureCloud".to_owned())
}

/// Creates a directory. Returns whether it did not exist.
fn create_dir(dir: &Path) -> Result<bool, CliError> {
    if dir.is_dir() {
        return Ok(false);
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| write_error(dir, &error))?;
    Ok(true)
}
