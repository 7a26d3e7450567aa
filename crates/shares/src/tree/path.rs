//! [`SharePath`], a path inside a share that cannot climb: no empty, `.` or `..` component, no backslash, no control
//! character. Parsed from text that was percent-decoded exactly once; never decodes again.

use std::fmt;

/// A path inside a share; the empty path is the share's root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SharePath(String);

/// Maximum bytes of a component, in Azure and Linux.
const MAX_COMPONENT: usize = 255;
/// Maximum bytes of a path, with slashes.
const MAX_PATH: usize = 2048;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path has an empty component")]
    Empty,
    #[error("the path has a component that is `.` or `..`")]
    Dots,
    #[error("the path has a backslash or a control character")]
    Character,
    #[error("the path has a component longer than {MAX_COMPONENT} bytes")]
    ComponentTooLong,
    #[error("the path is longer than {MAX_PATH} bytes")]
    TooLong,
}

impl SharePath {
    pub const ROOT: SharePath = SharePath(String::new());

    /// `text` is decoded and has neither a leading nor a trailing slash.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Ok(Self::ROOT);
        }
        if text.len() > MAX_PATH {
            return Err(PathError::TooLong);
        }
        text.split('/').try_for_each(check_component)?;
        Ok(SharePath(text.to_owned()))
    }

    /// Path of `name` in this directory.
    pub fn child(&self, name: &str) -> Result<Self, PathError> {
        check_component(name)?;
        match self.is_root() {
            true => Self::parse(name),
            false => Self::parse(&format!("{}/{name}", self.0)),
        }
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Parent directory and last component; `None` for the root.
    pub fn split(&self) -> Option<(SharePath, &str)> {
        match self.0.rsplit_once('/') {
            Some((parent, name)) => Some((SharePath(parent.to_owned()), name)),
            None if self.is_root() => None,
            None => Some((Self::ROOT, &self.0)),
        }
    }

    /// All prefixes from the first component to the path itself; without the root.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = SharePath> {
        let ends = self.0.match_indices('/').map(|(idx, _)| idx);
        let last = (!self.is_root()).then_some(self.0.len());
        ends.chain(last).map(|end| SharePath(self.0[..end].to_owned()))
    }

    /// Without a leading slash; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SharePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0)
    }
}

fn check_component(name: &str) -> Result<(), PathError> {
    let is_forbidden = |c: char| c.is_control() || matches!(c, '/' | '\\');
    match name {
        "" => Err(PathError::Empty),
        "." | ".." => Err(PathError::Dots),
        _ if name.contains(is_forbidden) => Err(PathError::Character),
        _ if name.len() > MAX_COMPONENT => Err(PathError::ComponentTooLong),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn table() {
        let long = "x".repeat(255);
        let too_long = "x".repeat(256);
        let deep = vec!["y".repeat(200); 10].join("/"); // 2009 bytes
        let too_deep = format!("{deep}/{}", "z".repeat(39)); // 2049 bytes
        for (text, expected) in [
            ("", Ok(())),
            ("a", Ok(())),
            ("a/b c+d%25/é", Ok(())),
            ("%2e%2e/x", Ok(())), // a name that looks encoded is taken literally
            (".hidden/..more/...", Ok(())),
            ("a\u{FFFE}\u{FFFF}", Ok(())), // odd, but valid in Azure
            (&long, Ok(())),
            (&deep, Ok(())),
            ("/", Err(PathError::Empty)),
            ("/a", Err(PathError::Empty)),
            ("a/", Err(PathError::Empty)),
            ("a//b", Err(PathError::Empty)),
            (".", Err(PathError::Dots)),
            ("a/./b", Err(PathError::Dots)),
            ("..", Err(PathError::Dots)),
            ("a/../../b", Err(PathError::Dots)),
            ("..\\b", Err(PathError::Character)),
            ("a\0", Err(PathError::Character)),
            ("a\nb", Err(PathError::Character)),
            ("a\u{1b}[2J", Err(PathError::Character)),
            ("a\u{85}", Err(PathError::Character)),
            (&too_long, Err(PathError::ComponentTooLong)),
            (&too_deep, Err(PathError::TooLong)),
        ] {
            assert_eq!(SharePath::parse(text).map(|_| ()), expected, "{text:?}");
        }
    }

    #[test]
    fn parts() {
        let path = SharePath::parse("a/b/c").expect("a good path");
        let (parent, name) = path.split().expect("not the root");
        assert_eq!((parent.as_str(), name), ("a/b", "c"));
        let prefixes: Vec<_> = path.prefixes().map(|p| p.to_string()).collect();
        assert_eq!(prefixes, ["/a", "/a/b", "/a/b/c"]);
        assert_eq!(SharePath::ROOT.prefixes().count(), 0);
        assert_eq!(SharePath::ROOT.split(), None);
        assert_eq!(SharePath::ROOT.child("x"), SharePath::parse("x"));
        assert_eq!(parent.child("../c"), Err(PathError::Character));
        assert_eq!(parent.child(".."), Err(PathError::Dots));
    }

    proptest! {
        /// Walking the components one by one never goes above the start.
        #[test]
        fn no_accepted_path_climbs(text in "[./\\\\a-c%\\x00-\\x20é]{0,24}") {
            if let Ok(path) = SharePath::parse(&text) {
                prop_assert_eq!(path.as_str(), &text);
                let components: Vec<_> = std::path::Path::new(path.as_str()).components().collect();
                for component in &components {
                    prop_assert!(matches!(component, std::path::Component::Normal(_)));
                }
                prop_assert_eq!(path.prefixes().count(), components.len());
            }
        }
    }
}
