//! A job that fails: `corro submit` says why and what to do, and the advice works.

use crate::project::ProjectSite;

#[test]
fn a_missing_module_is_explained_and_the_advice_works() {
    let files = [("src/train.py", "import helpers\nprint(helpers.WORD)\n"), ("lib/helpers.py", "WORD = 'found'\n")];
    let project = ProjectSite::new(&files);
    let ended = project.corro(&["submit", "src/train.py"]).fails(
        1,
        &[
            "Python found no module 'helpers': lib/helpers.py of the job's files is not in the directory of the script.",
            "What to do:",
            "'corro submit --env PYTHONPATH=lib'",
            "See 'corro docs python-module-missing'.",
        ],
    );
    assert_eq!(
        ended.stderr.matches("No module named 'helpers'").count(),
        1,
        "the output is shown once: {}",
        ended.stderr
    );
    let ended = project.corro(&["submit", "--env", "PYTHONPATH=lib", "src/train.py"]).ok();
    assert_eq!(ended.stdout, "found\n");
}
