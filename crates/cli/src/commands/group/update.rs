//! `corro group update`: changes the tags of a group, all at once or one by one.

use clap::Args;
use corro_model::arm::GroupUpdateParameters;
use corro_model::batchai::Tags;
use corro_model::ops::{GroupsGet, GroupsUpdate};

use super::NameArgs;
use crate::error::CliError;
use crate::output::Shape;
use crate::resource::resource_ref::parse_tags;
use crate::session::Session;

#[derive(Args, Debug)]
pub struct UpdateArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Replace all tags with these KEY=VALUE pairs. '' removes all tags
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    tags: Option<Vec<String>>,
    /// Set one tag, as tags.KEY=VALUE
    #[arg(long, num_args = 1.., value_name = "tags.KEY=VALUE")]
    set: Vec<String>,
    /// Remove one tag, as tags.KEY
    #[arg(long, num_args = 1.., value_name = "tags.KEY")]
    remove: Vec<String>,
}

pub async fn run(session: &Session, args: UpdateArgs) -> Result<(), CliError> {
    let path = [("group", args.name.name.as_str())];
    let group = session.client()?.get::<GroupsGet>(&path).await?;
    let current = args.tags.as_deref().map(parse_tags).or(group.tags);
    let changed = apply_changes(current.unwrap_or_default(), &args.set, &args.remove)?;
    let parameters = GroupUpdateParameters { tags: Some(changed) };
    let group = session.client()?.call::<GroupsUpdate>(&path, &[], &parameters).await?;
    session.print(Shape::ResourceGroup, None, &group)
}

fn apply_changes(mut tags: Tags, set: &[String], remove: &[String]) -> Result<Tags, CliError> {
    let tag_name = |flag: &str, text: &str| {
        let key = text.strip_prefix("tags.").filter(|key| !key.is_empty()).map(str::to_owned);
        key.ok_or_else(|| {
            CliError::usage(format!("argument {flag}: '{text}': only tags can be changed: write tags.KEY"))
        })
    };
    for text in set {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        tags.insert(tag_name("--set", key)?, value.to_owned());
    }
    for text in remove {
        tags.remove(&tag_name("--remove", text)?);
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_set_and_removed() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let old = parse_tags(&words(&["a=1", "b=2"]));
        let new = apply_changes(old.clone(), &words(&["tags.c=x=y", "tags.a=3"]), &words(&["tags.b"])).expect("labels");
        assert_eq!(new, parse_tags(&words(&["a=3", "c=x=y"])));
        for wrong in ["location=westus", "tags=1", "tags.=1"] {
            assert_eq!(apply_changes(old.clone(), &words(&[wrong]), &[]).map_err(|f| f.exit), Err(2), "{wrong}");
        }
    }
}
