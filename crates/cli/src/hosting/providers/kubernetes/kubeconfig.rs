//! What kubeconfig files say: which cluster is meant, and who asks it. Pure: text in, a [`Way`] out. What would change who is
//! asked or who asks, and is not understood, is refused by its name.

use std::path::{Path, PathBuf};

use corro_model::Secret;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// How a cluster is reached.
#[derive(Debug, PartialEq, Eq)]
pub struct Way {
    pub server: String,
    pub namespace: Option<String>,
    /// Who vouches for the server; `None` leaves it to whom this machine trusts anyway.
    pub authority: Option<Content>,
    /// Certificate and key that prove who asks.
    pub identity: Option<(Content, Content)>,
    pub login: Login,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Here(Vec<u8>),
    In(PathBuf),
}

#[derive(Debug, PartialEq, Eq)]
pub enum Login {
    None,
    Token(Secret),
    /// Somebody writes it anew now and then.
    TokenFile(PathBuf),
    Password(String, Secret),
    Plugin(Plugin),
}

/// A program that gives tokens.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Plugin {
    pub api_version: String,
    pub command: String,
    #[serde(default)]
    pub args: Option<Vec<String>>,
    #[serde(default)]
    pub env: Option<Vec<Variable>>,
    #[serde(default)]
    pub provide_cluster_info: bool,
    #[serde(default)]
    interactive_mode: Option<String>,
    #[serde(default)]
    pub install_hint: Option<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub value: Secret,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Kubeconfig {
    current_context: Option<String>,
    clusters: Option<Vec<Named<Cluster>>>,
    users: Option<Vec<Named<User>>>,
    contexts: Option<Vec<Named<Context>>>,
}

#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(alias = "cluster", alias = "user", alias = "context")]
    it: Option<T>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<ByteString>,
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    token: Option<Secret>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<ByteString>,
    client_key: Option<PathBuf>,
    client_key_data: Option<ByteString>,
    username: Option<String>,
    password: Option<Secret>,
    exec: Option<Plugin>,
    auth_provider: Option<IgnoredAny>,
    #[serde(rename = "as")]
    as_user: Option<IgnoredAny>,
    as_groups: Option<IgnoredAny>,
    as_uid: Option<IgnoredAny>,
    as_user_extra: Option<IgnoredAny>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

impl Kubeconfig {
    /// Paths in it begin at `directory`, where it lies.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, serde_yaml_ng::Error> {
        let mut read = serde_yaml_ng::from_str::<Option<Self>>(text)?.unwrap_or_default();
        let clusters = read.clusters.iter_mut().flatten().filter_map(|named| named.it.as_mut());
        let mut paths: Vec<_> = clusters.filter_map(|cluster| cluster.certificate_authority.as_mut()).collect();
        for user in read.users.iter_mut().flatten().filter_map(|named| named.it.as_mut()) {
            paths.extend(
                [&mut user.token_file, &mut user.client_certificate, &mut user.client_key].into_iter().flatten(),
            );
            // One without a slash is looked for on the search path.
            if let Some(plugin) = user.exec.as_mut().filter(|plugin| plugin.command.contains('/')) {
                plugin.command = directory.join(&plugin.command).display().to_string();
            }
        }
        paths.into_iter().for_each(|path| *path = directory.join(&*path));
        Ok(read)
    }

    /// Of two that say the same thing, the first counts.
    pub fn and(self, later: Self) -> Self {
        fn both<T>(first: Option<Vec<T>>, later: Option<Vec<T>>) -> Option<Vec<T>> {
            Some(first.into_iter().flatten().chain(later.into_iter().flatten()).collect())
        }
        Self {
            current_context: self.current_context.filter(|name| !name.is_empty()).or(later.current_context),
            clusters: both(self.clusters, later.clusters),
            users: both(self.users, later.users),
            contexts: both(self.contexts, later.contexts),
        }
    }

    /// The way of a context, or of the current one.
    pub fn way(&self, context: Option<&str>) -> Result<Way, String> {
        let current = self.current_context.as_deref().filter(|name| !name.is_empty());
        let Some(name) = context.or(current) else { return Err("it names no current context".to_owned()) };
        let context = find("context", &self.contexts, name)?;
        let cluster = find("cluster", &self.clusters, &context.cluster)?;
        let user = match context.user.as_str() {
            "" => User::default(),
            user => find("user", &self.users, user)?,
        };
        let at = |error: String| format!("cluster '{}': {error}", context.cluster);
        cluster.check().map_err(at)?;
        let by = |error: String| format!("user '{}': {error}", context.user);
        Ok(Way {
            server: cluster.server,
            namespace: context.namespace.filter(|namespace| !namespace.is_empty()),
            authority: content(cluster.certificate_authority_data, cluster.certificate_authority),
            identity: user.identity().map_err(by)?,
            login: user.login().map_err(by)?,
        })
    }
}

