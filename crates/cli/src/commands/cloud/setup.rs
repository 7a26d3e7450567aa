//! `--write` and `--undo`: the cloud and which one is active in the configuration of `az`, the certificates, a file for the
//! shell, names in the hosts file. The files of `az` are written here rather than by `az`: a change is then one of a few
//! lines that can be undone to the byte, and it makes no difference which `az` is installed, or whether one is yet.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::keeping::{Kept, KeptFile, Part};
use super::script::Shell;
use super::site::Site;
use super::{bundle, hosts, ini, logins};
use crate::failure::Failure;
use crate::session::{Ini, az_config_dir};
use crate::whole_file::{cannot_write, read, remove, replace};

const BUNDLE: &str = "ca-bundle.pem";

/// Where things are put.
pub struct Places {
    /// Our own directory.
    pub own: PathBuf,
    /// That of `az`.
    pub az: PathBuf,
    pub hosts: PathBuf,
}

impl Places {
    pub fn new(hosts: &Path) -> Result<Places, Failure> {
        let no_home = || {
            Failure::new("there is no home directory to find the configuration of az in").hint("set AZURE_CONFIG_DIR")
        };
        let own = corro_client::profile::config_dir()?.join("az");
        Ok(Places { own, az: az_config_dir().ok_or_else(no_home)?, hosts: hosts.to_owned() })
    }

    pub fn bundle(&self) -> PathBuf {
        self.own.join(BUNDLE)
    }
}

/// What was done, for whoever reads it.
pub struct Done {
    pub changed: Vec<PathBuf>,
    /// The cloud that is active again after an undo.
    pub previous: String,
    pub env_file: PathBuf,
    pub bundle: Option<bundle::Bundle>,
    /// The hosts file could not be written.
    pub hosts_refused: Option<io::Error>,
}

struct Change {
    path: PathBuf,
    part: Part,
    now: Option<String>,
    then: Option<String>,
}

/// `names` is the block for the hosts file, if this machine needs one.
pub fn write(site: &Site, places: &Places, names: Option<&str>, shell: Shell) -> Result<Done, Failure> {
    let mut kept = Kept::load(&places.own)?.unwrap_or_else(|| Kept { cloud: site.cloud.clone(), files: Vec::new() });
    if kept.cloud != site.cloud {
        return Err(Failure::new(format!("az is set up already, with the cloud '{}'", kept.cloud))
            .hint("take that back first with 'corro cloud setup-az --undo'"));
    }
    let logins = places.az.join("azureProfile.json");
    let now = read(&logins)?;
    // A login is for `az` to make; what is there now is only kept.
    let no_change = Change { path: logins, part: Part::Logins, then: now.clone(), now };
    let mut changes = vec![cloud_change(site, places, &kept)?, active_change(site, places)?, no_change];
    if let Some(block) = names {
        let now = read(&places.hosts)?;
        let then = Some(hosts::with_block(now.as_deref().unwrap_or_default(), block));
        changes.push(Change { path: places.hosts.clone(), part: Part::Names, now, then });
    }
    let made_dir = make_dir(&places.az)?;
    make_dir(&places.own)?;
    for change in &changes {
        if kept.of(&change.path).is_none() {
            kept.files.push(before(change, made_dir));
        }
    }
    kept.save(&places.own)?;

    let bundle = site.authority.as_ref().map(|text| bundle::make(text, &places.bundle())).transpose()?;
    let env_file = places.own.join(shell.file_name());
    let mut done = Done { changed: Vec::new(), previous: previous(&kept), env_file, bundle, hosts_refused: None };
    let env_text = shell.environment(site, done.bundle.as_ref().map(|_| places.bundle()).as_deref());
    let mut ours = vec![(done.env_file.clone(), env_text)];
    ours.extend(done.bundle.as_ref().map(|bundle| (places.bundle(), bundle.text.clone())));
    for (path, text) in ours {
        if read(&path)?.as_deref() != Some(&text) {
            replace(&path, &text).map_err(|error| cannot_write(&path, &error))?;
            done.changed.push(path);
        }
    }
    for Change { path, part, now, then } in changes {
        let Some(then) = then.filter(|then| now.as_ref() != Some(then)) else { continue };
        match replace(&path, &then) {
            Ok(()) => done.changed.push(path),
            Err(error) if part == Part::Names && now.is_some() => done.hosts_refused = Some(error),
            Err(error) => return Err(cannot_write(&path, &error)),
        }
    }
    Ok(done)
}

