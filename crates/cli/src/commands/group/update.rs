//! `corro group update`: the labels of a group, given whole or one by one.

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
    /// All its labels anew: key=value ...; '' leaves none
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    tags: Option<Vec<String>>,
    /// One label: tags.key=value
    #[arg(long, num_args = 1.., value_name = "tags.KEY=VALUE")]
    set: Vec<String>,
    /// A label to take away: tags.key
    #[arg(long, num_args = 1.., value_name = "tags.KEY")]
    remove: Vec<String>,
}

pub async fn run(session: &Session, args: UpdateArgs) -> Result<(), CliError> {
    let path = [("group", args.name.name.as_str())];
    let group = session.client()?.get::<GroupsGet>(&path).await?;
    let kept = args.tags.as_deref().map(parse_tags).or(group.tags);
    let changed = changed(kept.unwrap_or_default(), &args.set, &args.remove)?;
    let parameters = GroupUpdateParameters { tags: Some(changed) };
    let group = session.client()?.call::<GroupsUpdate>(&path, &[], &parameters).await?;
    session.print(Shape::ResourceGroup, None, &group)
}

fn changed(mut kept: Tags, set: &[String], remove: &[String]) -> Result<Tags, CliError> {
    let label = |flag: &str, text: &str| {
        let key = text.strip_prefix("tags.").filter(|key| !key.is_empty()).map(str::to_owned);
        key.ok_or_else(|| CliError::usage(format!("argument {flag}: '{text}': only labels can change: write tags.KEY")))
    };
    for text in set {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        kept.insert(label("--set", key)?, value.to_owned());
    }
    for text in remove {
        kept.remove(&label("--remove", text)?);
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_and_go() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let old = parse_tags(&words(&["a=1", "b=2"]));
        let new = changed(old.clone(), &words(&["tags.c=x=y", "tags.a=3"]), &words(&["tags.b"])).expect("labels");
        assert_eq!(new, parse_tags(&words(&["a=3", "c=x=y"])));
        for wrong in ["location=westus", "tags=1", "tags.=1"] {
            assert_eq!(changed(old.clone(), &words(&[wrong]), &[]).map_err(|f| f.exit), Err(2), "{wrong}");
        }
    }
}
