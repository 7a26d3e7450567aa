//! Lists the files of the book (`docs/src`) for the program: Markdown as text, pictures as bytes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../docs/src");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect_files(&root, &mut files);
    files.sort();
    let (mut pages, mut pictures) = (String::new(), String::new());
    for file in files {
        let name = file.strip_prefix(&root).expect("it was found below the root").display().to_string();
        let path = file.display().to_string();
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("md") => writeln!(pages, "({name:?}, include_str!({path:?})),").expect("memory takes what is written"),
            Some("png") => {
                writeln!(pictures, "({name:?}, include_bytes!({path:?})),").expect("memory takes what is written");
            }
            _ => {}
        }
    }
    let code = format!(
        "pub const MARKDOWN: &[(&str, &str)] = &[{pages}];\npub const PICTURES: &[(&str, &[u8])] = &[{pictures}];\n"
    );
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("files.rs");
    fs::write(out, code).expect("the build directory is writable");
}

fn collect_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.expect("a directory entry").path();
        match path.is_dir() {
            true => collect_files(&path, files),
            false => files.push(path),
        }
    }
}
