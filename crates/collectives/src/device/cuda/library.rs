//! Tables of functions of shared libraries, looked up at run time: neither CUDA nor its headers are needed to build, install or run without
//! a GPU.

use std::path::{Path, PathBuf};

/// Why a library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    #[error("{name} was not found")]
    NotFound { name: &'static str },
    #[error("{name} has no function {function}: it is too old")]
    NoFunction { name: &'static str, function: &'static str },
}

/// Opens the first of these libraries that exists: one that the process has loaded, one on the loader's path, or one in the directories of
/// other libraries of NVIDIA in this process, where Python packages keep them.
pub fn open(name: &'static str, file_names: &[&str]) -> Result<libloading::Library, LibraryError> {
    let directories = library_directories();
    let places = file_names.iter().map(PathBuf::from);
    let beside = file_names.iter().flat_map(|file| directories.iter().map(move |directory| directory.join(file)));
    for path in places.chain(beside) {
        // SAFETY: libraries of NVIDIA, whose initialisers may run in any process.
        if let Ok(library) = unsafe { libloading::Library::new(&path) } {
            return Ok(library);
        }
    }
    Err(LibraryError::NotFound { name })
}

/// Directories of NVIDIA's libraries that this process has loaded, and their siblings (`nvidia/*/lib`).
fn library_directories() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    directories_in(&maps).into_iter().flat_map(|directory| with_siblings(&directory)).collect()
}

/// Directories of the mapped files that look like CUDA's runtime or PyTorch's. Pure.
fn directories_in(maps: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in maps.lines() {
        let Some(start) = line.find('/') else { continue };
        let path = Path::new(&line[start..]);
        let (Some(file), Some(directory)) = (path.file_name().and_then(|name| name.to_str()), path.parent()) else {
            continue;
        };
        let is_cuda = ["libcudart", "libnvrtc", "libnccl", "libcublas", "libtorch_cuda"];
        if is_cuda.iter().any(|prefix| file.starts_with(prefix)) && !found.iter().any(|known| known == directory) {
            found.push(directory.to_path_buf());
        }
    }
    found
}

/// The directory, and `lib` of the other packages if it is one of several of NVIDIA's; `torch/lib` has them two levels up.
fn with_siblings(directory: &Path) -> Vec<PathBuf> {
    let mut all = vec![directory.to_path_buf()];
    let packages = [directory.join("../.."), directory.join("../../nvidia")];
    for entry in packages.iter().filter_map(|packages| std::fs::read_dir(packages).ok()).flatten().flatten() {
        let lib = entry.path().join("lib");
        if lib.is_dir() && !all.contains(&lib) {
            all.push(lib);
        }
    }
    all
}

/// A function of a library and its name, for errors.
#[derive(Clone, Copy)]
pub struct Function<F> {
    pub name: &'static str,
    pub call: F,
}

/// Declares a struct of functions of a library and their lookup.
macro_rules! functions {
    ($(#[$meta:meta])* $table:ident of $name:literal { $($function:ident = $symbol:literal ($($argument:ty),*) $(-> $result:ty)?;)* }) => {
        $(#[$meta])*
        pub struct $table {
            $(pub $function: $crate::device::cuda::library::Function<unsafe extern "C" fn($($argument),*) $(-> $result)?>,)*
            _library: libloading::Library,
        }

        impl $table {
            pub fn from_library(library: libloading::Library) -> Result<$table, $crate::device::cuda::library::LibraryError> {
                $(
                    // SAFETY: the signature is the one of the library's header.
                    let $function = unsafe { library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>($symbol.as_bytes()) };
                    let $function = $crate::device::cuda::library::Function {
                        name: $symbol,
                        call: *$function.map_err(|_| $crate::device::cuda::library::LibraryError::NoFunction {
                            name: $name,
                            function: $symbol,
                        })?,
                    };
                )*
                Ok($table { $($function,)* _library: library })
            }
        }
    };
}
pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_those_of_cuda_libraries() {
        let maps = "7f0 r-xp 00000000 00:00 0 /usr/lib/libc.so.6\n\
                    7f1 r-xp 00000000 00:00 0 /env/nvidia/cuda_runtime/lib/libcudart.so.12\n\
                    7f2 r-xp 00000000 00:00 0 /env/nvidia/cuda_runtime/lib/libcudart.so.12\n\
                    7f3 rw-p 00000000 00:00 0\n\
                    7f4 r-xp 00000000 00:00 0 /env/torch/lib/libtorch_cuda.so\n";
        assert_eq!(
            directories_in(maps),
            [PathBuf::from("/env/nvidia/cuda_runtime/lib"), PathBuf::from("/env/torch/lib")]
        );
    }

    #[test]
    fn siblings_are_packages_of_the_same_directory() {
        let site = tempfile::tempdir().expect("a directory");
        for lib in ["nvidia/cuda_runtime/lib", "nvidia/nccl/lib", "torch/lib"] {
            std::fs::create_dir_all(site.path().join(lib)).expect("created");
        }
        let names = |directory: &str| -> Vec<String> {
            let mut all: Vec<String> = with_siblings(&site.path().join(directory))
                .iter()
                .map(|lib| {
                    let lib = lib.canonicalize().expect("it exists");
                    lib.strip_prefix(site.path().canonicalize().expect("it exists"))
                        .expect("below")
                        .display()
                        .to_string()
                })
                .collect();
            all.sort();
            all.dedup();
            all
        };
        assert!(names("nvidia/cuda_runtime/lib").contains(&"nvidia/nccl/lib".to_owned()));
        assert!(names("torch/lib").contains(&"nvidia/nccl/lib".to_owned()));
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = open("the library of no one", &["libcorro-does-not-exist.so.0"]).expect_err("it does not exist");
        assert_eq!(error.to_string(), "the library of no one was not found");
    }
}
