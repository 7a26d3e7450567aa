//! Makes the job's image available: inspects it, else pulls it, with the job's credentials if given, and reports
//! progress in the execution log. Never shows a password, even if the engine's message contains it.

use std::collections::BTreeMap;
use std::time::Duration;

use bollard::auth::DockerCredentials;
use bollard::errors::Error;
use bollard::models::{CreateImageInfo, ImageInspect};
use bollard::query_parameters::CreateImageOptions;
use futures_util::StreamExt;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use corro_model::batchai::ImageSourceRegistry;
use corro_model::container::split_image;

use super::engine::Engine;
use super::error::{ContainerError, Reason};
use crate::output::execution_log::ExecutionLog;

/// Interval of progress lines while pulling.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
const NOT_FOUND: u16 = 404;

/// An image on this machine.
#[derive(Debug, PartialEq)]
pub struct Image {
    /// Digest at the registry, else the image id.
    pub digest: String,
    pub variables: BTreeMap<String, String>,
}

/// Inspects the image, pulling it first if it is not present.
pub async fn ensure(
    engine: &Engine,
    registry: &ImageSourceRegistry,
    log: &ExecutionLog,
) -> Result<Image, ContainerError> {
    let name = &registry.image;
    let found = match engine.docker.inspect_image(name).await {
        Err(Error::DockerResponseServerError { status_code: NOT_FOUND, .. }) => {
            pull(engine, registry, log).await.map_err(|error| pull_error(registry, &error))?;
            engine.docker.inspect_image(name).await
        }
        found => found,
    };
    found.map(|found| read(&found)).map_err(|error| pull_error(registry, &error))
}

