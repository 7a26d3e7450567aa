//! Checks the rules of `deny.toml` for licences, duplicates and sources against the crates that cargo builds from the lock file
//! on this platform. Needs no tool and no network, so it runs with all other tests; cargo-deny, where installed, reads the same
//! file. The parser is small: one entry per line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

struct Rules {
    licences: BTreeSet<String>,
    /// Crate, and a licence that only it may have.
    exceptions: Vec<(String, String)>,
    /// Crate, and the version prefix that is allowed beside another.
    duplicates: Vec<(String, String)>,
}

impl Rules {
    fn read(text: &str) -> Rules {
        let mut rules = Rules { licences: BTreeSet::new(), exceptions: Vec::new(), duplicates: Vec::new() };
        let (mut section, mut key) = ("", "");
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            if line.starts_with('[') {
                section = line;
            }
            if let Some((name, "[")) = line.split_once(" = ") {
                key = name;
            }
            let strings: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
            match (section, key, &strings[..]) {
                ("[licenses]", "allow", [licence]) => _ = rules.licences.insert((*licence).to_owned()),
                ("[licenses]", "exceptions", [name, licence]) => {
                    rules.exceptions.push(((*name).to_owned(), (*licence).to_owned()));
                }
                ("[bans]", "skip", [spec, reason]) => {
                    let (name, version) = spec.split_once('@').expect("a name and a version");
                    assert!(reason.len() > 5, "{spec} has no reason");
                    rules.duplicates.push((name.to_owned(), version.to_owned()));
                }
                _ => {}
            }
        }
        rules
    }

    fn allows_licence(&self, name: &str, licence: &str) -> bool {
        // `+` and the suffixes of newer identifiers mean "this version or a later one".
        let plain = licence.trim_end_matches('+').trim_end_matches("-or-later").trim_end_matches("-only");
        self.licences.contains(plain) || self.exceptions.iter().any(|(of, allowed)| of == name && allowed == plain)
    }

    /// Evaluates an SPDX expression of `AND`, `OR`, `WITH` and brackets; `/` is an old form of `OR`.
    fn allows(&self, name: &str, expression: &str) -> bool {
        let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut rest = &words[..];
        let allowed = self.any_of(name, &mut rest);
        assert!(rest.is_empty(), "{name}: {expression} is not understood");
        allowed
    }

    fn any_of(&self, name: &str, words: &mut &[&str]) -> bool {
        let mut allowed = self.all_of(name, words);
        while let ["OR", rest @ ..] = words {
            *words = rest;
            allowed |= self.all_of(name, words);
        }
        allowed
    }

    fn all_of(&self, name: &str, words: &mut &[&str]) -> bool {
        let mut allowed = self.one(name, words);
        while let ["AND", rest @ ..] = words {
            *words = rest;
            allowed &= self.one(name, words);
        }
        allowed
    }

    fn one(&self, name: &str, words: &mut &[&str]) -> bool {
        match words {
            ["(", rest @ ..] => {
                *words = rest;
                let allowed = self.any_of(name, words);
                assert_eq!(words.first(), Some(&")"), "{name}: a bracket is not closed");
                *words = &words[1..];
                allowed
            }
            [licence, "WITH", exception, rest @ ..] => {
                let allowed = self.allows_licence(name, &format!("{licence} WITH {exception}"));
                *words = rest;
                allowed
            }
            [licence, rest @ ..] => {
                let allowed = self.allows_licence(name, licence);
                *words = rest;
                allowed
            }
            [] => false,
        }
    }

    /// Versions of one crate that are neither the only one nor listed as duplicates.
    fn unknown_duplicates<'v>(&self, name: &str, versions: &[&'v str]) -> Vec<&'v str> {
        let is_known = |version: &str| {
            self.duplicates
                .iter()
                .any(|(of, known)| of == name && format!("{version}.").starts_with(&format!("{known}.")))
        };
        versions.iter().copied().filter(|version| !is_known(version)).collect()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

struct Package {
    name: String,
    version: String,
    licence: String,
    /// `None` for the default registry; a directory or the address of another source.
    source: Option<String>,
}

/// Packages of the build on this platform, for all targets and features.
fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--all-features", "--edges", "normal,build,dev", "--locked", "--offline"])
        .args(["--prefix", "none", "--format", "{p}|{l}|"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: BTreeSet<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let package = |line: &&str| {
        let mut fields = line.split('|');
        let (what, licence) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let mut words = what.split_whitespace().filter(|word| *word != "(proc-macro)");
        let name = words.next().expect(line).to_owned();
        let version = words.next().and_then(|word| word.strip_prefix('v')).expect(line).to_owned();
        let source = words.next().map(|word| word.trim_matches(['(', ')']).to_owned());
        Package { name, version, licence: licence.to_owned(), source }
    };
    let packages: Vec<Package> = lines.iter().map(package).collect();
    assert!(packages.len() > 100, "cargo knows only {} packages", packages.len());
    packages
}

#[test]
fn dependencies_have_known_licences_sources_and_no_new_duplicates() {
    let rules = Rules::read(&std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml"));
    assert!(rules.licences.contains("MIT") && !rules.exceptions.is_empty() && !rules.duplicates.is_empty());
    let mut wrong = Vec::new();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let here = root().canonicalize().expect("it is there");
    for Package { name, version, licence, source } in packages() {
        if !rules.allows(&name, &licence) {
            wrong.push(format!("{name} {version} has the licence {licence:?}, which deny.toml does not allow"));
        }
        if let Some(source) = source.filter(|source| !Path::new(source).starts_with(&here)) {
            wrong.push(format!("{name} {version} comes from {source}"));
        }
        versions.entry(name).or_default().insert(version);
    }
    for (name, versions) in &versions {
        let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
        if let [_, _, ..] = &rules.unknown_duplicates(name, &versions)[..] {
            wrong
                .push(format!("{name} is there as {}: choose one, or give a reason in deny.toml", versions.join(", ")));
        }
    }
    // An exception without a duplicate is obsolete.
    for (name, known) in &rules.duplicates {
        let is_there = versions.get(name).is_some_and(|all| {
            all.len() > 1 && all.iter().any(|version| format!("{version}.").starts_with(&format!("{known}.")))
        });
        if !is_there {
            wrong.push(format!("{name} {known} is not a duplicate any more: take it out of deny.toml"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn licences_are_understood() {
    let rules = Rules::read(
        "[licenses]\nallow = [\n\"MIT\",\n\"A WITH x\",\n\"ISC\",\n]\nexceptions = [\n{ crate = \"odd\", allow = [\"MPL-2.0\"] },\n]\n",
    );
    for (expression, allowed) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("ISC AND MIT", true),
        ("(GPL-3.0 OR MIT) AND ISC", true),
        ("(GPL-3.0 OR MIT) AND GPL-2.0", false),
        ("MIT OR GPL-3.0 AND GPL-2.0", true),
        ("A WITH x", true),
        ("A", false),
        ("MPL-2.0+", false),
    ] {
        assert_eq!(rules.allows("plain", expression), allowed, "{expression}");
    }
    assert!(rules.allows("odd", "MPL-2.0+") && rules.allows("odd", "MPL-2.0-or-later"));
    assert_eq!(rules.unknown_duplicates("x", &["1.0.0", "2.0.0"]), ["1.0.0", "2.0.0"]);
}
