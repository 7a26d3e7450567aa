//! `show`, `list`, `delete` and `terminate` for any kind of resource. An implementation of [`Resource`] names the API operations and the table of its
//! kind.

use corro_client::Client;
use corro_model::batchai::Page;
use corro_model::ops::{NoBody, Operation};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::CliError;
use crate::output::{Shape, TableKind};
use crate::progress::Spinner;
use crate::prompt;
use crate::resource::args::{EndArgs, ResourceNames, ResourceSelection};
use crate::resource::resource_ref::ResourceRef;
use crate::session::Session;
use crate::stdio::note;

/// A kind of resource: its API operations and its output.
pub trait Resource {
    type Item: Serialize + DeserializeOwned;
    type Get: Operation<Request = NoBody, Response = Self::Item>;
    type List: Operation<Request = NoBody, Response = Page<Self::Item>>;
    const SHAPE: Shape;
    const TABLE: TableKind;

    /// Sentences that say what deleting the resource destroys. Empty if that cannot be found out.
    async fn deletion_warnings(_client: &Client, _target: &ResourceRef) -> Vec<String> {
        Vec::new()
    }
}

/// How a command deletes or terminates resources.
#[derive(Clone, Copy, Debug)]
pub struct EndOptions {
    /// The user has confirmed it with an option.
    pub is_confirmed: bool,
    /// Return without waiting for the end of the operation.
    pub no_wait: bool,
}

/// Texts of a command that deletes or terminates a resource.
pub struct EndAction {
    /// Text of the spinner.
    pub progress_text: &'static str,
    /// Whether the resource is deleted; then its [`Resource::deletion_warnings`] are printed before the confirmation.
    pub is_deletion: bool,
    /// Warning before the confirmation, about the resources that are named.
    pub warning: Option<fn(&[ResourceRef]) -> String>,
}

pub async fn show<R: Resource>(
    session: &Session,
    selection: &ResourceSelection<impl ResourceNames>,
) -> Result<(), CliError> {
    let targets = targets::<R>(selection)?;
    let mut found = Vec::new();
    for target in &targets {
        let item = session.client()?.get::<R::Get>(&target.values()).await;
        found.push(item.map_err(|error| target.show_error(error))?);
    }
    print_each::<R>(session, &found, selection)
}

pub async fn list<R: Resource>(session: &Session, parent: &ResourceRef) -> Result<(), CliError> {
    let items = session.client()?.list::<R::List, _>(&parent.values(), &[]).await;
    session.print(R::SHAPE, Some(R::TABLE), &items.map_err(|error| parent.request_error(error))?)
}

/// Deletes or terminates resources, after confirmation. `O` is the operation that starts it.
pub async fn end<R: Resource, O>(
    session: &Session,
    args: &EndArgs<impl ResourceNames>,
    action: EndAction,
) -> Result<(), CliError>
where
    O: Operation<Request = NoBody>,
{
    let options = EndOptions { is_confirmed: args.yes, no_wait: args.no_wait };
    end_targets::<R, O>(session, &targets::<R>(&args.selection)?, action, options).await
}

/// The same for resources that are known.
pub async fn end_targets<R: Resource, O>(
    session: &Session,
    targets: &[ResourceRef],
    action: EndAction,
    options: EndOptions,
) -> Result<(), CliError>
where
    O: Operation<Request = NoBody>,
{
    for target in targets.iter().filter(|_| action.is_deletion) {
        R::deletion_warnings(session.client()?, target).await.iter().for_each(note);
    }
    let warning = action.warning.map(|warning| warning(targets));
    prompt::confirm(options.is_confirmed, warning.as_deref())?;
    for target in targets {
        let pending = session.client()?.start::<O>(&target.values(), &NoBody {}).await;
        let pending = pending.map_err(|error| target.request_error(error))?;
        if !options.no_wait {
            let _spinner = Spinner::start(action.progress_text);
            session.client()?.wait(pending).await?;
        }
    }
    Ok(())
}

/// Prints one resource.
pub fn print<R: Resource>(session: &Session, item: &R::Item) -> Result<(), CliError> {
    session.print(R::SHAPE, Some(R::TABLE), item)
}

/// Prints one object for one resource, and a list for several ids.
pub fn print_each<R: Resource>(
    session: &Session,
    found: &[R::Item],
    selection: &ResourceSelection<impl ResourceNames>,
) -> Result<(), CliError> {
    match found {
        [one] if selection.ids.len() < 2 => print::<R>(session, one),
        several => session.print(R::SHAPE, Some(R::TABLE), &several),
    }
}

pub fn targets<R: Resource>(selection: &ResourceSelection<impl ResourceNames>) -> Result<Vec<ResourceRef>, CliError> {
    ResourceRef::from_ids_or_names::<R::Get>(&selection.ids, &selection.named.names())
}

/// Error for a name that is in use: that of `parameter` in `target`.
pub fn already_exists(target: &ResourceRef, parameter: &str) -> CliError {
    CliError::new(format!(
        "\"{}\" already exists in \"{}\" resource group under \"{}\" workspace.",
        target.name(parameter),
        target.name("group"),
        target.name("workspace")
    ))
}
