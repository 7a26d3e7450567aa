//! Paths of `corro share`: `SHARE:PATH` on a share, everything else on this machine, and where a copy goes. Pure.

use std::path::{Path, PathBuf};

use corro_model::names::{NameKind, check_name};

use crate::error::CliError;

/// A path on a share: `SHARE`, `SHARE:PATH` or `ACCOUNT/SHARE:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharePath {
    pub account: Option<String>,
    pub share: String,
    /// Without slashes at its ends; empty for the root.
    pub path: String,
    /// Whether it was written with a slash at the end, or names the root.
    pub is_directory: bool,
}

impl SharePath {
    pub fn parse(text: &str) -> Result<SharePath, CliError> {
        let (place, path) = text.split_once(':').unwrap_or((text, ""));
        let (account, share) = place.split_once('/').map_or((None, place), |(account, share)| (Some(account), share));
        let is_account =
            account.is_none_or(|account| text.contains(':') && check_name(NameKind::StorageAccount, account).is_ok());
        if !is_account || check_name(NameKind::Share, share).is_err() {
            let hint = match text.split_once('/').filter(|(share, _)| !text.contains(':') && !share.is_empty()) {
                Some((share, path)) => format!("write a path on a share with a colon: {share}:{path}"),
                None => "write SHARE, SHARE:PATH or ACCOUNT/SHARE:PATH".to_owned(),
            };
            return Err(CliError::usage(format!("'{text}' is not a path on a share")).hint(hint));
        }
        let inner = path.trim_matches('/');
        if inner.split('/').any(|part| matches!(part, "." | "..")) || inner.contains("//") {
            return Err(CliError::usage(format!("'{text}' is not a path on a share"))
                .hint("leave out '.', '..' and double slashes"));
        }
        Ok(SharePath {
            account: account.map(str::to_owned),
            share: share.to_owned(),
            path: inner.to_owned(),
            is_directory: inner.is_empty() || path.ends_with('/'),
        })
    }

    /// The last segment of the path; the share's name for the root.
    pub fn file_name(&self) -> &str {
        match self.path.rsplit('/').next() {
            Some(name) if !name.is_empty() => name,
            _ => &self.share,
        }
    }

    pub fn text(&self) -> String {
        format!("{}:{}", self.share, self.path)
    }
}

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyEnd {
    Local(PathBuf),
    Share(SharePath),
}

impl CopyEnd {
    /// A path on a share has a colon before any slash but that after an account. `./a:b` is a local file.
    pub fn parse(text: &str) -> Result<CopyEnd, CliError> {
        let before_colon = text.split_once(':').map(|(before, _)| before);
        let is_remote = before_colon.is_some_and(|before| {
            !before.is_empty() && !before.starts_with(['.', '/', '~']) && before.matches('/').count() <= 1
        });
        if is_remote { SharePath::parse(text).map(CopyEnd::Share) } else { Ok(CopyEnd::Local(PathBuf::from(text))) }
    }
}

/// The path on the share of a copy of `source`. `exists` says whether the target is a directory of the share.
pub fn upload_path(source: &Path, target: &SharePath, exists: bool) -> Result<String, CliError> {
    if !exists && !target.is_directory {
        return Ok(target.path.clone());
    }
    let name = source.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        CliError::new(format!("{} has no name that a copy of it could get", source.display()))
            .hint("name the target in full")
    })?;
    Ok(if target.path.is_empty() { name.to_owned() } else { format!("{}/{name}", target.path) })
}

/// The path on this machine of a copy of `source`. `exists` says whether the target is a directory of this machine.
pub fn download_path(source: &SharePath, target: &Path, exists: bool) -> PathBuf {
    let has_slash = target.as_os_str().as_encoded_bytes().ends_with(b"/");
    if exists || has_slash { target.join(source.file_name()) } else { target.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(text: &str) -> SharePath {
        SharePath::parse(text).expect(text)
    }

    #[test]
    fn paths_on_a_share_have_a_colon() {
        let check = |text: &str, expected: (Option<&str>, &str, &str, bool)| {
            let SharePath { account, share, path, is_directory } = share(text);
            assert_eq!((account.as_deref(), share.as_str(), path.as_str(), is_directory), expected, "{text}");
        };
        check("data", (None, "data", "", true));
        check("data:", (None, "data", "", true));
        check("data:/", (None, "data", "", true));
        check("data:a/b.txt", (None, "data", "a/b.txt", false));
        check("data:/a/", (None, "data", "a", true));
        check("myaccount/data:a:b", (Some("myaccount"), "data", "a:b", false));
        for wrong in ["", ":a", "Data", "data:../x", "data:a//b", "data:a/./b", "a/b/c:d", "data/a"] {
            assert_eq!(SharePath::parse(wrong).map_err(|error| error.exit), Err(2), "{wrong}");
        }
        let hint = SharePath::parse("data/sub/x").expect_err("no colon").hint;
        assert_eq!(hint.as_deref(), Some("write a path on a share with a colon: data:sub/x"));
    }

    #[test]
    fn what_has_no_colon_is_local() {
        let is_local = |text: &str| matches!(CopyEnd::parse(text), Ok(CopyEnd::Local(_)));
        assert!(["a", "./a:b", "/a:b", "../x:y", "~/a:b", "a/b/c:d", "a/b"].iter().all(|text| is_local(text)));
        assert!(["data:", "data:a/b", "myaccount/data:x"].iter().all(|text| !is_local(text)));
    }

    #[test]
    fn a_copy_goes_into_a_directory_or_gets_the_name() {
        let upload =
            |target: &str, exists| upload_path(Path::new("dir/train.csv"), &share(target), exists).expect("a name");
        assert_eq!(upload("data:", true), "train.csv");
        assert_eq!(upload("data:sets/", false), "sets/train.csv");
        assert_eq!(upload("data:sets", true), "sets/train.csv");
        assert_eq!(upload("data:sets", false), "sets");
        assert!(upload_path(Path::new("/"), &share("data:"), true).is_err());
        let download = |source: &str, target: &str, exists| download_path(&share(source), Path::new(target), exists);
        assert_eq!(download("data:sets/a.csv", ".", true), Path::new("./a.csv"));
        assert_eq!(download("data:sets", "out", false), Path::new("out"));
        assert_eq!(download("data:sets", "out/", false), Path::new("out/sets"));
        assert_eq!(download("data:", "out", true), Path::new("out/data"));
    }
}
