//! A shell in a job, on a terminal.

use crate::harness::terminal::Terminal;
use crate::harness::wait_for;
use crate::project::ProjectSite;

#[test]
fn a_shell_opens_where_the_ranks_are() {
    let project = ProjectSite::new(&[]);
    std::fs::write(project.dir().join("work.sh"), "touch begun; sleep 600\n").expect("a file");
    project.corro("submit --detach --nodes 2 --name two --secret KEY=hunter2hunter2 -- sh work.sh").ok();
    wait_for("the job to run", || project.job_directory("two").join("begun").exists());
    let mut terminal = Terminal::start(project.command("job shell two --rank 1"), 100, 30);
    // The shell's echo of the line has no number in it.
    terminal.type_keys(b"echo rank-$RANK $(basename $PWD) \"[$KEY]\"\r");
    terminal.wait_for_output("rank-1 two []");
    terminal.type_keys(b"exit 7\r");
    assert_eq!(terminal.code(), Some(7));
    let mut terminal = Terminal::start(project.command("job shell two --with-secrets"), 100, 30);
    terminal.type_keys(b"test $KEY = hunter2hunter2 && echo known-$((40 + 2))\r");
    terminal.wait_for_output("known-42");
    project.corro("job stop two").ok();
    assert_ne!(terminal.code(), Some(0), "the shell ends with the job");
    project.corro("job shell two").fails(1, &["The job two has failed: it has no processes now"]);
}
