//! Output of a host discovery script: one host per line, `host` or `host:slots`, as upstream. Empty lines are ignored; a host that is listed
//! twice counts with its last line.

use thiserror::Error;

use crate::settings::Host;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum DiscoveryError {
    #[error("line {line} of the discovery script's output is '{text}': write HOST or HOST:SLOTS")]
    Format { line: usize, text: String },
    #[error(
        "line {line} of the discovery script's output has no slots: write '{host}:SLOTS', or give --slots-per-host"
    )]
    NoSlots { line: usize, host: String },
}

/// Reads the output of a discovery script. Hosts without a number have `default_slots`.
pub fn parse_hosts(output: &str, default_slots: Option<usize>) -> Result<Vec<Host>, DiscoveryError> {
    let mut hosts: Vec<Host> = Vec::new();
    for (line, text) in output.lines().enumerate().map(|(idx, text)| (idx + 1, text.trim())) {
        if text.is_empty() {
            continue;
        }
        let host = parse_line(line, text, default_slots)?;
        match hosts.iter_mut().find(|known| known.name == host.name) {
            Some(known) => known.slots = host.slots,
            None => hosts.push(host),
        }
    }
    Ok(hosts)
}

fn parse_line(line: usize, text: &str, default_slots: Option<usize>) -> Result<Host, DiscoveryError> {
    let format = || DiscoveryError::Format { line, text: text.chars().take(100).collect() };
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || ['_', '.', '-'].contains(&letter))
    };
    match text.split_once(':') {
        Some((name, slots)) if is_name(name) => {
            let slots = slots.parse().map_err(|_| format())?;
            Ok(Host { name: name.to_owned(), slots })
        }
        None if is_name(text) => {
            let slots = default_slots.ok_or_else(|| DiscoveryError::NoSlots { line, host: text.to_owned() })?;
            Ok(Host { name: text.to_owned(), slots })
        }
        _ => Err(format()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &str, default_slots: Option<usize>, expected: Result<&[(&str, usize)], &str>) {
        let parsed = parse_hosts(output, default_slots).map_err(|error| error.to_string());
        let expected: Result<Vec<Host>, String> = match expected {
            Ok(hosts) => Ok(hosts.iter().map(|(name, slots)| Host { name: (*name).into(), slots: *slots }).collect()),
            Err(text) => Err(text.into()),
        };
        assert_eq!(parsed, expected, "{output:?}");
    }

    #[test]
    fn lines_name_hosts_and_slots() {
        check("a:2\nb:1\n", None, Ok(&[("a", 2), ("b", 1)]));
        check("\n  a \n127.0.0.1:3", Some(4), Ok(&[("a", 4), ("127.0.0.1", 3)]));
        check("a:2\na:0\n", None, Ok(&[("a", 0)]));
        check("", None, Ok(&[]));
        let no_slots =
            "line 1 of the discovery script's output has no slots: write 'a:SLOTS', or give --slots-per-host";
        check("a", None, Err(no_slots));
        for wrong in ["a b", "a:x", ":2", "a:-1", "a:1:2"] {
            let text = format!("line 2 of the discovery script's output is '{wrong}': write HOST or HOST:SLOTS");
            check(&format!("a:1\n{wrong}\n"), Some(1), Err(&text));
        }
    }
}