async fn pull(engine: &Engine, registry: &ImageSourceRegistry, log: &ExecutionLog) -> Result<(), Error> {
    let image = &registry.image;
    let (name, tag) = split_image(image);
    let options = CreateImageOptions {
        from_image: Some(name.to_owned()),
        tag: Some(tag.to_owned()),
        ..CreateImageOptions::default()
    };
    let as_user = match &registry.credentials {
        Some(credentials) => format!(" as {}", credentials.username),
        None => String::new(),
    };
    log.line(format_args!("Pulling image {image}{as_user}"));
    let began = Instant::now();
    let mut report_timer = interval_at(began + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
    report_timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut progress = PullProgress::default();
    let mut updates = engine.docker.create_image(Some(options), None, credentials(registry));
    loop {
        tokio::select! {
            step = updates.next() => match step {
                Some(step) => progress.on(&step?),
                None => break,
            },
            _ = report_timer.tick() => {
                log.line(format_args!("Pulling image {image}: {}, after {} s", progress.summary(), began.elapsed().as_secs()));
            }
        }
    }
    log.line(format_args!("Pulled image {image}: {}, in {:.1} s", progress.summary(), began.elapsed().as_secs_f32()));
    Ok(())
}

fn credentials(registry: &ImageSourceRegistry) -> Option<DockerCredentials> {
    let given = registry.credentials.as_ref()?;
    Some(DockerCredentials {
        username: Some(given.username.clone()),
        password: given.password.as_ref().map(|password| password.expose().to_owned()),
        serveraddress: registry.server_url.clone(),
        ..DockerCredentials::default()
    })
}

fn pull_error(registry: &ImageSourceRegistry, error: &Error) -> ContainerError {
    let mut message = super::error::engine_message(error);
    let password = registry.credentials.as_ref().and_then(|given| given.password.as_ref());
    if let Some(password) = password.map(|password| password.expose()).filter(|password| !password.is_empty()) {
        message = message.replace(password, "***");
    }
    let from = match &registry.server_url {
        Some(server) => format!(" from {server}"),
        None => String::new(),
    };
    let reason = Reason::from_message(&message).unwrap_or(Reason::PullFailed);
    ContainerError { reason, info: format!("Could not pull the image {}{from}: {message}", registry.image) }
}

fn read(found: &ImageInspect) -> Image {
    let variables = found.config.iter().flat_map(|config| config.env.iter().flatten());
    let variables = variables.filter_map(|line| line.split_once('='));
    let digest = found.repo_digests.iter().flatten().find_map(|digest| digest.split_once('@'));
    Image {
        digest: digest.map_or_else(|| found.id.clone().unwrap_or_default(), |(_, digest)| digest.to_owned()),
        variables: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
    }
}

/// Progress of a pull, summed over the layers.
#[derive(Debug, Default)]
struct PullProgress {
    layers: BTreeMap<String, Layer>,
}

#[derive(Debug, Default)]
struct Layer {
    done: bool,
    downloaded: u64,
    size: u64,
}

impl PullProgress {
    fn on(&mut self, update: &CreateImageInfo) {
        let (Some(id), Some(status)) = (&update.id, update.status.as_deref()) else { return };
        // The first message has the tag in place of a layer id; the last ones have none.
        if id.is_empty() || status.starts_with("Pulling from") {
            return;
        }
        let layer = self.layers.entry(id.clone()).or_default();
        let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        let detail = update.progress_detail.as_ref();
        match status {
            "Downloading" => {
                let current = detail.and_then(|detail| number(detail.current)).unwrap_or(layer.downloaded);
                layer.downloaded = current;
                layer.size = detail.and_then(|detail| number(detail.total)).unwrap_or(layer.size).max(current);
            }
            "Verifying Checksum" | "Download complete" | "Extracting" => layer.downloaded = layer.size,
            "Pull complete" | "Already exists" => {
                layer.downloaded = layer.size;
                layer.done = true;
            }
            _ => {}
        }
    }

    fn summary(&self) -> String {
        let done = self.layers.values().filter(|layer| layer.done).count();
        let sum = |of: fn(&Layer) -> u64| self.layers.values().map(of).sum::<u64>() as f64 / 1e6;
        let (downloaded, size) = (sum(|layer| layer.downloaded), sum(|layer| layer.size));
        let layers = if self.layers.len() == 1 { "layer" } else { "layers" };
        format!("{done} of {} {layers}, {downloaded:.1} of {size:.1} MB", self.layers.len())
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::ProgressDetail;
    use corro_model::Secret;
    use corro_model::batchai::RegistryCredentials;

    use super::*;

    #[test]
    fn pull_progress_is_summarized() {
        let mut progress = PullProgress::default();
        let mut on = |id: &str, status: &str, detail: Option<(i64, i64)>| {
            progress.on(&CreateImageInfo {
                id: Some(id.into()),
                status: Some(status.into()),
                progress_detail: detail
                    .map(|(current, total)| ProgressDetail { current: Some(current), total: Some(total) }),
                error_detail: None,
            });
            progress.summary()
        };
        on("1.8.0", "Pulling from tensorflow/tensorflow", None);
        on("a", "Pulling fs layer", None);
        on("b", "Already exists", None);
        assert_eq!(on("a", "Downloading", Some((500_000, 2_000_000))), "1 of 2 layers, 0.5 of 2.0 MB");
        assert_eq!(on("a", "Download complete", None), "1 of 2 layers, 2.0 of 2.0 MB");
        // While extracting, the progress is that of the disk.
        assert_eq!(on("a", "Extracting", Some((1, 2_000_000))), "1 of 2 layers, 2.0 of 2.0 MB");
        assert_eq!(on("a", "Pull complete", None), "2 of 2 layers, 2.0 of 2.0 MB");
        assert_eq!(on("", "Digest: sha256:ff", None), "2 of 2 layers, 2.0 of 2.0 MB");
    }

    #[test]
    fn passwords_are_masked_in_engine_messages() {
        let given = RegistryCredentials {
            username: "me".into(),
            password: Some(Secret::new("canary")),
            password_secret_reference: None,
        };
        let registry = ImageSourceRegistry {
            server_url: Some("demo.azurecr.io".into()),
            image: "demo.azurecr.io/i".into(),
            credentials: Some(given),
        };
        let error = Error::DockerStreamError { error: "unauthorized: me:canary".into() };
        let failed = pull_error(&registry, &error);
        assert_eq!(
            failed.info,
            "Could not pull the image demo.azurecr.io/i from demo.azurecr.io: unauthorized: me:***"
        );
        assert_eq!(failed.reason, Reason::PullFailed);
        let sent = credentials(&registry).expect("some");
        assert_eq!(
            (sent.password.as_deref(), sent.serveraddress.as_deref()),
            (Some("canary"), Some("demo.azurecr.io"))
        );
    }
}
