//! Key of a Python environment: a digest of everything on which its content depends and that a node can know before it
//! makes it. Pure. Credentials in URLs are left out, so that a new token makes no new environment.

use std::collections::BTreeMap;

use corro_model::node::Wheel;
use sha2::{Digest, Sha256};

use crate::storage::python_cache::EnvironmentKey;

/// What an environment depends on.
#[derive(Clone, Debug)]
pub struct KeyInput<'a> {
    /// Jobs of different workspaces share no environment: who may write in one may run programs as its jobs.
    pub workspace: &'a str,
    /// `pip` or the path of the conda program, and a description of the interpreter.
    pub maker: &'a str,
    /// Wheels that the server offers.
    pub wheels: &'a [Wheel],
    pub variables: &'a BTreeMap<String, String>,
    /// Files, in the order in which they were found.
    pub files: &'a [FileDigest],
}

/// Content of a file or directory.
pub type FileDigest = [u8; 32];

/// Raised when environments are made in another way.
const FORMAT: &str = "corro-python-environment 1";

/// Variables other than pip's that change what is installed.
const OTHER_VARIABLES: [&str; 3] = ["CONDA_CHANNELS", "CONDA_OVERRIDE_CUDA", "CONDA_SUBDIR"];

pub fn environment_key(input: &KeyInput<'_>) -> EnvironmentKey {
    let mut hash = Sha256::new();
    // Each part with its length, so that parts cannot be shifted into each other.
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    add(FORMAT.as_bytes());
    add(input.workspace.as_bytes());
    add(input.maker.as_bytes());
    for wheel in input.wheels {
        add(format!("wheel {} {} {}", wheel.name, wheel.bytes, wheel.modified).as_bytes());
    }
    for (name, value) in input.variables.iter().filter(|(name, _)| is_relevant(name)) {
        add(format!("variable {name}={}", without_credentials(value)).as_bytes());
    }
    input.files.iter().for_each(|digest| add(digest));
    EnvironmentKey::new(&hash.finalize().into())
}

fn is_relevant(name: &str) -> bool {
    name.starts_with("PIP_") || OTHER_VARIABLES.contains(&name)
}

/// User names and passwords in the URLs of pip's variables and of these texts. They are masked in pip's output.
pub fn url_credentials<'a>(
    variables: &'a BTreeMap<String, String>,
    texts: &'a [String],
) -> impl Iterator<Item = &'a str> {
    let values = variables.iter().filter(|(name, _)| name.starts_with("PIP_")).map(|(_, value)| value);
    values.chain(texts).flat_map(|text| user_infos(text)).flat_map(|user_info| {
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        // A token may be in either place.
        [user, password].into_iter().filter(|part| !part.is_empty())
    })
}

fn without_credentials(text: &str) -> String {
    user_infos(text).fold(text.to_owned(), |text, user_info| text.replace(&format!("{user_info}@"), ""))
}

/// `user:password` of each URL in the text.
fn user_infos(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("://").filter_map(|(at, mark)| {
        let authority = text[at + mark.len()..].split(['/', '?', '#', ' ', '\n', '"', '\'']).next()?;
        authority.rsplit_once('@').map(|(user_info, _)| user_info).filter(|user_info| !user_info.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(given: &[(&str, &str)]) -> BTreeMap<String, String> {
        given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_key_depends_on_everything_that_changes_the_environment() {
        let wheel = |modified| Wheel { name: "horovod-1.whl".into(), bytes: 3, modified };
        let (wheels, newer) = ([wheel(1)], [wheel(2)]);
        let none = variables(&[("PATH", "/usr/bin"), ("RANK", "0")]);
        let base = KeyInput { workspace: "w", maker: "pip 3.11", wheels: &wheels, variables: &none, files: &[[1; 32]] };
        let key = environment_key(&base);
        let index = variables(&[("PIP_INDEX_URL", "https://a.example/simple")]);
        let others = [
            KeyInput { workspace: "x", ..base.clone() },
            KeyInput { maker: "pip 3.12", ..base.clone() },
            KeyInput { wheels: &newer, ..base.clone() },
            KeyInput { wheels: &[], ..base.clone() },
            KeyInput { variables: &index, ..base.clone() },
            KeyInput { files: &[[2; 32]], ..base.clone() },
            KeyInput { files: &[[1; 32], [1; 32]], ..base.clone() },
        ];
        let mut keys: Vec<EnvironmentKey> = others.iter().map(environment_key).collect();
        assert!(!keys.contains(&key), "{keys:?}");
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), others.len());
        let same = variables(&[("PATH", "/opt/bin"), ("RANK", "1")]);
        assert_eq!(environment_key(&KeyInput { variables: &same, ..base }), key);
    }

    #[test]
    fn a_new_token_of_an_index_makes_no_new_environment() {
        let key = |url: &str| {
            let variables = variables(&[("PIP_EXTRA_INDEX_URL", url)]);
            environment_key(&KeyInput { workspace: "w", maker: "pip", wheels: &[], variables: &variables, files: &[] })
        };
        let plain = key("https://a.example/simple https://b.example/simple");
        assert_eq!(key("https://me:token-1@a.example/simple https://token-2@b.example/simple"), plain);
        assert_ne!(key("https://c.example/simple https://b.example/simple"), plain);
    }

    #[test]
    fn credentials_of_indexes_are_found() {
        let given = variables(&[
            ("PIP_INDEX_URL", "https://me:se%40cret@a.example/simple"),
            ("PIP_EXTRA_INDEX_URL", "https://token@b.example/x https://c.example/@scope"),
            ("OTHER_URL", "https://ignored:ignored@d.example"),
        ]);
        let texts = ["numpy\n--index-url https://__token__:in-file@e.example/simple\n".to_owned()];
        let mut found: Vec<&str> = url_credentials(&given, &texts).collect();
        found.sort_unstable();
        assert_eq!(found, ["__token__", "in-file", "me", "se%40cret", "token"]);
    }
}
