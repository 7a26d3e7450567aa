//! Client-side functions of the pages, called in the browser: splitting a log into lines, choosing ticks and number formats,
//! and reading a long log in parts.

use serde_json::{Value, json};

use crate::harness::browser::{Browser, keys};
use crate::harness::logs::wait_at;
use crate::harness::{Site, wait_for};
use crate::job::browser;

fn call(browser: &Browser, module: &str, expression: &str) -> Value {
    browser.await_promise(&format!("import('/ui/assets/{module}').then((m) => {expression})"))
}

#[test]
fn logs_and_numbers_are_made_fit_to_be_read() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    browser.open(&site, "/ui/");
    browser.wait("document.querySelector('h1')");
    let lines = |text: &str| {
        call(&browser, "log-text.js", &format!("m.linesOf(new TextEncoder().encode({}), 100)", json!(text)))
    };
    assert_eq!(
        lines("a\r\nb 1%\rb 2%\n\nrest"),
        json!({"lines": [{"at": 100, "text": "a"}, {"at": 103, "text": "b 2%"}, {"at": 113, "text": ""}], "rest": 4})
    );
    let long = lines(&"x".repeat(9000));
    assert_eq!(long["lines"].as_array().map(Vec::len), Some(2), "{long}");
    let parts = |text: &str| call(&browser, "log-text.js", &format!("m.partsOfLine({})", json!(text)));
    for (line, expected) in [
        ("plain", json!([{"text": "plain", "kind": ""}])),
        ("\x1b[1;31mno\x1b[0m.", json!([{"text": "no", "kind": "bold fg1"}, {"text": ".", "kind": ""}])),
        ("\x1b[38;5;196ma\x1b[48;2;0;0;255mb", json!([{"text": "a", "kind": "fg1"}, {"text": "b", "kind": "fg1 bg4"}])),
        // Window titles, cursor movement, bells and right-to-left overrides have no effect.
        ("\x1b]0;title\x07a\x1b[2Jb\x07\u{202e}c", json!([{"text": "ab\u{2407}\u{fffd}c", "kind": ""}])),
    ] {
        assert_eq!(parts(line), expected, "{line:?}");
    }
    let number = |expression: &str| call(&browser, "chart-scale.js", expression);
    assert_eq!(number("m.ticks(0, 2.6, 4)"), json!([0, 0.5, 1, 1.5, 2, 2.5]));
    assert_eq!(number("m.logTicks(0.02, 30, 4)"), json!([0.1, 1, 10]));
    assert_eq!(
        number("[0, 0.43211, 1532.61, 2345678, 0.0000123, NaN].map(m.short)"),
        json!(["0", "0.4321", "1532.6", "2.35M", "1.23e−5", "–"])
    );
    assert_eq!(number("[5, 65, 3725, 200000].map(m.duration)"), json!(["5 s", "1:05", "1:02:05", "2 d 7 h"]));
    assert_eq!(
        number("m.smoothed([[0, 1], [1, 1], [2, 1]], 0.9).map((p) => Math.round(p[1] * 1000))"),
        json!([1000, 1000, 1000])
    );
    browser.end();
}

#[test]
fn the_cross_of_a_chart_shows_no_value_beyond_the_end_of_a_line() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    browser.open(&site, "/ui/");
    browser.wait("document.querySelector('h1')");
    let shown = call(
        &browser,
        "chart.js",
        "(async () => { \
         const chart = new m.Chart('loss'); \
         document.body.append(chart.element); \
         chart.set({ lines: [ \
             { key: 'a', label: 'ended', ink: 0, points: [[0, 1], [10, 0.5]] }, \
             { key: 'b', label: 'goes on', ink: 1, points: [[0, 2], [10, 1], [20, 0.25]] } ] }); \
         while (!chart.box) await new Promise(requestAnimationFrame); \
         const at = (x) => { chart.look(x); \
             return [chart.at, [...chart.values.querySelectorAll('span')].map((label) => label.textContent).join()]; }; \
         return [at(20), at(13), at(16), at(0)]; })()",
    );
    // It snaps to the nearest point of all lines, and names those that have a value there.
    assert_eq!(shown, json!([[20, "goes on"], [10, "ended,goes on"], [20, "goes on"], [0, "ended,goes on"]]));
    browser.end();
}

#[test]
fn a_long_log_is_read_in_parts() {
    let Some(browser) = browser() else { return };
    let site = Site::start();
    site.prepare(1);
    // 60 megabytes; a page holds three.
    let make = "seq -f 'line %010.0f of a long log that nobody reads to its end' 1 1000000";
    site.submit_custom("long", 1, &format!("{make}; {}; echo one more", wait_at("go")));
    // To its last line: new output is fetched as it arrives.
    wait_for("the log", || {
        site.log("long", "stdout.txt").contains("line 0001000000 of a long log that nobody reads to its end\n")
    });
    browser.open(&site, "/ui/jobs/batchai.horovod:batchaidev/cifar/long");
    let lines = "[...document.querySelectorAll('#logs .line')].map((line) => line.textContent)";
    browser.wait(&format!("{lines}.at(-1)?.startsWith('line 0001000000 ')"));
    let read = "performance.getEntriesByType('resource').filter((one) => one.name.includes('stdout.txt')).reduce((sum, one) => sum + one.transferSize, 0)";
    assert!(browser.value(read).as_u64().is_some_and(|read| read < 2_000_000), "only its end is fetched");
    browser.write("#logs input[type=search]", &format!("0000500000{}", keys::ENTER));
    browser.wait("document.querySelector('#logs .line[data-found]')?.textContent.startsWith('line 0000500000 ')");
    assert!(browser.value(&format!("{lines}.length")).as_u64() < Some(120));
    browser.value("document.querySelector('#logs .view').focus()");
    browser.press(keys::HOME);
    browser.wait(&format!("{lines}[0]?.startsWith('line 0000000001 ')"));
    browser.press(keys::END);
    browser.wait(&format!("{lines}.at(-1)?.startsWith('line 0001000000 ')"));
    site.open_gate("go");
    browser.wait(&format!("{lines}.at(-1) === 'one more'"));
    browser.end();
}
