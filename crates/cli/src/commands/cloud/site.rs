//! What `az` must be told about a server: the cloud's endpoints, the name that storage accounts lie below, the address
//! behind it. Pure, made from a profile and a list of accounts; `script` prints it, `setup` writes it.

use std::net::IpAddr;

use corro_client::Profile;

use crate::failure::Failure;

pub struct Site {
    /// What `az` calls the server.
    pub cloud: String,
    /// The name in every URL that `az` uses.
    pub host: String,
    pub port: u16,
    pub tenant: String,
    /// Who vouches for the server (PEM); none when this machine trusts it anyway.
    pub authority: Option<String>,
    /// Where the server is, when the profile says it as an address.
    pub address: Option<IpAddr>,
    /// The name was chosen for `az`, so the machine need not know it yet.
    pub is_chosen: bool,
    pub accounts: Vec<Account>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub group: String,
}

impl Site {
    /// `host` is a name of the user's choice. Refuses a server that `az` cannot log in to.
    pub fn new(cloud: &str, profile: &Profile, host: Option<&str>) -> Result<Site, Failure> {
        let server = &profile.server;
        let Some(place) = server.strip_prefix("https://") else {
            return Err(plain(server));
        };
        let (name, port) = match place.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?))) {
            Some((name, port)) => (name, port),
            None => (place, 443),
        };
        let address: Option<IpAddr> = name.trim_matches(['[', ']']).parse().ok();
        let own = match address {
            // Nothing can lie below an address, and every certificate of ours names localhost.
            Some(address) if address.is_loopback() => "localhost",
            _ => name,
        };
        Ok(Site {
            cloud: cloud.to_owned(),
            host: host.unwrap_or(own).to_ascii_lowercase(),
            port,
            tenant: profile.tenant.clone(),
            authority: profile.certificate_authority.clone(),
            address,
            is_chosen: host.is_some_and(|host| host != name && host != "localhost"),
            accounts: Vec::new(),
        })
    }

    pub fn url(&self) -> String {
        format!("https://{}:{}", self.host, self.port)
    }

    /// The options of the cloud in `clouds.config`; with `-` and `--` they are those of `az cloud register`.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        let url = self.url();
        let suffix = format!("{}:{}", self.host, self.port);
        // With any other end `az` first asks the public cloud whether the authority is real.
        let authority = format!("{url}/adfs");
        let mut options = vec![
            ("endpoint_resource_manager", url.clone()),
            ("endpoint_management", url.clone()),
            ("endpoint_active_directory", authority),
            ("endpoint_active_directory_resource_id", url.clone()),
        ];
        // Never used for what the server has. Left out, `az` would ask the server for them, or go to the public cloud.
        for name in ["endpoint_active_directory_graph_resource_id", "endpoint_gallery", "endpoint_sql_management"] {
            options.push((name, url.clone()));
        }
        options.push(("endpoint_vm_image_alias_doc", url));
        options.push(("suffix_storage_endpoint", suffix));
        options
    }

    /// Can accounts have names below the host? Not below an address.
    pub fn has_names(&self) -> bool {
        self.host.trim_matches(['[', ']']).parse::<IpAddr>().is_err()
    }

    /// The names that must lead to the server, a line's worth for each account.
    pub fn names(&self) -> Vec<Vec<String>> {
        let host = &self.host;
        let of =
            |account: &Account| vec![format!("{}.file.{host}", account.name), format!("{}.blob.{host}", account.name)];
        let itself = self.is_chosen.then(|| vec![host.clone()]);
        itself.into_iter().chain(self.accounts.iter().map(of)).collect()
    }
}

fn plain(server: &str) -> Failure {
    Failure::new(format!("{server} speaks plain http, and az logs in over https only")).hint(
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
        }
    }

    #[test]
    fn the_name_in_urls_is_one_that_accounts_can_lie_below() {
        let check = |server: &str, host: Option<&str>, url: &str, has_names: bool, is_chosen: bool| {
            let site = Site::new("corro", &profile(server), host).expect("https");
            assert_eq!(
                (site.url().as_str(), site.has_names(), site.is_chosen),
                (url, has_names, is_chosen),
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
    fn a_server_without_tls_is_refused_with_the_way_out() {
        let failure = Site::new("corro", &profile("http://127.0.0.1:8470"), None).err().expect("refused");
        assert!(failure.message.contains("https only"), "{failure}");
        assert!(failure.hint.is_some_and(|hint| hint.contains("'corro up --tls'")));
    }

    #[test]
    fn accounts_have_two_names_each() {
        let mut site = Site::new("corro", &profile("https://10.1.2.3:1"), Some("box")).expect("https");
        site.accounts = vec![Account { name: "acc".to_owned(), group: "g".to_owned() }];
        assert_eq!(site.names(), [vec!["box".to_owned()], vec!["acc.file.box".to_owned(), "acc.blob.box".to_owned()]]);
    }
}
