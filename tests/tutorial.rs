//! The tutorial's 17 commands, exactly as written, against a real server with real nodes and a real script; then the output
//! formats. The tutorial's job preparation installs nothing: `apt` and `pip` are fakes.

mod harness;

#[path = "tutorial/output.rs"]
mod output;
#[path = "tutorial/reader.rs"]
mod reader;
#[path = "tutorial/texts.rs"]
mod texts;

use harness::Site;
use reader::Reader;

#[test]
fn the_tutorial_as_corro() {
    tutorial("corro");
}

#[test]
fn the_tutorial_as_az() {
    tutorial("az");
}

fn tutorial(program: &'static str) {
    let Some(tools) = reader::tools() else { return };
    let tools: Vec<_> = tools.iter().map(|(name, script)| (*name, script.as_str())).collect();
    let site = Site::start_with_tools(&tools, &["--no-containers"]);
    let mut reader = Reader::new(&site, program);
    reader.sets_up();
    reader.watches_the_job_run();
    reader.reads_all_of_its_output();
    reader.fetches_the_model();
    reader.sends_the_nodes_home();
    reader.deletes_everything();
    reader.has_typed_everything();
}
