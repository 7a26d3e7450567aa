//! Several pages of one browser share its six connections per server, and none may starve the others.

use serde_json::{Value, json};

use super::harness::Site;
use super::harness::browser::Browser;

/// More pages than a browser has connections.
const MANY: usize = 8;

#[test]
fn a_page_that_was_left_takes_nothing_from_the_next() {
    let Some(browser) = Browser::start() else { return };
    let site = Site::start();
    site.prepare(0);
    let link = site.corro("dashboard").ok().stdout;
    for _ in 0..MANY {
        browser.go(link.trim());
        browser.wait_for_text(".cluster h2", "nc6cluster");
        browser.go("about:blank");
    }
    browser.assert_console_clean_except(&[]);
}

#[test]
fn the_tab_in_sight_is_live_however_many_are_open() {
    let Some(browser) = Browser::start() else { return };
    let site = Site::start();
    site.prepare(0);
    let link = site.corro("dashboard").ok().stdout;
    let tabs: Vec<Value> = (0..MANY).map(|_| browser.command("window/new", json!({"type": "tab"}))).collect();
    for tab in &tabs {
        browser.command("window", json!({"handle": tab["handle"]}));
        browser.go(link.trim());
        browser.wait_for_text(".cluster h2", "nc6cluster");
    }

    // The first page was hidden while something happened; it shows that, and later events.
    site.corro("batchai cluster create -g batchai.horovod -w batchaidev -n second --vm-size STANDARD_D2 --user-name me --password not-a-secret --target 0").ok();
    browser.command("window", json!({"handle": tabs[0]["handle"]}));
    browser.wait_for_text("main", "second");
    site.corro("batchai cluster create -g batchai.horovod -w batchaidev -n third --vm-size STANDARD_D2 --user-name me --password not-a-secret --target 0").ok();
    browser.wait_for_text("main", "third");
    browser.assert_console_clean_except(&[]);
}
