//! A launcher that tests kill: starts the command in its arguments under the guard named first, prints the
//! guard's pid and then the output of the command, and waits.

use std::collections::BTreeMap;

use corro_launch::confinement::Confinement;
use corro_launch::lines::{Mode, pump};
use corro_launch::process::Launcher;
use corro_launch::process_spec::ProcessSpec;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    let guard = args.next().expect("the guard's path comes first");
    let tag = args.next().expect("then the tag");
    let spec = ProcessSpec {
        argv: args.collect(),
        env: BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").expect("PATH is set"))]),
        cwd: std::env::temp_dir(),
        tag,
        confinement: Confinement::default(),
    };
    let launcher = Launcher::new(guard, Vec::new());
    let mut process = launcher.spawn(spec).await.expect("the guard starts");
    println!("{}", process.pid());
    let stdout = process.stdout.take().expect("not taken yet");
    pump(stdout, Mode::Raw, None, |bytes| {
        print!("{}", String::from_utf8_lossy(bytes));
        Ok(())
    })
    .await
    .expect("the output can be read");
    process.wait().await.expect("the process can be waited for");
}
