//! What files said before `setup` changed them, kept in one file of its own, and how each is given back. Written before
//! anything is changed, so that whatever was cut short can be undone. A file that nobody else changed is given back byte
//! for byte; otherwise our part is taken out and theirs stays.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{hosts, ini, logins};
use crate::failure::Failure;
use crate::session::Ini;
use crate::whole_file::{cannot_write, read, remove, replace};

const FILE: &str = "undo.json";

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    /// What `az` calls the server.
    pub cloud: String,
    pub files: Vec<KeptFile>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct KeptFile {
    pub path: PathBuf,
    pub part: Part,
    /// None when there was no such file.
    pub before: Option<String>,
    /// Its directory was made by us.
    pub made_dir: bool,
}

/// Which part of a file is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// A section of `clouds.config`.
    Cloud,
    /// `name` of `[cloud]` in `config`: which cloud is active.
    Active,
    /// The block in the hosts file.
    Names,
    /// Logins at our cloud in `azureProfile.json`.
    Logins,
}

impl Kept {
    pub fn load(dir: &Path) -> Result<Option<Kept>, Failure> {
        let path = dir.join(FILE);
        let Some(text) = read(&path)? else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|error| Failure {
            causes: vec![error.to_string()],
            ..Failure::new(format!("{} does not say what was there before", path.display()))
        })
    }

    pub fn save(&self, dir: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Failure::of(&error))?;
        let path = dir.join(FILE);
        replace(&path, &text).map_err(|error| cannot_write(&path, &error))
    }

    pub fn remove(dir: &Path) -> io::Result<()> {
        remove(&dir.join(FILE))
    }

    pub fn of(&self, path: &Path) -> Option<&KeptFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl KeptFile {
    /// Gives the file back. Fine when that was done already.
    pub fn give_back(&self, cloud: &str) -> io::Result<()> {
        let now = fs::read_to_string(&self.path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(String::new()),
            _ => Err(error),
        })?;
        match self.restored(cloud, &now) {
            Some(text) if text == now && self.path.exists() => {}
            Some(text) => replace(&self.path, &text)?,
            None => remove(&self.path)?,
        }
        if self.made_dir {
            // Others may have put something there since.
            let _ = self.path.parent().map(fs::remove_dir);
        }
        Ok(())
    }

    /// What the file says without our part; `None` when it goes.
    fn restored(&self, cloud: &str, now: &str) -> Option<String> {
        let before = self.before.as_deref().unwrap_or_default();
        let rest = match self.part {
            // What was there under that name is not ours.
            Part::Cloud if Ini::parse(before).has_section(cloud) => now.to_owned(),
            Part::Cloud => ini::without_section(now, cloud),
            Part::Active => match (Ini::parse(now).get("cloud", "name"), Ini::parse(before).get("cloud", "name")) {
                (Some(active), Some(previous)) if active == cloud => ini::with_option(now, "cloud", "name", &previous),
                (Some(active), None) if active == cloud => ini::without_option(now, "cloud", "name"),
                _ => now.to_owned(),
            },
            Part::Names => hosts::without_block(now),
            Part::Logins => return logins::without_cloud(now, self.before.as_deref(), cloud),
        };
        let is_unchanged = match self.part {
            Part::Names => rest.trim_end() == before.trim_end(),
            _ => Ini::parse(&rest).says_what(&Ini::parse(before)),
        };
        if is_unchanged { self.before.clone() } else { Some(rest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(part: Part, before: Option<&str>, now: &str, expected: Option<&str>) {
        let before = before.map(str::to_owned);
        let file = KeptFile { path: PathBuf::new(), part, before, made_dir: false };
        assert_eq!(file.restored("corro", now).as_deref(), expected, "{now}");
    }

    #[test]
    fn files_come_back_byte_for_byte_unless_others_changed_them() {
        let clouds = "# mine\n[other]\nEndpoint_X: 1\n";
        let by_us = format!("{clouds}\n[corro]\nendpoint_resource_manager = u\n");
        // Without our part, and as a file that `az` has written anew says the same, the old bytes come back.
        check(Part::Cloud, Some(clouds), &by_us, Some(clouds));
        let by_az = "[other]\nendpoint_x = 1\n\n[corro]\nendpoint_resource_manager = u\nsubscription = s\n\n";
        check(Part::Cloud, Some(clouds), by_az, Some(clouds));
        check(Part::Cloud, Some(clouds), clouds, Some(clouds));
        check(Part::Cloud, None, "[corro]\na = 1\n", None);
        check(Part::Cloud, None, "", None);
        // A cloud that came since stays.
        check(
            Part::Cloud,
            Some(clouds),
            &format!("{by_az}[new]\nb = 2\n"),
            Some("[other]\nendpoint_x = 1\n\n[new]\nb = 2\n"),
        );
        // One of that name that was there before is not ours.
        check(Part::Cloud, Some("[corro]\na = 1\n"), "[corro]\na = 1\n\n", Some("[corro]\na = 1\n"));
    }

    #[test]
    fn the_cloud_that_was_active_is_active_again_unless_another_was_chosen() {
        let before = "[core]\nx = 1\n[cloud]\nname = AzureChinaCloud\n";
        check(Part::Active, Some(before), &before.replace("AzureChinaCloud", "corro"), Some(before));
        check(Part::Active, None, "[cloud]\nname = corro\n", None);
        check(Part::Active, Some("[core]\n"), "[core]\n\n[cloud]\nname = corro\n", Some("[core]\n"));
        let chosen = before.replace("AzureChinaCloud", "AzureCloud");
        check(Part::Active, Some(before), &chosen, Some(&chosen));
        let more = "[cloud]\nname = corro\n\n[defaults]\ngroup = g\n";
        check(Part::Active, Some("[cloud]\nname = A\n"), more, Some("[cloud]\nname = A\n\n[defaults]\ngroup = g\n"));
    }
}
