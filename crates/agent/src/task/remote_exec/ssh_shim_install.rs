//! Installs the `ssh` shim in the job's directory. On the node it is a symlink to this program. In a container only a
//! shell can be relied on, and the C library may be older or different: there the program is copied with its loader and
//! libraries, and a script starts it with these.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use corro_shares::{SharePath, VolumeDir};

use crate::storage::directories::JobDirectories;

/// Installs the shim below the job's directory and returns its directory. Works on the directory's descriptor, since
/// processes of the image may already run in a container.
pub fn install(directories: &JobDirectories, in_container: bool) -> io::Result<PathBuf> {
    let (job, directory) = (directories.job_dir()?, directories.layout.job_temp.join(SHIM_DIR));
    let program = std::env::current_exe()?;
    if !in_container {
        job.make_dirs(&path(SHIM_DIR)?)?;
        job.replace_link(&program, &path(SHIM_FILE)?)?;
        return Ok(directory);
    }
    let mapped_libraries = mapped_libraries(&fs::read_to_string("/proc/self/maps")?);
    let Some(loader) = mapped_libraries.iter().find(|path| is_loader(path)) else {
        // A static program needs no loader.
        copy(&program, &job, SHIM_FILE)?;
        return Ok(directory);
    };
    // The name `ssh` selects the shim's behaviour.
    copy(&program, &job, &format!("{SHIM_DIR}/program/ssh"))?;
    copy(loader, &job, &format!("{SHIM_DIR}/program/loader"))?;
    for library in mapped_libraries.iter().filter(|path| !is_loader(path)) {
        for name in link_names(library)? {
            copy(library, &job, &format!("{SHIM_DIR}/libraries/{}", name.to_string_lossy()))?;
        }
    }
    directories.write(SHIM_FILE, loader_script(&directory).as_bytes(), 0o755)?;
    Ok(directory)
}

const SHIM_DIR: &str = ".remote";
const SHIM_FILE: &str = ".remote/ssh";

/// Paths are the same inside and outside. Preloaded libraries of the image must not affect the shim.
fn loader_script(directory: &Path) -> String {
    let at = directory.display();
    format!(
        "#!/bin/sh\nunset LD_PRELOAD LD_LIBRARY_PATH\n\
         exec \"{at}/program/loader\" --library-path \"{at}/libraries\" \"{at}/program/ssh\" \"$@\"\n"
    )
}

/// Shared libraries of the running program and their loader, from `/proc/self/maps`.
fn mapped_libraries(maps: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| {
        let path = Path::new(line.get(line.find('/')?..)?);
        let name = path.file_name()?.to_str()?;
        (name.ends_with(".so") || name.contains(".so.")).then(|| path.to_owned())
    };
    maps.lines().filter(|line| line.contains(" r-xp ")).filter_map(path).collect()
}

fn is_loader(library: &Path) -> bool {
    library.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("ld-"))
}

/// Names under which a library may be looked up, including symlinks to it.
fn link_names(library: &Path) -> io::Result<BTreeSet<std::ffi::OsString>> {
    let (Some(directory), Some(name)) = (library.parent(), library.file_name()) else { return Ok(BTreeSet::new()) };
    let mut link_names = BTreeSet::from([name.to_owned()]);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_symlink() && fs::read_link(entry.path())? == Path::new(name) {
            link_names.insert(entry.file_name());
        }
    }
    Ok(link_names)
}

fn copy(from: &Path, job: &VolumeDir, to: &str) -> io::Result<()> {
    let to = path(to)?;
    if let Some((parent, _)) = to.split() {
        job.make_dirs(&parent)?;
    }
    io::copy(&mut File::open(from)?, &mut job.replace_file(&to, 0o755)?).map(drop)
}

fn path(text: &str) -> io::Result<SharePath> {
    SharePath::parse(text).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn libraries_are_found_in_proc_maps() {
        let maps = "55e0-55e1 r-xp 00000000 fe:00 1 /usr/bin/corro\n\
            7f01-7f02 r--p 00000000 fe:00 2 /lib/x86_64-linux-gnu/libc-2.31.so\n\
            7f02-7f03 r-xp 00001000 fe:00 2 /lib/x86_64-linux-gnu/libc-2.31.so\n\
            7f04-7f05 r-xp 00000000 fe:00 3 /lib/x86_64-linux-gnu/libgcc_s.so.1\n\
            7f06-7f07 r-xp 00000000 fe:00 4 /lib/x86_64-linux-gnu/ld-2.31.so\n\
            7f08-7f09 r-xp 00000000 00:00 0 [vdso]\n";
        let found = mapped_libraries(maps);
        let link_names: Vec<&str> = found.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(link_names, ["ld-2.31.so", "libc-2.31.so", "libgcc_s.so.1"]);
        assert_eq!(found.iter().filter(|path| is_loader(path)).count(), 1);
        assert!(mapped_libraries("55e0-55e1 r-xp 00000000 fe:00 1 /usr/bin/corro\n").is_empty());
    }

    #[test]
    fn a_library_has_the_names_of_its_links() {
        let base = tempfile::tempdir().expect("a directory");
        fs::write(base.path().join("libc-2.31.so"), "").expect("a file");
        symlink("libc-2.31.so", base.path().join("libc.so.6")).expect("a link");
        symlink("libd.so", base.path().join("libd.so.6")).expect("a link to another");
        let link_names = link_names(&base.path().join("libc-2.31.so")).expect("listed");
        assert_eq!(link_names.into_iter().collect::<Vec<_>>(), ["libc-2.31.so", "libc.so.6"]);
    }
}
