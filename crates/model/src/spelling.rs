//! Finds the name that a misspelled one was probably meant to be. Pure.

/// The most similar of `names`: equal but for case, `_` and `-`, or at most two typing mistakes away. Short names must be
/// closer, as most of them resemble each other.
pub fn most_similar<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = normalize(given);
    let max_distance = match given.len() {
        0..4 => 0,
        4..8 => 1,
        _ => 2,
    };
    let distance = |name: &'a str| {
        let normal = normalize(name);
        // Spares the quadratic comparison for texts of very different lengths.
        let is_close = given.len().abs_diff(normal.len()) <= 2 * max_distance;
        let distance = is_close.then(|| strsim::osa_distance(&given, &normal))?;
        (distance <= max_distance).then_some((distance, name))
    };
    names.into_iter().filter_map(distance).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

fn normalize(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_name_is_found() {
        let names = ["nodeCount", "outputDirectories", "inputDirectories", "pathPrefix", "pathSuffix", "id", "name"];
        for (given, expected) in [
            ("nodecount", Some("nodeCount")),
            ("node_count", Some("nodeCount")),
            ("nodeCuont", Some("nodeCount")),
            ("nodesCount", Some("nodeCount")),
            ("outputDirectorys", Some("outputDirectories")),
            ("pathprefx", Some("pathPrefix")),
            ("ID", Some("id")),
            ("if", None),
            ("nmae", Some("name")),
            ("same", Some("name")),
            ("count", None),
            ("directories", None),
            ("", None),
        ] {
            assert_eq!(most_similar(given, names), expected, "{given}");
        }
    }
}
