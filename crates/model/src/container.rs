//! Image references and memory sizes in the syntax of the `docker` command. Pure.

/// Whether `text` is a valid image reference: `ubuntu`, `demo.azurecr.io/team/image:tag`, `image@sha256:…`. A text that
/// would change the target of a URL it is inserted into is never valid.
pub fn is_image_reference(text: &str) -> bool {
    let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
    let plain = |part: &str, more: &str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
            && part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
    };
    let (path, tag) = split_tag(name);
    let host_or_name = |part: &str| plain(part, "._-:") && !part.contains("..");
    text.len() <= 512
        && path.split('/').all(host_or_name)
        && tag.is_none_or(|tag| tag.len() <= 128 && plain(tag, "._-"))
        && digest.is_none_or(|digest| plain(digest, "+._-:"))
}

/// Splits a reference into the image and its tag or digest; the tag defaults to `latest`.
pub fn split_image(reference: &str) -> (&str, &str) {
    if let Some((name, digest)) = reference.split_once('@') {
        return (split_tag(name).0, digest);
    }
    let (name, tag) = split_tag(reference);
    (name, tag.unwrap_or("latest"))
}

/// Splits off the tag. A colon before the last slash belongs to a registry's port.
fn split_tag(name: &str) -> (&str, Option<&str>) {
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[last..].find(':') {
        Some(colon) => (&name[..last + colon], Some(&name[last + colon + 1..])),
        None => (name, None),
    }
}

/// Parses bytes in the syntax of `--shm-size`: `67108864`, `64m`, `1.5g`, `16gb`, `2 GiB`. Units are powers of 1024.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim_start().to_ascii_lowercase();
    let power = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" if unit.is_empty() || unit == "b" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    let bytes = number * 1024f64.powi(power);
    (bytes >= 1.0 && bytes < i64::MAX as f64).then_some(bytes as u64)
}

/// Formats bytes for people: `1.5 GiB`.
pub fn size_words(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..=0x3ff => return format!("{bytes} bytes"),
        0x400..=0xf_ffff => (1u64 << 10, "KiB"),
        0x10_0000..=0x3fff_ffff => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    let size = bytes as f64 / unit as f64;
    if size.fract() < 0.05 || size.fract() > 0.95 { format!("{size:.0} {name}") } else { format!("{size:.1} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_told_from_other_texts() {
        for image in [
            "ubuntu",
            "tensorflow/tensorflow:1.8.0-gpu",
            "batchaitraining/chainermn:openMPI",
            "microsoft/cntk:2.5.1-gpu-python2.7-cuda9.0-cudnn7.0",
            "demo.azurecr.io/myimage",
            "localhost:5000/a/b:c",
            "a@sha256:0123456789abcdef",
            "a:b@sha256:0123456789abcdef",
        ] {
            assert!(is_image_reference(image), "{image}");
        }
        for text in
            ["", " ", "a b", "../x", "a/../b", "/a", "a/", "a//b", "a?b", "a#b", "a%2fb", "a:", "a@", "-a", "a:b/../c"]
        {
            assert!(!is_image_reference(text), "{text:?}");
        }
    }

    #[test]
    fn an_image_has_one_tag_or_digest() {
        let check = |image, name, tag| assert_eq!(split_image(image), (name, tag), "{image}");
        check("ubuntu", "ubuntu", "latest");
        check("a/b:1", "a/b", "1");
        check("localhost:5000/b", "localhost:5000/b", "latest");
        check("localhost:5000/b:2", "localhost:5000/b", "2");
        check("a:1@sha256:ff", "a", "sha256:ff");
    }

    #[test]
    fn sizes_are_those_of_docker() {
        let check = |text, bytes| assert_eq!(parse_size(text), bytes, "{text}");
        check("67108864", Some(64 << 20));
        check("512b", Some(512));
        check("64m", Some(64 << 20));
        check("16gb", Some(16 << 30));
        check("1.5G", Some(3 << 29));
        check("2 GiB", Some(2 << 30));
        for text in ["", "g", "-1", "1x", "0", "1e9", "many", "1gg", "1bb"] {
            check(text, None);
        }
        assert_eq!(size_words(64 << 20), "64 MiB");
        assert_eq!(size_words(3 << 29), "1.5 GiB");
        assert_eq!(size_words(56 << 30), "56 GiB");
    }
}