/// What an undo did.
pub struct Undone {
    pub cloud: String,
    /// The cloud that is active again.
    pub previous: String,
    pub files: Vec<PathBuf>,
    /// Files that could not be given back, which is left to do.
    pub refused: Vec<(PathBuf, Part, io::Error)>,
}

/// Gives everything back; `None` when nothing was set up.
pub fn undo(places: &Places) -> Result<Option<Undone>, Failure> {
    let Some(mut kept) = Kept::load(&places.own)? else { return Ok(None) };
    let (cloud, previous) = (kept.cloud.clone(), previous(&kept));
    let mut undone = Undone { cloud: cloud.clone(), previous, files: Vec::new(), refused: Vec::new() };
    let mut left = Vec::new();
    // Before the logins themselves go.
    forget_passwords(places, &cloud)?;
    for file in kept.files.drain(..) {
        match file.give_back(&cloud) {
            Ok(()) => undone.files.push(file.path),
            Err(error) => {
                undone.refused.push((file.path.clone(), file.part, error));
                left.push(file);
            }
        }
    }
    for name in Shell::ALL.map(Shell::file_name).into_iter().chain([BUNDLE]) {
        let path = places.own.join(name);
        remove(&path).map_err(|error| cannot_write(&path, &error))?;
    }
    if left.is_empty() {
        Kept::remove(&places.own).map_err(|error| cannot_write(&places.own, &error))?;
        let _ = fs::remove_dir(&places.own);
    } else {
        Kept { files: left, ..kept }.save(&places.own)?;
    }
    Ok(Some(undone))
}

/// Passwords of whoever is logged in at our cloud, which `az` keeps in clear. They are not kept here too, so this file comes
/// back with what else it says, not to the byte.
fn forget_passwords(places: &Places, cloud: &str) -> Result<(), Failure> {
    let profile = read(&places.az.join("azureProfile.json"))?.unwrap_or_default();
    let path = places.az.join("accessTokens.json");
    let tokens = read(&path)?.unwrap_or_default();
    match logins::without_principals(&tokens, &logins::principals(&profile, cloud)).as_deref() {
        None => Ok(()),
        Some("[]") => remove(&path).map_err(|error| cannot_write(&path, &error)),
        Some(rest) => replace(&path, rest).map_err(|error| cannot_write(&path, &error)),
    }
}

fn cloud_change(site: &Site, places: &Places, kept: &Kept) -> Result<Change, Failure> {
    let path = places.az.join("clouds.config");
    let now = read(&path)?;
    let text = now.clone().unwrap_or_default();
    let options = site.options();
    let present = Ini::parse(&text);
    let is_same =
        options.iter().all(|(option, value)| present.get(&site.cloud.to_lowercase(), option).as_ref() == Some(value));
    if kept.of(&path).is_none() && present.has_section(&site.cloud) && !is_same {
        return Err(Failure::new(format!("az has another cloud named '{}' already", site.cloud))
            .hint("choose another name with --cloud NAME, or remove that one with 'az cloud unregister'"));
    }
    let set = |text: String, (option, value): &(&str, String)| ini::with_option(&text, &site.cloud, option, value);
    let then = Some(options.iter().fold(text, set));
    Ok(Change { path, part: Part::Cloud, now, then })
}

fn active_change(site: &Site, places: &Places) -> Result<Change, Failure> {
    let path = places.az.join("config");
    let now = read(&path)?;
    let then = Some(ini::with_option(now.as_deref().unwrap_or_default(), "cloud", "name", &site.cloud));
    Ok(Change { path, part: Part::Active, now, then })
}

fn before(change: &Change, made_dir: bool) -> KeptFile {
    let before = match change.part {
        // A block that somebody wrote by hand is ours all the same.
        Part::Names => change.now.as_deref().map(hosts::without_block),
        Part::Cloud | Part::Active | Part::Logins => change.now.clone(),
    };
    let made_dir = made_dir && change.part != Part::Names;
    KeptFile { path: change.path.clone(), part: change.part, before, made_dir }
}

fn previous(kept: &Kept) -> String {
    let active = kept.files.iter().find(|file| file.part == Part::Active);
    let name = active.and_then(|file| Ini::parse(file.before.as_deref()?).get("cloud", "name"));
    name.unwrap_or_else(|| "AzureCloud".to_owned())
}

/// Whether it was not there.
fn make_dir(dir: &Path) -> Result<bool, Failure> {
    if dir.is_dir() {
        return Ok(false);
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|error| cannot_write(dir, &error))?;
    Ok(true)
}
