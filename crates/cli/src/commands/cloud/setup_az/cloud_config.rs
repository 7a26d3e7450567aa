//! The az cloud of a server: endpoints, host name of the storage accounts, and the address behind it. Pure; made from a profile and a list of
//! accounts.

use std::net::IpAddr;

use corro_client::Profile;

use crate::error::CliError;

pub struct CloudConfig {
    /// Name of the cloud in az.
    pub cloud: String,
    /// Host name in all URLs.
    pub host: String,
    pub port: u16,
    pub tenant: String,
    /// Certificate authority of the server (PEM); `None` if this machine trusts it already.
    pub authority: Option<String>,
    /// IP address of the server, if the profile has one instead of a name.
    pub address: Option<IpAddr>,
    /// Whether `--host` gave a new name, which may not resolve yet.
    pub has_new_host: bool,
    pub accounts: Vec<Account>,
}

/// A storage account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub group: String,
}

impl CloudConfig {
    /// `host` is the value of `--host`. Fails for a server without TLS, to which `az` cannot log in.
    pub fn new(cloud: &str, profile: &Profile, host: Option<&str>) -> Result<CloudConfig, CliError> {
        let server = &profile.server;
        let Some(endpoint) = server.strip_prefix("https://") else {
            return Err(no_tls_error(server));
        };
        let (name, port) = match endpoint.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?))) {
            Some((name, port)) => (name, port),
            None => (endpoint, 443),
        };
        let address: Option<IpAddr> = name.trim_matches(['[', ']']).parse().ok();
        let default_host = match address {
            // An address has no subdomains, and every certificate of the server contains localhost.
            Some(address) if address.is_loopback() => "localhost",
            _ => name,
        };
        Ok(CloudConfig {
            cloud: cloud.to_owned(),
            host: host.unwrap_or(default_host).to_ascii_lowercase(),
            port,
            tenant: profile.tenant.clone(),
            authority: profile.certificate_authority.clone(),
            address,
            has_new_host: host.is_some_and(|host| host != name && host != "localhost"),
            accounts: Vec::new(),
        })
    }

    pub fn url(&self) -> String {
        format!("https://{}:{}", self.host, self.port)
    }

    /// Options of the cloud in `clouds.config`. With `-` for `_` they are the options of `az cloud register`.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        let url = self.url();
        let suffix = format!("{}:{}", self.host, self.port);
        // With any other path az validates the authority with the public cloud first (instance discovery).
        let authority = format!("{url}/adfs");
        let mut options = vec![
            ("endpoint_resource_manager", url.clone()),
            ("endpoint_management", url.clone()),
            ("endpoint_active_directory", authority),
            ("endpoint_active_directory_resource_id", url.clone()),
        ];
        // Not used for what the server offers. Without them az would ask the server, or use the public cloud.
        for name in ["endpoint_active_directory_graph_resource_id", "endpoint_gallery", "endpoint_sql_management"] {
            options.push((name, url.clone()));
        }
        options.push(("endpoint_vm_image_alias_doc", url));
        options.push(("suffix_storage_endpoint", suffix));
        options
    }

    /// Whether the host can have subdomains for accounts; an IP address cannot.
    pub fn has_subdomains(&self) -> bool {
        self.host.trim_matches(['[', ']']).parse::<IpAddr>().is_err()
    }

    /// Host names that must resolve to the server, grouped by account.
    pub fn names(&self) -> Vec<Vec<String>> {
        let host = &self.host;
        let account_names =
            |account: &Account| vec![format!("{}.file.{host}", account.name), format!("{}.blob.{host}", account.name)];
        let host_itself = self.has_new_host.then(|| vec![host.clone()]);
        host_itself.into_iter().chain(self.accounts.iter().map(account_names)).collect()
    }
}

fn no_tls_error(server: &str) -> CliError {
    CliError::new(format!("{server} serves plain http, and az logs in over https only")).hint(
        "stop the server and start it with 'corro up --tls' (jobs and files stay). Without TLS, 'az storage' works with a \
         connection string: 'corro storage account show-connection-string -g GROUP -n ACCOUNT'",
    )
}

#[cfg(test)]
pub mod tests {
    use corro_model::Secret;

    use super::*;

    pub fn profile(server: &str) -> Profile {
        Profile {
            server: server.to_owned(),
            subscription: "s".to_owned(),
            tenant: "t".to_owned(),
            client_id: "c".to_owned(),
            client_secret: Secret::new("hush"),
            certificate_authority: Some("-----BEGIN CERTIFICATE-----".to_owned()),
            data_directory: None,
        }
    }

    #[test]
    fn the_host_has_subdomains_where_possible() {
        let check = |server: &str, host: Option<&str>, url: &str, has_subdomains: bool, has_new_host: bool| {
            let config = CloudConfig::new("corro", &profile(server), host).expect("https");
            assert_eq!(
                (config.url().as_str(), config.has_subdomains(), config.has_new_host),
                (url, has_subdomains, has_new_host),
                "{server}"
            );
        };
        check("https://127.0.0.1:8470", None, "https://localhost:8470", true, false);
        check("https://[::1]:8470", None, "https://localhost:8470", true, false);
        check("https://gpu-box:8470", None, "https://gpu-box:8470", true, false);
        check("https://gpu-box", Some("gpu-box"), "https://gpu-box:443", true, false);
        check("https://10.1.2.3:1", None, "https://10.1.2.3:1", false, false);
        check("https://10.1.2.3:1", Some("GPU-box"), "https://gpu-box:1", true, true);
    }

    #[test]
    fn a_server_without_tls_is_rejected_with_a_hint() {
        let error = CloudConfig::new("corro", &profile("http://127.0.0.1:8470"), None).err().expect("refused");
        assert!(error.message.contains("https only"), "{error}");
        assert!(error.hint.is_some_and(|hint| hint.contains("'corro up --tls'")));
    }

    #[test]
    fn accounts_have_two_names_each() {
        let mut config = CloudConfig::new("corro", &profile("https://10.1.2.3:1"), Some("box")).expect("https");
        config.accounts = vec![Account { name: "acc".to_owned(), group: "g".to_owned() }];
        assert_eq!(
            config.names(),
            [vec!["box".to_owned()], vec!["acc.file.box".to_owned(), "acc.blob.box".to_owned()]]
        );
    }
}
