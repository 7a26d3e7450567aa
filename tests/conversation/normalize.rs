//! Replaces values that differ from run to run by placeholders. In tables the padding and dashes are shortened too, since the
//! column width depends on the value.

use std::sync::LazyLock;

use regex::Regex;

use crate::harness::Site;

/// Order matters: an earlier match may contain a later pattern.
static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"sig=[A-Za-z0-9%]+", "sig=<SIGNATURE>"),
        (r"se=[0-9TZ%A-]+", "se=<TIME>"),
        (r"&by=[A-Za-z0-9%]+", "&by=<CALLER>"),
        (r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|\+00:00)", "<TIME>"),
        (r"\b(took|waited|ran) [0-9]+:[0-9]{2}:[0-9]{2}(\.[0-9]+)?", "$1 <SPAN>"),
        (r"\bCorro [0-9]+\.[0-9]+\.[0-9]+", "Corro <VERSION>"),
        (r"(after|in) [0-9]+ ms", "$1 <N> ms"),
        (r"note: this server runs as root[ -~]*\n", ""),
        (r"\(process [0-9]+\)", "(process <PID>)"),
        (r"(  process +)[0-9]+", "$1<PID>"),
        (r"(  since    <TIME>) \([0-9a-z ]+\)", "$1 (<SPAN>)"),
        (r"content-length: [0-9]+", "content-length: <N>"),
        (r"\([0-9]+ bytes\)", "(<N> bytes)"),
        (r#""(expires_on|not_before)":"[0-9]+""#, r#""$1":"<TIME>""#),
        (r"127\.0\.0\.1:[0-9]{4,5}", "127.0.0.1:<PORT>"),
        (r"port=[0-9]+", "port=<NFS>"),
        (r"/data/[0-9a-f]{32}", "/data/<WORD>"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<UUID>"),
        (r"tvm-[0-9]+_([0-9]+)-[0-9]{8}t[0-9]{6}z-p", "<NODE $1>"),
        (r#""port": [0-9]+\.0"#, r#""port": <PORT>.0"#),
        (r"(127\.0\.0\.[0-9]+ +)5[0-9]{4}\b", "$1<PORT>"),
        (r"(execution-[ -~]*\.log +no +)[0-9]+", "$1<N>"),
        (r"\bbai[a-z]{12}\b", "<ACCOUNT>"),
        (r#""0x[0-9A-F]+""#, "<ETAG>"),
        (r"[A-Za-z0-9+/]{86}==", "<KEY>"),
        (r"which has [0-9]+ cores?, [0-9]+ GiB of memory and [a-zA-Z0-9 ]+ for all", "which has <MACHINE> for all"),
    ]
    .map(|(pattern, word)| (Regex::new(&format!("(?-u){pattern}")).expect("a pattern"), word))
    .into()
});

/// Placeholders of values whose width differs too.
const VARIABLE_WIDTH: [&str; 3] = ["<NODE", "<TIME>", "<PORT>"];

pub fn normalize(text: &str, site: &Site) -> String {
    let address = site.url.trim_start_matches("http://").trim_end_matches('/');
    let mut text = text.replace(&site.path().display().to_string(), "<DIR>").replace(address, "<SERVER>");
    for (pattern, word) in &*PATTERNS {
        text = pattern.replace_all(&text, *word).into_owned();
    }
    let is_rule = |line: &str| line.starts_with("---") && line.chars().all(|c| c == '-' || c == ' ');
    if text.lines().any(is_rule) && VARIABLE_WIDTH.iter().any(|word| text.contains(word)) {
        let lines = text.lines().map(|line| if is_rule(line) { short(line, '-', 3) } else { short(line, ' ', 2) });
        text = lines.map(|line| line.trim().to_owned() + "\n").collect();
    }
    text
}

/// Shortens longer runs of a character, and of the blanks beside them, to this length.
fn short(line: &str, character: char, length: usize) -> String {
    let mut out = String::new();
    let mut run = 0;
    for c in line.chars() {
        run = if c == character { run + 1 } else { 0 };
        if run <= length {
            out.push(c);
        }
    }
    out
}
