//! Python wheels that nodes may fetch: the `.whl` files of one directory, filled by the operator. Opens only files that are in
//! its own listing.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use corro_model::ApiError;
use corro_model::node::Wheel;
use tokio::task::spawn_blocking;

use super::Gateway;

impl Gateway {
    /// The available wheels, sorted by name.
    pub async fn wheels(&self) -> Result<Vec<Wheel>, ApiError> {
        let Some(directory) = self.wheels.clone() else { return Ok(Vec::new()) };
        run_blocking(move || list(&directory)).await
    }

    /// Opens a wheel by name.
    pub async fn wheel(&self, name: String) -> Result<(File, Wheel), ApiError> {
        let missing = || ApiError::new(404, "WheelNotFound", "There is no such wheel");
        let Some(directory) = self.wheels.clone() else { return Err(missing()) };
        let opened = run_blocking(move || {
            // The requested name only selects from the listing; it is never used as a path.
            let Some(found) = list(&directory)?.into_iter().find(|wheel| wheel.name == name) else { return Ok(None) };
            let file = File::open(directory.join(&found.name))?;
            let metadata = file.metadata()?;
            Ok(describe(&found.name, &metadata).map(|wheel| (file, wheel)))
        });
        opened.await?.ok_or_else(missing)
    }
}

async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, ApiError> {
    let done = spawn_blocking(work).await.map_err(io::Error::other).flatten();
    done.map_err(|error| {
        tracing::warn!(%error, "the directory of wheels cannot be read");
        ApiError::new(500, "WheelsUnreadable", "The server cannot read its directory of wheels")
    })
}

fn list(directory: &Path) -> io::Result<Vec<Wheel>> {
    let entries = match fs::read_dir(directory) {
        // The directory may be created later.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut wheels = Vec::new();
    for entry in entries {
        let entry = entry?;
        // Symbolic links are followed: the operator decides what the directory holds.
        if let Some(name) = entry.file_name().to_str()
            && let Ok(metadata) = fs::metadata(entry.path())
            && let Some(wheel) = describe(name, &metadata)
        {
            wheels.push(wheel);
        }
    }
    wheels.sort_by(|a, b| a.name.cmp(&b.name));
    wheels.truncate(Wheel::MAX_COUNT);
    Ok(wheels)
}

/// `None` for files that are not offered as wheels.
fn describe(name: &str, metadata: &Metadata) -> Option<Wheel> {
    let fits = Wheel::is_name(name) && metadata.is_file() && (1..=Wheel::MAX_BYTES).contains(&metadata.len());
    fits.then_some(())?;
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(Wheel { name: name.to_owned(), bytes: metadata.len(), modified: modified.as_nanos() as u64 })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_wheels_are_offered() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        assert_eq!(list(&path("none")).expect("nothing is no error"), []);
        for name in ["b-1.whl", "a-1+local.whl", "notes.txt", ".hidden.whl", "sp ace.whl", "empty.whl"] {
            fs::write(path(name), if name == "empty.whl" { "" } else { "x" }).expect("a file");
        }
        fs::create_dir(path("directory.whl")).expect("a directory");
        symlink("nowhere", path("broken.whl")).expect("a link");
        symlink("b-1.whl", path("link.whl")).expect("a link");
        let found = list(directory.path()).expect("it can be read");
        let names: Vec<&str> = found.iter().map(|wheel| wheel.name.as_str()).collect();
        assert_eq!(names, ["a-1+local.whl", "b-1.whl", "link.whl"]);
        assert!(found.iter().all(|wheel| wheel.bytes == 1 && wheel.modified > 0), "{found:?}");
    }
}
