//! What all resources have in common: they are shown, listed and ended in the same way. A resource says which requests
//! and which table are its own; these functions do the rest. Entered by the files of the resources.

use corro_client::Client;
use corro_model::batchai::Page;
use corro_model::ops::{NoBody, Operation};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::commands::resource_args::{Chosen, EndArgs, Names};
use crate::commands::resource_ref::Target;
use crate::failure::Failure;
use crate::output::{Shape, TableKind};
use crate::progress::Spinner;
use crate::prompt;
use crate::session::Session;
use crate::talk::say;

/// A kind of resource: how it is asked for and how it is printed.
pub trait Resource {
    type Item: Serialize + DeserializeOwned;
    type Get: Operation<Request = NoBody, Response = Self::Item>;
    type List: Operation<Request = NoBody, Response = Page<Self::Item>>;
    const SHAPE: Shape;
    const TABLE: TableKind;

    /// What is lost when it is ended now, as sentences; nothing when that cannot be known.
    async fn losses(_client: &Client, _target: &Target) -> Vec<String> {
        Vec::new()
    }
}

/// How a command ends what it is about.
pub struct Ending {
    /// Beside the spinner.
    pub doing: &'static str,
    /// It will be gone: what it holds now is said before the question.
    pub deletes: bool,
    /// What the user will have lost in any case, said too.
    pub loss: Option<&'static str>,
}

pub async fn show<R: Resource>(session: &Session, chosen: &Chosen<impl Names>) -> Result<(), Failure> {
    let targets = targets::<R>(chosen)?;
    let mut found = Vec::new();
    for target in &targets {
        let item = session.client()?.get::<R::Get>(&target.values()).await;
        found.push(item.map_err(|error| target.failure_of_show(error))?);
    }
    print_each::<R>(session, &found, chosen)
}

pub async fn list<R: Resource>(session: &Session, parent: &Target) -> Result<(), Failure> {
    let items = session.client()?.list::<R::List, _>(&parent.values(), &[]).await;
    session.print(R::SHAPE, Some(R::TABLE), &items.map_err(|error| parent.failure(error))?)
}

/// Deletes or stops; `O` is the request that begins it.
pub async fn end<R: Resource, O>(session: &Session, args: &EndArgs<impl Names>, ending: Ending) -> Result<(), Failure>
where
    O: Operation<Request = NoBody>,
{
    let targets = targets::<R>(&args.chosen)?;
    for target in targets.iter().filter(|_| ending.deletes) {
        R::losses(session.client()?, target).await.iter().for_each(say);
    }
    prompt::confirm_loss(args.yes, ending.loss)?;
    for target in &targets {
        let pending = session.client()?.start::<O>(&target.values(), &NoBody {}).await;
        let pending = pending.map_err(|error| target.failure(error))?;
        if !args.no_wait {
            let _spinner = Spinner::start(ending.doing);
            session.client()?.wait(pending).await?;
        }
    }
    Ok(())
}

/// What was made or changed.
pub fn print<R: Resource>(session: &Session, item: &R::Item) -> Result<(), Failure> {
    session.print(R::SHAPE, Some(R::TABLE), item)
}

/// One object for one resource, a list for several ids.
pub fn print_each<R: Resource>(
    session: &Session,
    found: &[R::Item],
    chosen: &Chosen<impl Names>,
) -> Result<(), Failure> {
    match found {
        [one] if chosen.ids.len() < 2 => print::<R>(session, one),
        several => session.print(R::SHAPE, Some(R::TABLE), &several),
    }
}

pub fn targets<R: Resource>(chosen: &Chosen<impl Names>) -> Result<Vec<Target>, Failure> {
    Target::all::<R::Get>(&chosen.ids, &chosen.named.names())
}

/// A name that is taken: that of `parameter` in the target.
pub fn already_exists(target: &Target, parameter: &str) -> Failure {
    Failure::new(format!(
        "\"{}\" already exists in \"{}\" resource group under \"{}\" workspace.",
        target.name(parameter),
        target.name("group"),
        target.name("workspace")
    ))
}
