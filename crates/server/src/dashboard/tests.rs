//! Served files and the headers of their responses.

use axum::extract::Request;

use super::*;

fn request(path: &str, headers: &[(&str, &str)]) -> Option<Response> {
    let request = headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    answer(&request.body(()).expect("a request").into_parts().0)
}

fn status(path: &str, headers: &[(&str, &str)]) -> Option<u16> {
    request(path, headers).map(|response| response.status().as_u16())
}

#[test]
fn pages_assets_and_nothing_else() {
    for (path, expected) in [
        ("/ui", Some(303)),
        ("/ui/", Some(200)),
        ("/ui/jobs/g:w/e/j", Some(200)),
        ("/ui/assets/main.js", Some(200)),
        ("/ui/assets/index.html", Some(404)),
        ("/ui/assets/../mod.rs", Some(404)),
        ("/uinvited", None),
        ("/", None),
        ("/metrics", None),
    ] {
        assert_eq!(status(path, &[]), expected, "{path}");
    }
    assert_eq!(status("/", &[("accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")]), Some(303));
    assert_eq!(status("/", &[("accept", "*/*")]), None);
    let post = Request::post("/ui/").body(()).expect("a request").into_parts().0;
    assert!(answer(&post).is_none());
}

#[test]
fn responses_have_the_policy_and_an_etag() {
    for path in ["/ui/", "/ui/assets/main.js", "/ui/assets/missing", "/ui"] {
        let response = request(path, &[]).expect("an answer");
        let policy = response.headers().get(header::CONTENT_SECURITY_POLICY).expect("a policy");
        let policy = policy.to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
    }
    let response = request("/ui/assets/main.js", &[]).expect("an answer");
    let tag = response.headers()[header::ETAG].to_str().expect("text").to_owned();
    assert_eq!(status("/ui/assets/main.js", &[("if-none-match", &tag)]), Some(304));
    assert_eq!(status("/ui/assets/api.js", &[("if-none-match", &tag)]), Some(200));
}

#[test]
fn assets_are_small_and_follow_the_policy() {
    let weight: usize = ALL.iter().map(|asset| asset.gzipped().len()).sum();
    assert!(weight < 150_000, "all pages together weigh {weight} bytes");
    for asset in ALL.iter() {
        let text = std::str::from_utf8(asset.body).expect("text");
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://"] {
            let found = text.replace("http://www.w3.org/2000/svg", "").contains(word);
            assert!(!found, "{} has {word}", asset.name);
        }
    }
}

#[test]
fn gzip_is_used_when_accepted() {
    let gzipped = request("/ui/assets/main.js", &[("accept-encoding", "br, gzip")]).expect("an answer");
    assert_eq!(gzipped.headers()[header::CONTENT_ENCODING], "gzip");
    let plain = request("/ui/assets/main.js", &[("accept-encoding", "identity")]).expect("an answer");
    assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
}

#[test]
fn every_file_that_a_module_imports_is_served() {
    for asset in ALL.iter().filter(|asset| asset.name.ends_with(".js")) {
        let text = std::str::from_utf8(asset.body).expect("text");
        for line in text.lines().filter(|line| line.contains("import")) {
            let quoted = line.split(['\'', '"', '`']).find(|part| part.starts_with("./") || part.starts_with("../"));
            let Some(wanted) = quoted.filter(|wanted| !wanted.contains('$')) else { continue };
            let name = wanted.trim_start_matches("../").trim_start_matches("./");
            let inside = format!("pages/{name}");
            let name = if asset.name.starts_with("pages/") && wanted.starts_with("./") { &inside } else { name };
            assert!(ALL.iter().any(|asset| asset.name == name), "{} imports {wanted}", asset.name);
        }
    }
}
