//! Parser of kubeconfig files. Pure: text in, a [`ClusterConfig`] out. A field that changes the server or the user and is not supported is
//! rejected by name.

use std::path::{Path, PathBuf};

use corro_model::Secret;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Address of a cluster and how to authenticate to it.
#[derive(Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    pub server: String,
    pub namespace: Option<String>,
    /// Certificate authority of the server; `None` for the system's root certificates.
    pub ca: Option<FileOrData>,
    /// Client certificate and its key.
    pub client_cert: Option<(FileOrData, FileOrData)>,
    pub auth: AuthMethod,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOrData {
    Data(Vec<u8>),
    File(PathBuf),
}

#[derive(Debug, PartialEq, Eq)]
pub enum AuthMethod {
    None,
    Token(Secret),
    /// A file that is rotated, so it is read for each request.
    TokenFile(PathBuf),
    Password(String, Secret),
    ExecPlugin(ExecPlugin),
}

/// An exec credential plugin (`client.authentication.k8s.io`).
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ExecPlugin {
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
    clusters: Option<Vec<NamedEntry<Cluster>>>,
    users: Option<Vec<NamedEntry<User>>>,
    contexts: Option<Vec<NamedEntry<Context>>>,
}

#[derive(Deserialize)]
struct NamedEntry<T> {
    name: String,
    #[serde(alias = "cluster", alias = "user", alias = "context")]
    value: Option<T>,
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
    exec: Option<ExecPlugin>,
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
    /// `directory` is that of the file; relative paths in it are resolved against it.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, serde_yaml_ng::Error> {
        let mut read = serde_yaml_ng::from_str::<Option<Self>>(text)?.unwrap_or_default();
        let clusters = read.clusters.iter_mut().flatten().filter_map(|named| named.value.as_mut());
        let mut paths: Vec<_> = clusters.filter_map(|cluster| cluster.certificate_authority.as_mut()).collect();
        for user in read.users.iter_mut().flatten().filter_map(|named| named.value.as_mut()) {
            paths.extend(
                [&mut user.token_file, &mut user.client_certificate, &mut user.client_key].into_iter().flatten(),
            );
            // A name without a slash is looked up in PATH.
            if let Some(plugin) = user.exec.as_mut().filter(|plugin| plugin.command.contains('/')) {
                plugin.command = directory.join(&plugin.command).display().to_string();
            }
        }
        paths.into_iter().for_each(|path| *path = directory.join(&*path));
        Ok(read)
    }

    /// Merges two files. On conflict the first wins, as in kubectl.
    pub fn merge(self, later: Self) -> Self {
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

    /// The configuration of `context`, or of the current one.
    pub fn cluster_config(&self, context: Option<&str>) -> Result<ClusterConfig, String> {
        let current = self.current_context.as_deref().filter(|name| !name.is_empty());
        let Some(name) = context.or(current) else { return Err("it has no current context".to_owned()) };
        let context = find("context", &self.contexts, name)?;
        let cluster = find("cluster", &self.clusters, &context.cluster)?;
        let user = match context.user.as_str() {
            "" => User::default(),
            user => find("user", &self.users, user)?,
        };
        let in_cluster = |error: String| format!("cluster '{}': {error}", context.cluster);
        cluster.validate().map_err(in_cluster)?;
        let in_user = |error: String| format!("user '{}': {error}", context.user);
        Ok(ClusterConfig {
            server: cluster.server,
            namespace: context.namespace.filter(|namespace| !namespace.is_empty()),
            ca: file_or_data(cluster.certificate_authority_data, cluster.certificate_authority),
            client_cert: user.client_cert().map_err(in_user)?,
            auth: user.auth_method().map_err(in_user)?,
        })
    }
}

impl Cluster {
    fn validate(&self) -> Result<(), String> {
        if self.server.is_empty() {
            return Err("it has no server".to_owned());
        }
        if self.insecure_skip_tls_verify {
            return Err("insecure-skip-tls-verify is refused, as a man in the middle could take the login; name the \
                server's authority with certificate-authority or certificate-authority-data"
                .to_owned());
        }
        match (&self.tls_server_name, &self.proxy_url) {
            (Some(_), _) => {
                Err("tls-server-name is not supported; reach the server by a name in its certificate".to_owned())
            }
            (_, Some(_)) => Err("proxy-url is not supported; set the variable HTTPS_PROXY instead".to_owned()),
            (None, None) => Ok(()),
        }
    }
}

impl User {
    fn client_cert(&self) -> Result<Option<(FileOrData, FileOrData)>, String> {
        let certificate = file_or_data(self.client_certificate_data.clone(), self.client_certificate.clone());
        match (certificate, file_or_data(self.client_key_data.clone(), self.client_key.clone())) {
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (None, None) => Ok(None),
            (Some(_), None) => Err("client-certificate has no client-key".to_owned()),
            (None, Some(_)) => Err("client-key has no client-certificate".to_owned()),
        }
    }

    fn auth_method(self) -> Result<AuthMethod, String> {
        let unsupported = [
            ("auth-provider", self.auth_provider),
            ("as", self.as_user),
            ("as-groups", self.as_groups),
            ("as-uid", self.as_uid),
            ("as-user-extra", self.as_user_extra),
        ];
        if let Some((field, _)) = unsupported.iter().find(|(_, given)| given.is_some()) {
            return Err(format!("{field} is not supported; use a token, a certificate, or a plugin (exec)"));
        }
        if let Some(plugin) = &self.exec
            && plugin.interactive_mode.as_deref() == Some("Always")
        {
            return Err(format!(
                "the plugin {} needs a terminal (interactiveMode: Always), and a server has none",
                plugin.command
            ));
        }
        Ok(match (self.token_file, self.token, self.exec, self.username) {
            (Some(file), ..) => AuthMethod::TokenFile(file),
            (_, Some(token), ..) => AuthMethod::Token(token),
            (_, _, Some(plugin), _) => AuthMethod::ExecPlugin(plugin),
            (.., Some(name)) => AuthMethod::Password(name, self.password.unwrap_or_else(|| Secret::new(""))),
            _ => AuthMethod::None,
        })
    }
}

fn file_or_data(data: Option<ByteString>, file: Option<PathBuf>) -> Option<FileOrData> {
    data.map(|bytes| FileOrData::Data(bytes.0)).or(file.map(FileOrData::File))
}

/// The entry `name` of a list; an error lists the names that exist.
fn find<T: Clone + Default>(what: &str, all: &Option<Vec<NamedEntry<T>>>, name: &str) -> Result<T, String> {
    let all = all.as_deref().unwrap_or_default();
    let found = all.iter().find(|named| named.name == name);
    found.map(|named| named.value.clone().unwrap_or_default()).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|named| named.name.as_str()).collect();
        format!("it has no {what} '{name}' (there are: {})", names.join(", "))
    })
}

#[cfg(test)]
mod tests;
