//! `corro top` and `corro job plot --follow` on a real terminal: keys, resizing, and restored terminal settings.

use crate::harness::logs::wait_at;
use crate::harness::terminal::Terminal;
use crate::harness::{IN_WORKSPACE, Site, signal, wait_for};

const OPENED: &str = "\x1b[?1049h";
const CLOSED: &str = "\x1b[?1049l";

/// The lines of the last complete page, without escape sequences.
fn page(shown: &str) -> Vec<String> {
    let whole = shown.rsplit_once("\x1b[J").map_or("", |(before, _)| before);
    let page = whole.rsplit_once("\x1b[H").map_or("", |(_, page)| page);
    page.split("\r\n").map(plain).collect()
}

fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '\x1b' => {
                let _ = chars.by_ref().find(char::is_ascii_alphabetic);
            }
            _ => text.push(char),
        }
    }
    text
}

fn start(site: &Site, line: &str) -> Terminal {
    let mut command = site.command("corro");
    command.args(line.split_whitespace());
    Terminal::start(command, 100, 30)
}

/// A password is not echoed, and Ctrl-C restores the terminal.
#[test]
fn a_password_is_not_shown() {
    let site = Site::start();
    for (last, code) in [(&b"\r"[..], 1), (&b"\x03"[..], 1)] {
        let mut terminal = start(&site, "login --service-principal -u somebody -t none");
        let before = terminal.settings();
        terminal.wait_for_output("Password: ");
        wait_for("input that is not shown", || terminal.settings() != before);
        terminal.type_keys(b"secretwort\x7fd");
        terminal.type_keys(last);
        assert_eq!(terminal.code(), Some(code));
        assert!(!terminal.output().contains("secretwor"), "{}", terminal.output());
        assert_eq!(terminal.settings(), before);
    }
}

#[test]
fn pages_of_the_terminal_heed_keys_and_leave_it_as_it_was() {
    let site = Site::start();
    site.prepare(1);
    let metrics = "for i in 1 2 3; do echo step=$i loss=0.$i; done";
    site.submit_custom("stays", 1, &format!("{metrics}; {}; echo step=4 loss=0.4", wait_at("go")));
    site.wait_for_state("stays", &["running"]);
    site.submit_custom("behind", 1, "true");

    for last in [&b"q"[..], &b"\x03"[..]] {
        let mut terminal = start(&site, "top");
        let before = terminal.settings();
        terminal.wait_for_output(OPENED);
        terminal.wait_for_output("batchaidev/cifar/stays");
        wait_for("keys as they are typed", || terminal.settings() != before);
        // The second of the jobs, and why it waits; then back.
        terminal.type_keys(b"\x1b[B");
        // Keys typed at once count as one, so they are repeated until the effect is seen.
        wait_for("why it waits", || {
            terminal.type_keys(b"\r");
            terminal.output().contains("Its output: corro batchai job file stream -j behind")
        });
        wait_for("the page again", || {
            terminal.clear_output();
            terminal.type_keys(b"\x1b");
            terminal.wait_for_output("\x1b[J");
            page(&terminal.output()).iter().any(|line| line.contains("batchaidev/cifar/stays"))
        });
        assert!(page(&terminal.output()).iter().any(|line| line.chars().count() > 60), "{}", terminal.output());
        terminal.resize(60, 12);
        wait_for("a page that fits", || {
            let page = page(&terminal.output());
            !page.is_empty() && page.len() <= 12 && page.iter().all(|line| line.chars().count() <= 60)
        });
        terminal.type_keys(last);
        assert_eq!(terminal.code(), Some(0));
        terminal.wait_for_output(CLOSED);
        terminal.wait_for_output("\x1b[?25h");
        assert_eq!(terminal.settings(), before);
    }

    let mut terminal = start(&site, "top");
    let before = terminal.settings();
    terminal.wait_for_output("batchaidev/cifar/stays");
    signal(terminal.pid(), rustix::process::Signal::TERM);
    assert_eq!(terminal.code(), Some(143));
    terminal.wait_for_output(CLOSED);
    assert_eq!(terminal.settings(), before);

    // Curves that grow until the job is over, or until the user quits.
    let mut terminal = start(&site, &format!("job plot stays {IN_WORKSPACE} -e cifar --follow"));
    let before = terminal.settings();
    terminal.wait_for_output("last 0.3000");
    terminal.type_keys(b"\x03");
    assert_eq!((terminal.code(), terminal.settings()), (Some(0), before));
    let mut terminal = start(&site, &format!("job plot stays {IN_WORKSPACE} -e cifar --follow"));
    terminal.wait_for_output("last 0.3000");
    terminal.clear_output();
    terminal.resize(60, 30);
    wait_for("a narrow chart", || {
        let shown = terminal.output();
        let chart = shown.rsplit_once("\x1b[2J").map_or("", |(_, chart)| chart);
        let lines: Vec<String> = chart.split("\r\n").map(plain).collect();
        chart.contains("last 0.3000") && lines.iter().all(|line| line.chars().count() <= 60)
    });
    site.open_gate("go");
    terminal.wait_for_output("last 0.4000");
    assert_eq!(terminal.code(), Some(0), "it ends with the job");
}
