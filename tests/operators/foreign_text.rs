//! Output of jobs and ranks on a real terminal: colours and progress bars pass through, and other control sequences are
//! removed. A pipe gets every byte.

use crate::harness::terminal::Terminal;
use crate::harness::{CommandOutput, IN_WORKSPACE, Site};

/// The clipboard, a title, queries that the terminal would answer, another screen, C1 controls; colours and a progress bar.
const HOSTILE: &str = r"printf 'a\033]52;c;ZXZpbA==\007b\033]0;title\033\\c\033[6n\033[c\033[?1049hd\302\2336ne\302\235x\302\234f\n'; \
                        printf '\033[31mred\033[0m\r 1/2\r\033[K 2/2\n'";
/// The same through the filter, with a terminal's line ends.
const SHOWN: &str = "abcdef\r\n\x1b[31mred\x1b[0m\r 1/2\r\x1b[K 2/2\r\n";
const HARMFUL: [&str; 6] = ["\x1b]", "\x1b[6n", "\x1b[c", "\x1b[?", "\u{9b}", "\u{9d}"];

fn raw() -> Vec<u8> {
    CommandOutput::from(std::process::Command::new("sh").args(["-c", HOSTILE]).output().expect("a shell"))
        .ok()
        .stdout
        .into_bytes()
}

fn terminal(site: &Site, words: &[&str]) -> Terminal {
    let mut command = site.command("corro");
    command.args(words);
    Terminal::start(command, 100, 30)
}

fn check_harmless(terminal: &Terminal) {
    let shown = terminal.output();
    for harmful in HARMFUL {
        assert!(!shown.contains(harmful), "{harmful:?} got through: {shown:?}");
    }
}

#[test]
fn output_of_a_job_on_a_terminal_is_text_and_colours() {
    let site = Site::start();
    site.prepare(1);
    site.submit_custom("hostile", 1, &format!("{HOSTILE}; printf 'bad\\033]0;x\\007 end\\n' >&2; exit 3"));
    assert_eq!(site.wait_for_end("hostile")["executionState"], "failed");

    let stream = format!("batchai job file stream -j hostile {IN_WORKSPACE} -e cifar -f stdout.txt");
    let words: Vec<&str> = stream.split_whitespace().collect();
    let mut shown = terminal(&site, &words);
    shown.wait_for_output(SHOWN);
    // The summary after it repeats the end of standard error.
    shown.wait_for_output(r"bad\x1b]0;x\x07 end");
    shown.code();
    check_harmless(&shown);
    let piped = site.corro(&stream).ok();
    assert_eq!(piped.stdout.as_bytes(), raw(), "through a pipe every byte stays what it is");

    for words in [
        format!("job why hostile {IN_WORKSPACE} -e cifar"),
        format!(
            "batchai job show -n hostile {IN_WORKSPACE} -e cifar --query executionInfo.errors[].details[].value -o tsv"
        ),
    ] {
        let mut shown = terminal(&site, &words.split_whitespace().collect::<Vec<_>>());
        shown.wait_for_output(" end");
        assert_eq!(shown.code(), Some(0));
        check_harmless(&shown);
    }
}

#[test]
fn output_of_ranks_on_a_terminal_is_text_and_colours() {
    let site = Site::start();
    let words = ["run", "-np", "1", "--no-prefix", "sh", "-c", HOSTILE];
    let mut shown = terminal(&site, &words);
    shown.wait_for_output(SHOWN);
    assert_eq!(shown.code(), Some(0));
    check_harmless(&shown);
    let piped = site.command("corro").args(words).output().expect("it runs");
    assert_eq!(piped.stdout, raw(), "through a pipe every byte stays what it is");
}
