//! Names of Python modules: packages with another name than their module, modules of Python 2, parts of Python itself. A
//! flat table.

/// Packages whose names differ from those of their modules.
const PACKAGES: &[(&str, &str)] = &[
    ("Bio", "biopython"),
    ("Crypto", "pycryptodome"),
    ("IPython", "ipython"),
    ("Levenshtein", "python-Levenshtein"),
    ("MySQLdb", "mysqlclient"),
    ("OpenSSL", "pyOpenSSL"),
    ("PIL", "pillow"),
    ("absl", "absl-py"),
    ("attr", "attrs"),
    ("bs4", "beautifulsoup4"),
    ("cv2", "opencv-python-headless"),
    ("dateutil", "python-dateutil"),
    ("distutils", "setuptools"),
    ("docx", "python-docx"),
    ("dotenv", "python-dotenv"),
    ("faiss", "faiss-cpu"),
    ("fitz", "PyMuPDF"),
    ("git", "GitPython"),
    ("google", "protobuf"),
    ("hydra", "hydra-core"),
    ("imblearn", "imbalanced-learn"),
    ("jwt", "PyJWT"),
    ("magic", "python-magic"),
    ("osgeo", "GDAL"),
    ("pkg_resources", "setuptools"),
    ("psycopg2", "psycopg2-binary"),
    ("pynvml", "nvidia-ml-py"),
    ("pytorch_lightning", "pytorch-lightning"),
    ("ruamel", "ruamel.yaml"),
    ("serial", "pyserial"),
    ("skimage", "scikit-image"),
    ("sklearn", "scikit-learn"),
    ("umap", "umap-learn"),
    ("yaml", "PyYAML"),
    ("zmq", "pyzmq"),
];

/// Modules of Python 2 that Python 3 names otherwise.
const PYTHON_2: [&str; 12] = [
    "ConfigParser",
    "HTMLParser",
    "Queue",
    "SocketServer",
    "StringIO",
    "Tkinter",
    "__builtin__",
    "cPickle",
    "cStringIO",
    "commands",
    "httplib",
    "urllib2",
];

/// Parts of Python that are missing if it was built without their library, with Debian's package if there is one.
const PARTS_OF_PYTHON: [(&str, Option<&str>); 7] = [
    ("_bz2", None),
    ("_ctypes", None),
    ("_lzma", None),
    ("_sqlite3", None),
    ("_ssl", None),
    ("_tkinter", Some("python3-tk")),
    ("tkinter", Some("python3-tk")),
];

/// Packages that `pip install` does not find, or finds as something else, under the name of their module; with their
/// project on GitHub.
const NOT_IN_THE_INDEX: [(&str, &str); 3] =
    [("apex", "NVIDIA/apex"), ("detectron2", "facebookresearch/detectron2"), ("tensorrt_llm", "NVIDIA/TensorRT-LLM")];

/// Where a module comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    /// A package of the index.
    Package(&'a str),
    /// A project on GitHub that says how to install it.
    Project(&'static str),
    Python2,
    /// Python itself, with a package of Debian.
    Python(Option<&'static str>),
}

/// Origin of a module without a dot.
pub fn origin(module: &str) -> Origin<'_> {
    if PYTHON_2.contains(&module) {
        return Origin::Python2;
    }
    if let Some((_, package)) = PARTS_OF_PYTHON.iter().find(|(name, _)| *name == module) {
        return Origin::Python(*package);
    }
    if let Some((_, project)) = NOT_IN_THE_INDEX.iter().find(|(name, _)| *name == module) {
        return Origin::Project(project);
    }
    let package = PACKAGES.iter().find(|(name, _)| *name == module);
    Origin::Package(package.map_or(module, |(_, package)| package))
}

/// Whether a text is a module's name, with or without dots. Only such names may be part of a command.
pub fn is_module(name: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    name.len() <= 200 && name.split('.').all(is_part)
}
