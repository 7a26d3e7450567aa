//! User content is displayed and never executed: file names and contents, failure reasons, HTML pages in shares.

use super::harness::Site;
use super::harness::browser::Browser;

const EVIL: &str = "<img src=x onerror=window.hit=1><script>window.hit=1</script>";

#[test]
fn nothing_that_users_write_is_run() {
    let Some(browser) = Browser::start() else { return };
    let site = Site::start();
    site.prepare(1);
    let cifar = site.share().join("cifar");
    std::fs::write(cifar.join("evil.txt"), EVIL).expect("a file");
    std::fs::write(cifar.join("page.html"), format!("<body>{EVIL}</body>")).expect("a file");
    std::fs::write(cifar.join("<img src=x onerror=hit()>"), "x").expect("a file");
    site.submit_custom("bad", 1, "sh -c 'echo \\<img src=x onerror=window.hit=1\\> >&2; exit 7'");
    site.wait_for_end("bad");

    for page in
        ["/ui/", "/ui/shares/mystorageaccount/myshare/cifar", "/ui/shares/mystorageaccount/myshare/cifar?view=evil.txt"]
    {
        browser.go("about:blank");
        browser.go(&format!("{}{}#token={}", site.url, page, site.token()));
        browser.wait_for_script("return document.querySelector('.rows .row') !== null");
        if page.ends_with("evil.txt") {
            browser.wait_for_text(".preview pre", "<script>");
        }
        assert!(browser.eval("return window.hit ?? null").is_null(), "{page}");
        assert_eq!(
            browser.eval("return document.querySelectorAll('main img[src=x], main script').length"),
            0,
            "{page}"
        );
    }
    // Names in URLs are text, too.
    browser.go(&format!("{}/ui/clusters/a:b/%3Cimg%20src=x%20onerror=alert(1)%3E", site.url));
    browser.wait_for_text("main", "could not be found");
    // The file service serves a page of a share unchanged, and the browser runs no script of it.
    let link = browser.eval(
        "const t = sessionStorage.getItem('corro.token'); const h = {Authorization: `Bearer ${t}`};
         const s = await (await fetch(`/subscriptions/${sessionStorage.getItem('corro.subscription')}/providers/Corro/shares?api-version=2018-05-01`, {headers: h})).json();
         return (await (await fetch(`${s.value[0].accountId}/shares/myshare/link?api-version=2018-07-01`, {method: 'POST', headers: h})).json()).query",
    );
    let link = link.as_str().expect("a link").to_owned();
    let response = site.request("GET", &format!("/mystorageaccount/myshare/cifar/page.html?{link}"), &[], b"");
    assert_eq!(response.header("content-security-policy"), Some("default-src 'none'; sandbox"), "{}", response.headers);
    // 404 for the URL that names no cluster, which the console reports.
    browser.assert_console_clean_except(&["404"]);
}
