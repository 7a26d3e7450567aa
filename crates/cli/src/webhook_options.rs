//! The webhook of a job or an experiment: options `--webhook`, `--webhook-on` and `--webhook-secret` over those of the project file. URL and key
//! can be credentials, so they may be in variables of the caller's environment. Pure, but for these variables.

use clap::Args;
use corro_model::Secret;
use corro_model::batchai::{Webhook, WebhookEvent};
use corro_model::webhook::WebhookUrl;

use crate::defaults::SubmitOptions;
use crate::error::CliError;

/// Value of `--webhook` for no webhook, though the project file names one.
const OFF: &str = "off";

#[derive(Args, Clone, Debug, Default)]
pub struct WebhookOptions {
    /// URL to which the server posts when a job starts and ends, the name of a variable that holds it, or 'off'
    #[arg(long, value_name = "URL|NAME", help_heading = "Notifications")]
    webhook: Option<String>,
    /// Events to post, separated by commas: started, succeeded, failed, stopped [default: all]
    #[arg(long, value_name = "EVENTS", value_delimiter = ',', value_parser = parse_event, help_heading = "Notifications")]
    webhook_on: Vec<WebhookEvent>,
    /// Sign the posts with the key in this variable
    #[arg(long, value_name = "NAME", help_heading = "Notifications")]
    webhook_secret: Option<String>,
}

fn parse_event(text: &str) -> Result<WebhookEvent, String> {
    let unknown = || format!("'{text}' is not an event: write started, succeeded, failed or stopped");
    WebhookEvent::from_name(text).ok_or_else(unknown)
}

impl WebhookOptions {
    /// Whether the command line says something about the webhook, also that there is none.
    pub fn is_given(&self) -> bool {
        self.webhook.is_some() || !self.webhook_on.is_empty() || self.webhook_secret.is_some()
    }

