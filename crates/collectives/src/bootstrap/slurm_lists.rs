//! Parsers of Slurm's compressed lists: hosts as `n[01-03,7],m2`, counts as `2(x3),1`. Pure.

/// Longer lists are refused as malformed, so that they cannot exhaust memory.
const MAX_HOSTS: usize = 100_000;

/// Expands a list of hosts, in order; `None` when it is malformed.
pub fn hosts(list: &str) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for entry in entries(list)? {
        expand(entry, String::new(), &mut hosts)?;
    }
    Some(hosts)
}

/// Expands a list of counts, one per host; `None` when it is malformed.
pub fn counts(list: &str) -> Option<Vec<usize>> {
    let mut counts = Vec::new();
    for entry in list.split(',') {
        let (count, times) = match entry.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (entry, 1),
        };
        if times > MAX_HOSTS - counts.len() {
            return None;
        }
        counts.extend(std::iter::repeat_n(count.parse::<usize>().ok()?, times));
    }
    Some(counts)
}

/// Splits at the commas outside of brackets.
fn entries(list: &str) -> Option<Vec<&str>> {
    let (mut entries, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, character) in list.char_indices() {
        match character {
            '[' if inside => return None,
            '[' => inside = true,
            ']' if !inside => return None,
            ']' => inside = false,
            ',' if !inside => {
                entries.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    entries.push(&list[begin..]);
    (!inside && entries.iter().all(|entry| !entry.is_empty())).then_some(entries)
}

/// Appends every name of one entry; its brackets are expanded from left to right.
fn expand(entry: &str, prefix: String, hosts: &mut Vec<String>) -> Option<()> {
    let Some((before, rest)) = entry.split_once('[') else {
        hosts.push(prefix + entry);
        return (hosts.len() <= MAX_HOSTS).then_some(());
    };
    let (ranges, after) = rest.split_once(']')?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (low, high): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        if high < low {
            return None;
        }
        for number in low..=high {
            // Zero-padded to the width of the first number.
            expand(after, format!("{prefix}{before}{number:0width$}", width = first.len()), hosts)?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(list: &str, expected: Option<&[&str]>) {
        let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(hosts(list), expected, "{list}");
    }

    #[test]
    fn host_lists_are_expanded() {
        check("n1", Some(&["n1"]));
        check("n[1-3,7],m2", Some(&["n1", "n2", "n3", "n7", "m2"]));
        check("n[08-11]", Some(&["n08", "n09", "n10", "n11"]));
        check("r[1-2]n[1-2].x", Some(&["r1n1.x", "r1n2.x", "r2n1.x", "r2n2.x"]));
        for bad in ["", "a,", "n[1-", "n1]", "n[3-1]", "n[x]", "n[]", "n[[1]]", "n[1-999999999]"] {
            check(bad, None);
        }
    }

    #[test]
    fn counts_are_expanded() {
        assert_eq!(counts("2(x3),1"), Some(vec![2, 2, 2, 1]));
        assert_eq!(counts("4"), Some(vec![4]));
        for bad in ["", "2(x3", "(x3)", "2(x)", "a", "1(x99999999999)", "1,"] {
            assert_eq!(counts(bad), None, "{bad}");
        }
    }
}
