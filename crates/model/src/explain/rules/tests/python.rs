//! Failures of Python: interpreter, modules, imports, syntax.

use serde_json::json;

use super::*;

#[test]
fn a_missing_module_is_installed_with_the_job() {
    let module = |name: &str| format!("ModuleNotFoundError: No module named '{name}'");
    let key = "python-module-missing";
    let says = [
        "Python found no module 'keras'.",
        "'corro submit --pip keras'",
        "pythonEnvironment.requirementsFile",
        r#""jobPreparation": {"commandLine": "pip install keras"}"#,
    ];
    job().check_raised(&module("keras"), key, &says);
    job().check_raised("ImportError: No module named keras", key, &says[..2]);
    job().check(1, "/usr/bin/python3: No module named pytest", key, &["pip install pytest\""]);
    job().check(
        1,
        "/usr/bin/python3: No module named pip.__main__; 'pip' is a package and cannot be directly executed",
        key,
        &[],
    );
    for (name, package) in [
        ("cv2", "opencv-python"),
        ("sklearn", "scikit-learn"),
        ("PIL", "pillow"),
        ("yaml", "PyYAML"),
        ("skimage", "scikit-image"),
        ("bs4", "beautifulsoup4"),
        ("dateutil", "python-dateutil"),
        ("torch_geometric", "torch_geometric"),
    ] {
        job().check_raised(&module(name), key, &[&format!("--pip {package}")]);
    }
    job().check_raised(&module("torch"), key, &["--pip torch", "name that Python in the command line"]);
    job().on("Standard_NC6").check_raised(&module("jax"), key, &["--pip 'jax[cuda12]'"]);
    job().check_raised(&module("jax"), key, &["--pip jax'"]);
    job().check_raised(&module("horovod"), key, &["--pip horovod", "'corro up --wheels DIR'"]);
    job().check_raised(&module("apex"), key, &["'pip install apex' does not install it", "NVIDIA/apex"]);
    job().check_raised(&module("tkinter"), key, &["'apt install python3-tk' as root"]);
    job().check_raised(&module("urllib2"), key, &["written for Python 2"]);
    job().check_raised(
        &module("keras.layers.core"),
        key,
        &["the script expects another version", "CORRO_COMPAT=keras-2018"],
    );
    job().check_raised(&module("torch.foo"), key, &["--pip torch==VERSION"]);
    job().check_raised(
        "ModuleNotFoundError: No module named 'random.x'; 'random' is not a package",
        key,
        &["your file random.py"],
    );
    job().check_raised(&module("x; rm -rf /"), "", &[]);
    job().check_raised(&module("$(id)"), "", &[]);
}

#[test]
fn the_advice_about_a_module_names_the_jobs_own_fields() {
    let key = "python-module-missing";
    let keras = "ModuleNotFoundError: No module named 'keras'";
    let prepared = json!({"jobPreparation": {"commandLine": "pip install horovod"}});
    job().with(prepared).check_raised(
        keras,
        key,
        &["Add 'pip install keras' to jobPreparation.commandLine in the job file."],
    );
    let file = json!({"pythonEnvironment": {"requirementsFile": "$R/requirements.txt"}});
    job().with(file).check_raised(
        keras,
        key,
        &["Add 'keras' to $R/requirements.txt (pythonEnvironment.requirementsFile)"],
    );
    let file = json!({"pythonEnvironment": {"condaFile": "$R/env.yml"}});
    job().with(file).check_raised(keras, key, &["Add 'keras' to the dependencies in $R/env.yml"]);
    let horovod = json!({"horovodSettings": {"pythonScriptFilePath": "a.py"}});
    job().with(horovod).check_raised(keras, key, &["in horovodSettings.pythonInterpreterPath"]);
}