impl Cluster {
    fn check(&self) -> Result<(), String> {
        if self.server.is_empty() {
            return Err("it names no server".to_owned());
        }
        if self.insecure_skip_tls_verify {
            return Err("insecure-skip-tls-verify is refused, as anybody could take the login; name the server's \
                authority with certificate-authority or certificate-authority-data"
                .to_owned());
        }
        match (&self.tls_server_name, &self.proxy_url) {
            (Some(_), _) => {
                Err("tls-server-name is not understood; reach the server by a name in its certificate".to_owned())
            }
            (_, Some(_)) => Err("proxy-url is not understood; set the variable HTTPS_PROXY instead".to_owned()),
            (None, None) => Ok(()),
        }
    }
}

impl User {
    fn identity(&self) -> Result<Option<(Content, Content)>, String> {
        let certificate = content(self.client_certificate_data.clone(), self.client_certificate.clone());
        match (certificate, content(self.client_key_data.clone(), self.client_key.clone())) {
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (None, None) => Ok(None),
            (Some(_), None) => Err("client-certificate has no client-key".to_owned()),
            (None, Some(_)) => Err("client-key has no client-certificate".to_owned()),
        }
    }

    fn login(self) -> Result<Login, String> {
        let foreign = [
            ("auth-provider", self.auth_provider),
            ("as", self.as_user),
            ("as-groups", self.as_groups),
            ("as-uid", self.as_uid),
            ("as-user-extra", self.as_user_extra),
        ];
        if let Some((field, _)) = foreign.iter().find(|(_, given)| given.is_some()) {
            return Err(format!("{field} is not understood; use a token, a certificate, or a plugin (exec)"));
        }
        if let Some(plugin) = &self.exec
            && plugin.interactive_mode.as_deref() == Some("Always")
        {
            return Err(format!("the plugin {} wants to ask somebody, and nobody is there", plugin.command));
        }
        Ok(match (self.token_file, self.token, self.exec, self.username) {
            (Some(file), ..) => Login::TokenFile(file),
            (_, Some(token), ..) => Login::Token(token),
            (_, _, Some(plugin), _) => Login::Plugin(plugin),
            (.., Some(name)) => Login::Password(name, self.password.unwrap_or_else(|| Secret::new(""))),
            _ => Login::None,
        })
    }
}

fn content(here: Option<ByteString>, file: Option<PathBuf>) -> Option<Content> {
    here.map(|bytes| Content::Here(bytes.0)).or(file.map(Content::In))
}

fn find<T: Clone + Default>(what: &str, all: &Option<Vec<Named<T>>>, name: &str) -> Result<T, String> {
    let all = all.as_deref().unwrap_or_default();
    let found = all.iter().find(|named| named.name == name);
    found.map(|named| named.it.clone().unwrap_or_default()).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|named| named.name.as_str()).collect();
        format!("it has no {what} '{name}' (there are: {})", names.join(", "))
    })
}

#[cfg(test)]
mod tests;