    /// Combines the command line with the project file.
    pub fn resolve(
        &self,
        project: &SubmitOptions,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Webhook>, CliError> {
        let of_file = |key: &str, problem: String| CliError::new(format!("corro.toml: [submit] {key}: {problem}"));
        let of_option = |option: &str, problem: String| CliError::usage(format!("argument {option}: {problem}"));
        let url = match (&self.webhook, &project.webhook) {
            (Some(text), _) => url(text, &environment).map_err(|problem| of_option("--webhook", problem))?,
            (None, Some(text)) => url(text, &environment).map_err(|problem| of_file("webhook", problem))?,
            (None, None) => None,
        };
        let Some(url) = url else {
            let is_off = self.webhook.is_some();
            let orphan =
                [(!self.webhook_on.is_empty(), "--webhook-on"), (self.webhook_secret.is_some(), "--webhook-secret")];
            return match orphan.iter().find(|(is_given, _)| *is_given && !is_off) {
                Some((_, option)) => Err(of_option(option, "it needs a webhook: give --webhook".to_owned())),
                None => Ok(None),
            };
        };
        let mut events = self.webhook_on.clone();
        if events.is_empty() {
            for text in &project.webhook_on {
                events.push(parse_event(text).map_err(|problem| of_file("webhook_on", problem))?);
            }
        }
        let key =
            |name: &str| environment(name).ok_or_else(|| format!("the variable {name} is not set: set it to the key"));
        let secret = match (&self.webhook_secret, &project.webhook_secret) {
            (Some(name), _) => Some(key(name).map_err(|problem| of_option("--webhook-secret", problem))?),
            (None, Some(name)) => Some(key(name).map_err(|problem| of_file("webhook_secret", problem))?),
            (None, None) => None,
        };
        let events = (!events.is_empty()).then_some(events);
        Ok(Some(Webhook { url: Secret::new(url), events, secret: secret.map(Secret::new) }))
    }
}

/// The URL in `text`, or in the variable that it names; `None` for `off`.
fn url(text: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Option<String>, String> {
    if text == OFF {
        return Ok(None);
    }
    let url = match text.contains("://") {
        true => text.to_owned(),
        false => environment(text)
            .ok_or_else(|| format!("'{text}' is neither a URL nor a variable that is set: write https://HOST/PATH"))?,
    };
    WebhookUrl::parse(&url)?;
    Ok(Some(url))
}

/// The webhook without what must not be printed.
pub fn redacted(webhook: &Webhook) -> Webhook {
    let url = WebhookUrl::parse(webhook.url.expose()).map_or_else(|_| String::new(), |url| url.redacted());
    let secret = webhook.secret.as_ref().map(|_| Secret::new("<SECRET>"));
    Webhook { url: Secret::new(url), events: webhook.events.clone(), secret }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(webhook: Option<&str>, on: &[WebhookEvent], secret: Option<&str>) -> WebhookOptions {
        WebhookOptions {
            webhook: webhook.map(str::to_owned),
            webhook_on: on.to_vec(),
            webhook_secret: secret.map(str::to_owned),
        }
    }

    fn project() -> SubmitOptions {
        SubmitOptions {
            webhook: Some("HOOK".to_owned()),
            webhook_on: vec!["failed".to_owned()],
            webhook_secret: Some("KEY".to_owned()),
            ..SubmitOptions::default()
        }
    }

    fn environment(name: &str) -> Option<String> {
        let variables = [("HOOK", "https://hooks.example/T0/x"), ("KEY", "0123456789"), ("BAD", "canary")];
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn the_command_line_comes_before_the_project_file() {
        use WebhookEvent::*;
        type Shown<'a> = (&'a str, Option<Vec<WebhookEvent>>, Option<&'a str>);
        let check = |given: WebhookOptions, project: SubmitOptions, expected: Option<Shown<'_>>| {
            let made = given.resolve(&project, environment).expect("resolved");
            let shown = made
                .as_ref()
                .map(|made| (made.url.expose(), made.events.clone(), made.secret.as_ref().map(Secret::expose)));
            assert_eq!(shown, expected);
        };
        let none = SubmitOptions::default;
        check(options(None, &[], None), none(), None);
        check(options(Some("http://h:1/x"), &[], None), none(), Some(("http://h:1/x", None, None)));
        let all = Some(("https://hooks.example/T0/x", Some(vec![Failed]), Some("0123456789")));
        check(options(None, &[], None), project(), all);
        check(
            options(Some("https://h"), &[Stopped, Started], None),
            project(),
            Some(("https://h", Some(vec![Stopped, Started]), Some("0123456789"))),
        );
        check(options(Some(OFF), &[], None), project(), None);
    }

    #[test]
    fn mistakes_name_their_source_and_no_value() {
        let check = |given: WebhookOptions, project: SubmitOptions, expected: &str| {
            assert_eq!(given.resolve(&project, environment).expect_err("a mistake").message, expected);
        };
        let none = SubmitOptions::default;
        let text = "argument --webhook: 'HOOKS' is neither a URL nor a variable that is set: write https://HOST/PATH";
        check(options(Some("HOOKS"), &[], None), none(), text);
        check(
            options(Some("BAD"), &[], None),
            none(),
            "argument --webhook: this is not a URL: write https://HOST/PATH",
        );
        let text = "argument --webhook-on: it needs a webhook: give --webhook";
        check(options(None, &[WebhookEvent::Failed], None), none(), text);
        let text = "argument --webhook-secret: the variable X is not set: set it to the key";
        check(options(Some("https://h"), &[], Some("X")), none(), text);
        let wrong = SubmitOptions { webhook_on: vec!["fail".to_owned()], ..project() };
        let text =
            "corro.toml: [submit] webhook_on: 'fail' is not an event: write started, succeeded, failed or stopped";
        check(options(None, &[], None), wrong, text);
    }

    #[test]
    fn a_redacted_webhook_holds_no_credential() {
        let made = options(Some("https://u:canary@h/canary"), &[], Some("KEY"))
            .resolve(&SubmitOptions::default(), environment);
        let shown = serde_json::to_value(redacted(&made.expect("resolved").expect("a webhook"))).expect("plain data");
        assert_eq!(shown, serde_json::json!({"url": "https://h/***", "secret": "<SECRET>"}));
    }
}
