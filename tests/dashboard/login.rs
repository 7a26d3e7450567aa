//! Login and logout in the browser, and the return to the requested page after login.

use serde_json::json;

use super::harness::Site;
use super::harness::browser::{Browser, keys};

#[test]
fn one_logs_in_and_out_and_comes_back_to_the_same_page() {
    let Some(browser) = Browser::start() else { return };
    let site = Site::start();
    site.prepare(0);
    let profile = site.profile();
    let field = |name: &str| profile[name].as_str().expect("text").to_owned();
    let page = "/ui/clusters/batchai.horovod:batchaidev/nc6cluster";

    // An unauthenticated visitor sees only the login; a wrong password is reported.
    browser.go(&format!("{}{page}", site.url));
    browser.wait_for_text("h1", "Log in");
    assert!(!browser.text("body").contains("nc6cluster"));
    browser.write("[name=id]", &field("clientId"));
    browser.write("[name=password]", "wrong");
    browser.press(keys::ENTER);
    browser.wait_for_text("[role=alert]", "wrong");
    browser.eval("document.querySelector('[name=password]').value = ''");
    browser.write("[name=password]", &field("clientSecret"));
    browser.press(keys::ENTER);
    browser.wait_for_text("h1", "nc6cluster");
    assert!(browser.url().ends_with(page), "{}", browser.url());
    browser.go(&browser.url());
    browser.wait_for_text("h1", "nc6cluster");

    // The token expires while the page is open: to the login, and back.
    let me = field("clientId");
    let revoke = format!("{}/providers/Corro/principals/{me}/revokeTokens?api-version=2018-05-01", site.subscription());
    let bearer = format!("Bearer {}", site.token());
    let response =
        site.request("POST", &revoke, &[("Authorization", &bearer), ("Content-Type", "application/json")], b"{}");
    assert!(response.status < 300, "{}", response.text());
    browser.wait_for_text("main", "Your login has expired");
    assert!(!browser.text("body").contains("nc6cluster"));
    browser.click_on(".tabs button", "Token");
    browser.write("[name=token]", "a.b.c");
    browser.press(keys::ENTER);
    browser.wait_for_text("[role=alert]", "not valid");
    browser.eval("document.querySelector('[name=token]').value = ''");
    browser.write("[name=token]", &site.token());
    browser.press(keys::ENTER);
    browser.wait_for_text("h1", "nc6cluster");
    assert!(browser.url().ends_with(page), "{}", browser.url());

    browser.click("#log-out");
    browser.wait_for_text("h1", "Log in");
    assert_eq!(browser.eval("return sessionStorage.length"), 0, "something of the login is left");
    browser.go(&format!("{}/ui/", site.url));
    browser.wait_for_text("h1", "Log in");
    // The event stream was closed with the token.
    browser.assert_console_clean_except(&["401", "ERR_CONNECTION_RESET", "ERR_INCOMPLETE_CHUNKED"]);

    // The command's link logs in, and the token does not stay in the URL.
    let link = site.corro("dashboard").ok().stdout;
    assert!(link.starts_with(&format!("{}/ui/#token=", site.url)), "{link}");
    browser.go(link.trim());
    browser.wait_for_text(".cluster h2", "nc6cluster");
    assert_eq!(browser.url(), format!("{}/ui/", site.url));
    // The command line of `--open` contains no token.
    let mut opened = site.command("corro");
    opened.args(["dashboard", "--open"]).env("BROWSER", "echo");
    let said = opened.output().expect("it runs");
    let page = std::fs::read_to_string(site.path().join("config/dashboard.html")).expect("a page that leads there");
    assert!(
        said.status.success() && page.contains("#token=") && !String::from_utf8_lossy(&said.stdout).contains("token")
    );
    browser.assert_console_clean_except(&[]);
}

#[test]
fn pages_are_public_and_what_they_show_is_not() {
    let site = Site::start();
    let html = [("Accept", "text/html")];
    assert_eq!(site.request("GET", "/", &html, b"").header("location"), Some("/ui/"));
    site.request("GET", "/", &[], b"").is(401);
    let page = site.request("GET", "/ui/jobs/a:b/c/d", &html, b"");
    let policy = page.header("content-security-policy").unwrap_or_default();
    assert!(page.status == 200 && policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let tag = page.header("etag").expect("a tag").to_owned();
    site.request("GET", "/ui/", &[("If-None-Match", &tag)], b"").is(304);
    for method in ["POST", "PUT", "DELETE"] {
        site.request(method, "/ui/", &[], b"").is(401);
    }
    site.request("GET", &format!("{}/providers/Corro/jobs?api-version=2018-05-01", site.subscription()), &[], b"")
        .is(401);
    let up = site.corro("dashboard -o json").ok();
    assert!(up.stdout.contains("/ui/#token="), "{}", json!(up.stdout));
}
