//! Container registry with one image, on loopback, that requires a user name and password. Complete enough for Docker's client
//! to pull from.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use serde_json::{Value, json};

pub struct Registry {
    pub address: String,
    /// The `Authorization` headers it received.
    pub shown: Arc<Mutex<Vec<String>>>,
}

struct Content {
    authorization: String,
    manifest: Vec<u8>,
    manifest_digest: String,
    blobs: Vec<(String, Vec<u8>)>,
}

impl Registry {
    /// Serves the archive as the only layer of every image and tag.
    pub fn start(archive: &Path, user: &str, password: &str) -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let content = Arc::new(content(archive, user, password));
        let shown = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&shown);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (content, seen) = (Arc::clone(&content), Arc::clone(&seen));
                std::thread::spawn(move || serve(stream, &content, &seen));
            }
        });
        Registry { address, shown }
    }
}

fn content(archive: &Path, user: &str, password: &str) -> Content {
    let layer = fs::read(archive).expect("the archive");
    let layer_digest = digest(archive);
    let config = json!({"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]}});
    let config = config.to_string().into_bytes();
    let config_digest = digest_of(archive, &config);
    let part = |kind: &str, digest: &str, size: usize| -> Value {
        json!({"mediaType": format!("application/vnd.docker.{kind}"), "digest": digest, "size": size})
    };
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST,
        "config": part("container.image.v1+json", &config_digest, config.len()),
        "layers": [part("image.rootfs.diff.tar", &layer_digest, layer.len())]});
    let manifest = manifest.to_string().into_bytes();
    let login = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    Content {
        authorization: format!("Basic {login}"),
        manifest_digest: digest_of(archive, &manifest),
        manifest,
        blobs: vec![(config_digest, config), (layer_digest, layer)],
    }
}

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

fn digest(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().expect("sha256sum runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    format!("sha256:{}", text.split_whitespace().next().expect("a sum"))
}

fn digest_of(beside: &Path, bytes: &[u8]) -> String {
    let file = beside.with_extension("summed");
    fs::write(&file, bytes).expect("a file");
    digest(&file)
}

fn serve(stream: TcpStream, content: &Content, seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("its copy"));
    let mut writer = stream;
    loop {
        let mut head = Vec::new();
        while head.last().is_none_or(|line: &String| !line.trim().is_empty()) {
            let mut line = String::new();
            if !reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                return;
            }
            head.push(line);
        }
        let header = |name: &str| {
            head.iter().find_map(|line| {
                let (found, value) = line.split_once(':')?;
                found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let length: usize = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let authorization = header("authorization");
        seen.lock().expect("no panic").extend(authorization.clone());
        let mut words = head[0].split_whitespace();
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (status, kind, digest, bytes) = match authorization == Some(content.authorization.clone()) {
            false => ("401 Unauthorized", "application/json", "", &b"{\"errors\":[{\"code\":\"UNAUTHORIZED\"}]}"[..]),
            true => response_for(path, content),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\ndocker-content-digest: {digest}\r\n\
             docker-distribution-api-version: registry/2.0\r\nwww-authenticate: Basic realm=\"test\"\r\n\r\n",
            bytes.len()
        );
        let body = if method == "HEAD" { &[][..] } else { bytes };
        if writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(body)).is_err() {
            return;
        }
    }
}

fn response_for<'a>(path: &str, content: &'a Content) -> (&'static str, &'static str, &'a str, &'a [u8]) {
    if path.contains("/manifests/") {
        return ("200 OK", MANIFEST, &content.manifest_digest, &content.manifest);
    }
    match content.blobs.iter().find(|(digest, _)| path.ends_with(digest)) {
        Some((digest, bytes)) => ("200 OK", "application/octet-stream", digest, bytes),
        None => ("200 OK", "application/json", "", b"{}"),
    }
}
