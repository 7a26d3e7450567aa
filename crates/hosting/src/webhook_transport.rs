//! The server's HTTP client for webhooks, and the options that say where they may go. The server must not depend on an HTTP
//! client, so it is supplied here.

use std::net::{IpAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;

use corro_client::webhook_http::{WebhookClient, WebhookFailure};
use corro_model::webhook::{AddressRange, AddressRules};
use corro_server::webhooks::{PostResult, WebhookPost, WebhookTransport};

/// Options of webhooks.
#[derive(clap::Args, Debug, Clone)]
pub struct WebhookArgs {
    /// Range of addresses to which webhooks of jobs may be sent although they are not public, such as 10.1.0.0/16 or
    /// 127.0.0.1. Can be repeated
    #[arg(long, value_name = "CIDR")]
    webhook_allow: Vec<AddressRange>,
    /// Send no webhooks, and refuse jobs that name one
    #[arg(long, conflicts_with = "webhook_allow")]
    no_webhooks: bool,
}

impl WebhookArgs {
    /// What the server gets; `None` if webhooks are turned off.
    pub(crate) fn config(&self) -> Option<(AddressRules, Arc<dyn WebhookTransport>)> {
        if self.no_webhooks {
            return None;
        }
        let rules = AddressRules { allowed: self.webhook_allow.clone() };
        let transport = HttpTransport { client: WebhookClient::with_system_trust(), rules: rules.clone() };
        Some((rules, Arc::new(transport)))
    }
}

struct HttpTransport {
    client: WebhookClient,
    rules: AddressRules,
}

impl HttpTransport {
    /// An address of this machine is refused even if it is public: other services of the machine may listen there.
    fn is_allowed(&self, ip: IpAddr) -> bool {
        self.rules.is_explicitly_allowed(ip) || self.rules.check(ip).is_ok() && !is_own_address(ip)
    }
}

impl WebhookTransport for HttpTransport {
    fn post<'a>(&'a self, post: &'a WebhookPost) -> Pin<Box<dyn Future<Output = PostResult> + Send + 'a>> {
        Box::pin(async move {
            let headers: Vec<(&str, &str)> = post.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let is_allowed = |ip| self.is_allowed(ip);
            match self.client.post(post.url.expose(), &headers, post.body.clone(), is_allowed).await {
                Ok(()) => PostResult::Accepted,
                Err(failure @ WebhookFailure::NotAllowed(address)) => {
                    // Users learn that it is refused, but not what the name resolves to in the operator's network.
                    tracing::warn!(%address, "a webhook names a host whose address is not allowed (--webhook-allow)");
                    PostResult::Refused(format!(
                        "{failure}, unless the operator starts the server with --webhook-allow"
                    ))
                }
                Err(failure) => PostResult::Failed(failure.to_string()),
            }
        })
    }
}

/// Whether an interface of this machine has the address: only then can a socket be bound to it.
fn is_own_address(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_not_public() {
        let own = |ip: &str| is_own_address(ip.parse().expect("an address"));
        assert!(own("127.0.0.1"));
        assert!(!own("1.1.1.1"));
        let transport = |allowed: &[&str]| {
            let allowed = allowed.iter().map(|range| range.parse().expect("a range")).collect();
            HttpTransport { client: WebhookClient::with_system_trust(), rules: AddressRules { allowed } }
        };
        let allows = |allowed: &[&str], ip: &str| transport(allowed).is_allowed(ip.parse().expect("an address"));
        assert!(!allows(&[], "127.0.0.1") && allows(&["127.0.0.0/8"], "127.0.0.1"));
        assert!(allows(&[], "1.1.1.1") && !allows(&[], "10.0.0.1"));
    }
}
