//! Lists of jobs, experiments, clusters and nodes in the navigation bar, shortcuts of the keyboard, and what an empty server
//! shows.

use super::harness::Site;
use super::harness::browser::{Browser, keys};

#[test]
fn an_empty_server_shows_the_next_three_steps() {
    let Some(browser) = Browser::start() else { return };
    let site = Site::start();
    browser.open(&site, "/ui/");
    browser.wait_for_text(".next-steps", "The next three steps");
    let commands = "[...document.querySelectorAll('.next-steps .command code')].map((code) => code.textContent)";
    let commands = browser.value(&format!("{commands}.map((line) => line.split(' ').slice(0, 2).join(' ')).join()"));
    assert_eq!(commands, "corro submit,corro job,corro fetch");
    browser.click(".next-steps .command button");
    browser.wait_for_text("#toasts", "Copied");
    assert_eq!(browser.value("document.querySelector('[aria-label=Jobs]').closest('[hidden]') !== null"), true);

    // They give way to what there is.
    site.prepare(1);
    browser.wait_for_text(".cluster h2", "nc6cluster");
    browser.wait("document.querySelector('.next-steps').hidden");
    browser.wait_for_text("main", "The queue is empty");
    browser.assert_console_clean_except(&[]);
}

#[test]
fn every_kind_of_resource_has_a_list() {
    let Some(browser) = Browser::start() else { return };
    let site = Site::start();
    site.prepare(2);
    site.submit_custom("good", 1, "true");
    site.submit_custom("bad", 1, "sh -c 'exit 3'");
    site.wait_for_end("good");
    site.wait_for_end("bad");
    let time = r"/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/";

    browser.open(&site, "/ui/jobs");
    browser.wait("document.querySelectorAll('[aria-label=Jobs] .rows .row').length === 2");
    // The owner has a name, and a time the one format of all pages.
    let owner = browser.value("document.querySelector('[aria-label=Jobs] .rows .row').children[5].textContent");
    let login = "document.querySelector('.login-id').textContent";
    browser.wait(&format!("{login} === {owner}"));
    assert!(owner.as_str().is_some_and(|name| !name.is_empty() && name != site.profile()["clientId"]), "{owner}");
    assert_eq!(browser.value(&format!("{time}.test(document.querySelector('.rows time[title]').title)")), true);
    browser.click_on("[aria-label=Jobs] a.name", "bad");
    browser.wait_for_text("h1", "bad");
    browser.wait_for_text(".facts", owner.as_str().unwrap_or_default());

    browser.click_on(".places a", "Experiments");
    browser.wait_for_text("[aria-label=Experiments] .rows .row", "cifar");
    let counts = "[...document.querySelector('[aria-label=Experiments] .rows .row').children].slice(3, 7).map((cell) => cell.textContent).join()";
    assert_eq!(browser.value(counts), ",,1,1");
    assert_eq!(browser.text(".places [aria-current]"), "Experiments");
    browser.click_on("[aria-label=Experiments] a.name", "cifar");
    browser.wait_for_text("h1", "cifar");
    assert_eq!(browser.text(".places [aria-current]"), "Experiments");

    // Pages are opened by two keys, and `?` lists all of them.
    browser.press("gn");
    browser.wait("document.querySelectorAll('[aria-label=Nodes] .rows .row').length === 2");
    assert!(browser.url().ends_with("/ui/nodes"), "{}", browser.url());
    browser.click_on(".tabs button", "Running");
    browser.wait("document.querySelectorAll('[aria-label=Nodes] .rows .row').length === 0");
    browser.click_on(".tabs button", "Idle");
    browser.wait("document.querySelectorAll('[aria-label=Nodes] .rows .row').length === 2");
    browser.press("gc");
    browser.wait_for_text(".cluster h2", "nc6cluster");
    browser.press("?");
    browser.wait_for_text("dialog.shortcuts", "Experiments");
    assert!(
        browser
            .value("document.querySelector('dialog.shortcuts a').href")
            .as_str()
            .unwrap_or_default()
            .contains("/docs/")
    );
    // A dialog takes the keys for itself.
    browser.press("gj");
    browser.press(keys::ESCAPE);
    browser.wait("!document.querySelector('dialog')");
    assert!(browser.url().ends_with("/ui/clusters"), "{}", browser.url());
    browser.assert_console_clean_except(&[]);
}