#[test]
fn a_module_of_the_project_is_found_in_its_directory() {
    let key = "python-module-missing";
    let root = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/code";
    let files = ["src/train.py", "lib/utils.py", "helpers.py"].map(str::to_owned);
    let project = ProjectFiles { root: root.to_owned(), files: files.into() };
    let own = || Job { project: Some(project.clone()), ..job() };
    own().check_raised(
        "ModuleNotFoundError: No module named 'utils'",
        key,
        &[
            "lib/utils.py of the job's files is not in the directory of the script",
            "'corro submit --env PYTHONPATH=lib'",
            r#"{"name": "PYTHONPATH", "value": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/code/lib"}"#,
            r#""workingDirectory": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/code/lib""#,
        ],
    );
    own().check_raised(
        "ModuleNotFoundError: No module named 'helpers'",
        key,
        &["PYTHONPATH=.'", r#""value": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/code"}"#],
    );
    own().check_raised(
        "ModuleNotFoundError: No module named 'utils.io'",
        key,
        &["Your own package 'utils'", ".gitignore"],
    );
    own().check_raised("ModuleNotFoundError: No module named 'keras'", key, &["--pip keras"]);
}

#[test]
fn imports_and_packages_that_do_not_fit() {
    job().check_raised(
        "ImportError: cannot import name 'AdamW' from 'transformers' (/usr/lib/python3/transformers/__init__.py)",
        "python-import-failed",
        &["'transformers' has no 'AdamW'", "--pip transformers==VERSION"],
    );
    job().check_raised(
        "ImportError: cannot import name 'a' from partially initialized module 'b' (most likely due to a circular import) (/x/b.py)",
        "python-import-failed",
        &["'b' was imported while it was being loaded"],
    );
    job().check_raised(
        "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
        "library-missing",
        &["opencv-python-headless"],
    );
    job().check_raised(
        "ImportError: numpy.core.multiarray failed to import",
        "python-package-incompatible",
        &["'numpy<2'"],
    );
    job().check_raised(
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject",
        "python-package-incompatible",
        &["'numpy<2'"],
    );
    job().check_raised(
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by /x/_C.so)",
        "python-package-incompatible",
        &["newer Linux"],
    );
    job().check_raised(
        "ImportError: /x/torchvision/_C.so: undefined symbol: _ZN3c106detail23torchInternalAssertFail",
        "python-package-incompatible",
        &["Two packages do not fit together"],
    );
    job().check_raised(
        "ImportError: Extension horovod.torch has not been built: /x/horovod/torch/mpi_lib/_mpi_lib.so not found\nIf this is not expected, reinstall Horovod with HOROVOD_WITH_PYTORCH=1 to debug the build error.",
        "horovod-not-built",
        &["'corro up --wheels DIR'"],
    );
    job().check_raised(
        "AttributeError: module 'tensorflow' has no attribute 'ConfigProto'",
        "python-old-keras",
        &["CORRO_COMPAT=keras-2018"],
    );
}

#[test]
fn scripts_that_python_cannot_read() {
    let file = "  File \"/jobs/a/train.py\", line 3\n    print \"epoch\", epoch\n    ^^^^^^^^^^^^^^^^^^^^\n";
    job().check(
        1,
        &format!("{file}SyntaxError: Missing parentheses in call to 'print'. Did you mean print(...)?"),
        "python-syntax",
        &["/jobs/a/train.py is written for Python 2"],
    );
    job().check(
        1,
        &format!("{file}SyntaxError: invalid syntax"),
        "python-syntax",
        &["Python cannot read /jobs/a/train.py", "newer Python"],
    );
    job().check(
        1,
        &format!("{file}IndentationError: unexpected indent"),
        "python-syntax",
        &["The indentation of /jobs/a/train.py is wrong"],
    );
    job().check(
        1,
        &format!("{file}TabError: inconsistent use of tabs and spaces in indentation"),
        "python-syntax",
        &["'expand -t 4 SCRIPT'"],
    );
    job().check_raised("TypeError: 'type' object is not subscriptable", "python-too-old", &["needs Python 3.9"]);
    job().check_raised("TypeError: unsupported operand type(s) for |: 'type' and 'NoneType'", "python-too-old", &[]);
}

#[test]
fn python3_is_named_where_python_is_missing() {
    let key = "python-not-found";
    let python3 = ["Name 'python3' in customToolkitSettings.commandLine"];
    for line in [
        "/bin/sh: 1: python: not found",
        "bash: line 1: python: command not found",
        "env: ‘python’: No such file or directory",
        "/usr/bin/env: 'python': No such file or directory",
        "corro: cannot start python: no such program",
    ] {
        job().check(127, line, key, &python3);
    }
    job().check(127, "bash: ipython: command not found", "command-not-found", &[]);
    job().check(
        127,
        "bash: line 1: python3: command not found",
        key,
        &["The node has no program 'python3' in its PATH"],
    );
    let neither = ["The node has neither 'python' nor 'python3' in its PATH"];
    job().check(127, "sh: python3: not found\nsh: python: not found", key, &neither);
    let toolkit = || job().with(json!({"horovodSettings": {"pythonScriptFilePath": "a.py"}}));
    toolkit().check(
        127,
        "bash: line 1: python: command not found",
        key,
        &[neither[0], "horovodSettings.pythonInterpreterPath"],
    );
    let prepared = Job { is_preparation: true, ..toolkit() };
    prepared.check(
        127,
        "bash: line 1: python: command not found",
        key,
        &["Name 'python3' in jobPreparation.commandLine"],
    );
    let named = json!({"horovodSettings": {"pythonScriptFilePath": "a.py", "pythonInterpreterPath": "python"}});
    job().with(named).check(127, "bash: line 1: python: command not found", key, &["Name 'python3' in"]);
}
