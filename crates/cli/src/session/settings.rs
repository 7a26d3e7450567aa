//! Defaults of arguments: `AZURE_{SECTION}_{OPTION}` in the environment, then `option = value` in `[section]` of the configuration file of `az`.
//! Read-only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, io};

use super::env;
use crate::stdio::note;

/// The value of an option, if it is set and not empty.
pub fn setting(section: &str, option: &str) -> Option<String> {
    env(&variable_name(section, option)).or_else(|| file_setting(section, option))
}

/// The value of an option in the configuration file of `az`, whatever the environment says.
pub fn file_setting(section: &str, option: &str) -> Option<String> {
    static FILE: OnceLock<Ini> = OnceLock::new();
    FILE.get_or_init(read_file).get(section, option)
}

/// The environment variable of an option.
pub fn variable_name(section: &str, option: &str) -> String {
    format!("AZURE_{section}_{option}").to_uppercase()
}

fn read_file() -> Ini {
    let Some(path) = az_config_file() else { return Ini::default() };
    match fs::read(&path) {
        Ok(text) => {
            let ini = Ini::parse(&String::from_utf8_lossy(&text));
            if let Some((line, why)) = ini.ignored.first() {
                note(format_args!("warning: {}, line {line}: {why}, so it is ignored", path.display()));
            }
            ini
        }
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                note(format_args!("warning: {} cannot be read and is ignored: {error}", path.display()));
            }
            Ini::default()
        }
    }
}

/// The configuration file of `az`.
pub fn az_config_file() -> Option<PathBuf> {
    Some(az_config_dir()?.join("config"))
}

/// Configuration directory of `az`: `$AZURE_CONFIG_DIR`, or `~/.azure`.
pub fn az_config_dir() -> Option<PathBuf> {
    let dir = env("AZURE_CONFIG_DIR").map(PathBuf::from);
    dir.or_else(|| env("HOME").map(|home| Path::new(&home).join(".azure")))
}

/// An ini file in the dialect of Python's `configparser`, without interpolation and continuation lines, which `az` does not use.
#[derive(Debug, Default)]
pub struct Ini {
    /// Section, option and value; the first two in lower case.
    values: Vec<(String, String, String)>,
    /// Ignored lines: number and reason.
    ignored: Vec<(usize, &'static str)>,
}

impl Ini {
    pub fn parse(text: &str) -> Ini {
        let mut ini = Ini::default();
        let mut section = String::new();
        for (line_idx, line) in text.trim_start_matches('\u{feff}').lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                section = name.0.trim().to_lowercase();
            } else if section.is_empty() {
                ini.ignored.push((line_idx + 1, "there is no [section] above it"));
            } else if let Some((option, value)) = line.split_once(['=', ':']) {
                ini.values.push((section.clone(), option.trim().to_lowercase(), value.trim().to_owned()));
            } else {
                ini.ignored.push((line_idx + 1, "it is neither [section] nor 'option = value'"));
            }
        }
        ini
    }

    pub fn get(&self, section: &str, option: &str) -> Option<String> {
        let found = self.values.iter().rfind(|(in_section, name, _)| in_section == section && name == option);
        found.map(|(_, _, value)| value.clone()).filter(|value| !value.is_empty())
    }

    /// Whether the section has an option.
    pub fn has_section(&self, section: &str) -> bool {
        self.values.iter().any(|(name, _, _)| name.eq_ignore_ascii_case(section))
    }

    /// Whether both have the same values, however they are formatted.
    pub fn has_same_content(&self, other: &Ini) -> bool {
        let content = |ini: &Ini| -> BTreeMap<(String, String), String> {
            let values = ini.values.iter().cloned();
            values.map(|(section, option, value)| ((section, option), value)).collect()
        };
        content(self) == content(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_in_their_section() {
        let ini = Ini::parse(
            "# mine\n[batchai]\nstorage_account = acc\nStorage_Key=a2V5PT0=\n\n[ defaults ]\n; no\ngroup: g \nlocation =\n\
             [storage]\nsas_token = sv=1&sig=x%2B:y\n",
        );
        for (section, option, expected) in [
            ("batchai", "storage_account", Some("acc")),
            ("batchai", "storage_key", Some("a2V5PT0=")),
            ("defaults", "group", Some("g")),
            ("defaults", "location", None),
            ("storage", "sas_token", Some("sv=1&sig=x%2B:y")),
            ("storage", "account", None),
            ("core", "output", None),
        ] {
            assert_eq!(ini.get(section, option).as_deref(), expected, "{section} {option}");
        }
    }

    #[test]
    fn invalid_lines_are_reported() {
        assert!(Ini::parse("# a\n[core]\noutput = table\n").ignored.is_empty());
        assert_eq!(Ini::parse("\noutput = table\n").ignored, [(2, "there is no [section] above it")]);
        assert_eq!(Ini::parse("[core]\noutput").ignored, [(2, "it is neither [section] nor 'option = value'")]);
    }

    #[test]
    fn variables_are_named_as_az_names_them() {
        assert_eq!(variable_name("batchai", "storage_account"), "AZURE_BATCHAI_STORAGE_ACCOUNT");
        assert_eq!(variable_name("defaults", "group"), "AZURE_DEFAULTS_GROUP");
    }
}
