//! Names of resources made from other texts: experiments after the project, jobs after the script. Pure.

/// Leaves room for a number after the name.
const MAX_NAME: usize = 48;

/// Turns text into a name of letters, digits, `-` and `_`, as experiments and jobs have; `fallback` if nothing is left.
pub fn resource_name(text: &str, fallback: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let replaced: String = text.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    let name: String = replaced.trim_matches('-').chars().take(MAX_NAME).collect();
    if name.is_empty() { fallback.to_owned() } else { name.trim_end_matches('-').to_owned() }
}

/// Name of the experiment for the jobs of a project.
pub fn experiment_name(project: &str) -> String {
    resource_name(project, "default")
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::names::{NameKind, check_name};

    #[test]
    fn names_have_only_allowed_characters() {
        let check = |text: &str, expected: &str| {
            let name = resource_name(text, "job");
            assert_eq!(name, expected);
            check_name(NameKind::Job, &format!("{name}-{}", u32::MAX)).expect("allowed");
        };
        check("train", "train");
        check("my project (2)", "my-project--2");
        check("été", "t");
        check("...", "job");
        check("", "job");
        check(&"x".repeat(100), &"x".repeat(48));
    }
}
