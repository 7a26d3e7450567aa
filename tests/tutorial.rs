//! The tutorial's 17 commands, exactly as written, against a real server with real nodes and a real script; then the output
//! formats. The tutorial's job preparation installs nothing: `apt` and `pip` are fakes.

mod harness;

#[path = "tutorial/output.rs"]
mod output;
#[path = "tutorial/runner.rs"]
mod runner;
#[path = "tutorial/texts.rs"]
mod texts;

use harness::Site;
use runner::TutorialRunner;

#[test]
fn the_tutorial_as_corro() {
    tutorial("corro");
}

#[test]
fn the_tutorial_as_az() {
    tutorial("az");
}

fn tutorial(program: &'static str) {
    let Some(tools) = runner::tools() else { return };
    let tools: Vec<_> = tools.iter().map(|(name, script)| (*name, script.as_str())).collect();
    let site = Site::start_with_tools(&tools, &["--no-containers"]);
    let mut runner = TutorialRunner::new(&site, program);
    runner.set_up();
    runner.watch_job();
    runner.read_output();
    runner.fetch_model();
    runner.scale_to_zero();
    runner.delete_all();
    runner.assert_all_run();
}
