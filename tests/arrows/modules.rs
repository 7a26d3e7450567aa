//! No import circles between sibling modules inside a crate: what two modules need lies in a third, below both. Reads paths
//! that begin with `crate::`, `super::` or `self::` in non-test code; a small reader of source text, not a compiler.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module by its path below the crate, `["transport", "shm"]`.
type Module = Vec<String>;

#[test]
fn sibling_modules_do_not_import_each_other_in_circles() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut circles = Vec::new();
    for entry in fs::read_dir(&crates).expect("a directory of crates").flatten() {
        let files = module_files(&entry.path().join("src"));
        for (parent, circle) in circles_in(&files) {
            let name = entry.file_name().to_string_lossy().into_owned();
            circles.push(format!(
                "{name}: {}: {}",
                [vec!["crate".to_owned()], parent].concat().join("::"),
                circle.join(", ")
            ));
        }
    }
    assert!(circles.is_empty(), "modules import each other in circles:\n{}", circles.join("\n"));
}

/// The text of each module, without tests.
fn module_files(src: &Path) -> BTreeMap<Module, String> {
    let mut files = BTreeMap::new();
    let mut directories = vec![src.to_owned()];
    while let Some(directory) = directories.pop() {
        let mut paths: Vec<PathBuf> = fs::read_dir(&directory)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
            .flatten()
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.contains("test") {
                continue;
            }
            if path.is_dir() {
                directories.push(path);
            } else if let Some(stem) = name.strip_suffix(".rs") {
                let mut module: Module = path
                    .parent()
                    .and_then(|parent| parent.strip_prefix(src).ok())
                    .expect("a path below src")
                    .iter()
                    .map(|part| part.to_string_lossy().into_owned())
                    .collect();
                if !["mod", "lib", "main"].contains(&stem) {
                    module.push(stem.to_owned());
                }
                files.insert(module, without_tests(&fs::read_to_string(&path).expect("a source file")));
            }
        }
    }
    files
}

/// Without comments, and without what follows the first inline test module, which by convention comes last.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut is_test_next = false;
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        if is_test_next && code.contains("mod ") && code.trim_end().ends_with('{') {
            break;
        }
        let code_trimmed = code.trim();
        if !(code_trimmed.is_empty() || code_trimmed.starts_with("#[")) {
            is_test_next = false;
        }
        is_test_next |= code_trimmed == "#[cfg(test)]";
        kept.push_str(code);
        kept.push('\n');
    }
    kept
}

/// The paths of a module's text, resolved to `[part, part, …]` below the crate.
fn imports(module: &Module, text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (head, base) in [("crate", Some(Vec::new())), ("self", Some(module.clone())), ("super", None)] {
        for (at, _) in text.match_indices(&format!("{head}::")) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
                continue;
            }
            let mut rest = &text[at + head.len() + 2..];
            let base = match &base {
                Some(base) => base.clone(),
                None => {
                    let mut levels = 1;
                    while let Some(after) = rest.strip_prefix("super::") {
                        rest = after;
                        levels += 1;
                    }
                    module[..module.len().saturating_sub(levels)].to_vec()
                }
            };
            expand(&base, use_tree(rest), &mut found);
        }
    }
    found
}

/// The use tree or path at the beginning of `text`: `a::b`, `a::{b, c::d}`.
fn use_tree(text: &str) -> &str {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return &text[..if depth == 1 { at + 1 } else { at }],
            '}' => depth -= 1,
            _ if depth > 0 || c.is_alphanumeric() || c == '_' || c == ':' => {}
            _ => return &text[..at],
        }
    }
    text
}

fn expand(base: &[String], tree: &str, found: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    if let Some(group) = tree.strip_prefix('{') {
        let group = group.strip_suffix('}').unwrap_or(group);
        let (mut depth, mut start) = (0usize, 0);
        for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    if !group[start..at].trim().is_empty() {
                        expand(base, &group[start..at], found);
                    }
                    start = at + 1;
                }
                _ => {}
            }
        }
        return;
    }
    let (first, rest) = tree.split_once("::").unwrap_or((tree, ""));
    let first = first.split_whitespace().next().unwrap_or_default();
    let path = [base, &[first.to_owned()]].concat();
    match rest.trim().is_empty() || first.is_empty() {
        true => found.push(path),
        false => expand(&path, rest, found),
    }
}

/// For each parent module, the groups of its children that reach each other.
fn circles_in(files: &BTreeMap<Module, String>) -> Vec<(Module, Vec<String>)> {
    let modules: BTreeSet<&[String]> =
        files.keys().flat_map(|path| (0..=path.len()).map(move |n| &path[..n])).collect();
    // Edges between the children of a module.
    let mut edges: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, text) in files {
        for path in imports(module, text) {
            let known = (0..=path.len()).rev().find(|n| modules.contains(&path[..*n])).unwrap_or(0);
            let target = &path[..known];
            let common = module.iter().zip(target).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (module.get(common), target.get(common)) {
                let siblings = edges.entry(module[..common].to_vec()).or_default();
                siblings.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    let mut circles = Vec::new();
    for (parent, edges) in &edges {
        let reach = |from: &String| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(module) = next.pop() {
                for to in edges.get(module).into_iter().flatten() {
                    if seen.insert(to.clone()) {
                        next.push(to);
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<&String, BTreeSet<String>> = edges.keys().map(|from| (from, reach(from))).collect();
        let mut reported = BTreeSet::new();
        for (from, targets) in &reached {
            if !targets.contains(*from) || reported.contains(*from) {
                continue;
            }
            let circle: Vec<String> =
                targets.iter().filter(|to| reached.get(to).is_some_and(|back| back.contains(*from))).cloned().collect();
            reported.extend(circle.iter().cloned());
            circles.push((parent.clone(), circle));
        }
    }
    circles
}

#[test]
fn circles_are_found_in_all_ways_to_write_an_import() {
    let circles = |files: &[(&str, &str)]| {
        let module = |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let files: BTreeMap<Module, String> =
            files.iter().map(|(path, text)| (module(path), without_tests(text))).collect();
        circles_in(&files).into_iter().map(|(parent, circle)| (parent.join("::"), circle.join(" "))).collect::<Vec<_>>()
    };
    let pair = |parent: &str| vec![(parent.to_owned(), "a b".to_owned())];
    assert_eq!(circles(&[("a", "use crate::b::B;"), ("b", "fn f() { crate::a::g() }")]), pair(""));
    assert_eq!(circles(&[("a", "use crate::{c, b::{B, C}};"), ("b", "use super::a;"), ("c", "")]), pair(""));
    assert_eq!(circles(&[("x::a", "use super::b;"), ("x::b::deep", "use super::super::a::A;")]), pair("x"));
    assert_eq!(
        circles(&[("a", "use crate::b;"), ("b", "// crate::a\n#[cfg(test)]\nmod tests {\nuse crate::a;\n}")]),
        []
    );
    assert_eq!(circles(&[("a", "use crate::b;"), ("b", "use crate::c;"), ("c", "")]), []);
    // A child may use what its parent defines.
    assert_eq!(circles(&[("a", "mod b; use self::b::B;"), ("a::b", "use super::A;")]), []);
}
