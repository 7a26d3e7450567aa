//! Login and logout in the browser, and the return to the requested page after login.

use serde_json::json;

use super::harness::Site;
use super::harness::window::{Browser, keys};

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
    browser.sees("h1", "Log in");
    assert!(!browser.text("body").contains("nc6cluster"));
    browser.write("[name=id]", &field("clientId"));
    browser.write("[name=password]", "wrong");
    browser.press(keys::ENTER);
    browser.sees("[role=alert]", "wrong");
    browser.eval("document.querySelector('[name=password]').value = ''");
    browser.write("[name=password]", &field("clientSecret"));
    browser.press(keys::ENTER);
    browser.sees("h1", "nc6cluster");
    assert!(browser.url().ends_with(page), "{}", browser.url());
    browser.go(&browser.url());
    browser.sees("h1", "nc6cluster");

    // The token expires while the page is open: to the login, and back.
    let me = field("clientId");
    let revoke = format!("{}/providers/Corro/principals/{me}/revokeTokens?api-version=2018-05-01", site.subscription());
    let bearer = format!("Bearer {}", site.token());
    let answer = site.ask("POST", &revoke, &[("Authorization", &bearer), ("Content-Type", "application/json")], b"{}");
    assert!(answer.status < 300, "{}", answer.text());
    browser.sees("main", "Your login has expired");
    assert!(!browser.text("body").contains("nc6cluster"));
    browser.click_on(".tabs button", "Token");
    browser.write("[name=token]", "a.b.c");
    browser.press(keys::ENTER);
    browser.sees("[role=alert]", "not valid");
    browser.eval("document.querySelector('[name=token]').value = ''");
    browser.write("[name=token]", &site.token());
    browser.press(keys::ENTER);
    browser.sees("h1", "nc6cluster");
    assert!(browser.url().ends_with(page), "{}", browser.url());

    browser.click("#log-out");
    browser.sees("h1", "Log in");
    assert_eq!(browser.eval("return sessionStorage.length"), 0, "something of the login is left");
    browser.go(&format!("{}/ui/", site.url));
    browser.sees("h1", "Log in");
    // The event stream was closed with the token.
    browser.is_clean_but_for(&["401", "ERR_CONNECTION_RESET", "ERR_INCOMPLETE_CHUNKED"]);

    // The command's link logs in, and the token does not stay in the URL.
    let link = site.corro("dashboard").ok().stdout;
    assert!(link.starts_with(&format!("{}/ui/#token=", site.url)), "{link}");
    browser.go(link.trim());
    browser.sees(".cluster h2", "nc6cluster");
    assert_eq!(browser.url(), format!("{}/ui/", site.url));
    // The command line of `--open` contains no token.
    let mut opened = site.command("corro");
    opened.args(["dashboard", "--open"]).env("BROWSER", "echo");
    let said = opened.output().expect("it runs");
    let page = std::fs::read_to_string(site.path().join("config/dashboard.html")).expect("a page that leads there");
    assert!(
        said.status.success() && page.contains("#token=") && !String::from_utf8_lossy(&said.stdout).contains("token")
    );
    browser.is_clean_but_for(&[]);
}

#[test]
fn pages_are_public_and_what_they_show_is_not() {
    let site = Site::start();
    let html = [("Accept", "text/html")];
    assert_eq!(site.ask("GET", "/", &html, b"").header("location"), Some("/ui/"));
    site.ask("GET", "/", &[], b"").is(401);
    let page = site.ask("GET", "/ui/jobs/a:b/c/d", &html, b"");
    let policy = page.header("content-security-policy").unwrap_or_default();
    assert!(page.status == 200 && policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let tag = page.header("etag").expect("a tag").to_owned();
    site.ask("GET", "/ui/", &[("If-None-Match", &tag)], b"").is(304);
    for method in ["POST", "PUT", "DELETE"] {
        site.ask(method, "/ui/", &[], b"").is(401);
    }
    site.ask("GET", &format!("{}/providers/Corro/jobs?api-version=2018-05-01", site.subscription()), &[], b"").is(401);
    let up = site.corro("dashboard -o json").ok();
    assert!(up.stdout.contains("/ui/#token="), "{}", json!(up.stdout));
}
