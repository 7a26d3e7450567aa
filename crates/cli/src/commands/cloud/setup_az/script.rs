//! Texts and commands for the user: the steps of `--write` as commands to type, and those that remain afterwards. Pure. Contains no secret, and no
//! printed command has one in its arguments.

use std::net::IpAddr;
use std::path::Path;

use clap::ValueEnum;

use super::cloud_config::CloudConfig;
use super::hosts_file;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Fish,
    Powershell,
}

impl Shell {
    pub const ALL: [Shell; 3] = [Shell::Bash, Shell::Fish, Shell::Powershell];

    /// Name of the file with the variables.
    pub fn file_name(self) -> &'static str {
        match self {
            Shell::Bash => "corro-az.sh",
            Shell::Fish => "corro-az.fish",
            Shell::Powershell => "corro-az.ps1",
        }
    }

    /// The command that sources a file.
    pub fn source_command(self, file: &Path) -> String {
        let file = self.quote(&file.display().to_string());
        match self {
            Shell::Bash | Shell::Fish => format!("source {file}"),
            Shell::Powershell => format!(". {file}"),
        }
    }

    /// Content of the file with the variables.
    pub fn environment_file(self, config: &CloudConfig, bundle: Option<&Path>) -> String {
        let mut text = format!(
            "# Lets az reach the Corro server at {}. Written by 'corro cloud setup-az --write'; to be sourced.\n",
            config.url()
        );
        if let Some(bundle) = bundle {
            text += &format!("{}\n", self.export("REQUESTS_CA_BUNDLE", &self.quote(&bundle.display().to_string())));
        }
        text + &format!("# Use no proxy for the server.\n{}\n", self.append_no_proxy(&config.host))
    }

    fn export(self, name: &str, value: &str) -> String {
        match self {
            Shell::Bash => format!("export {name}={value}"),
            Shell::Fish => format!("set -gx {name} {value}"),
            Shell::Powershell => format!("$env:{name} = {value}"),
        }
    }

    /// Appends the host to `no_proxy`, which takes precedence over `NO_PROXY`.
    fn append_no_proxy(self, host: &str) -> String {
        match self {
            Shell::Bash => format!("export no_proxy=\"${{no_proxy:-${{NO_PROXY:-}}}},{host}\""),
            Shell::Fish => format!("set -q no_proxy; or set no_proxy $NO_PROXY\nset -gx no_proxy \"$no_proxy,{host}\""),
            Shell::Powershell => format!("$env:no_proxy = \"$env:no_proxy,{host}\""),
        }
    }

    fn quote(self, text: &str) -> String {
        let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-~:".contains(c));
        match self {
            _ if is_plain && self != Shell::Powershell => text.to_owned(),
            Shell::Bash => format!("'{}'", text.replace('\'', "'\\''")),
            Shell::Fish => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
            Shell::Powershell => format!("'{}'", text.replace('\'', "''")),
        }
    }

    fn line_continuation(self) -> &'static str {
        if self == Shell::Powershell { " `" } else { " \\" }
    }
}

/// How host names of storage accounts resolve on this machine.
pub enum AccountNames {
    /// They resolve already.
    Resolvable,
    /// They need this block in the hosts file.
    HostsLines { address: IpAddr, block: String },
    /// The server has an IP address only, which has no subdomains.
    Impossible,
}

/// All steps as commands.
pub fn steps(config: &CloudConfig, names: &AccountNames, shell: Shell, bundle: &Path) -> String {
    let mut text = format!(
        "How to let az reach the Corro server at {}. 'corro cloud setup-az --write' does steps 1 to 3.\n",
        config.url()
    );
    text += "\n1. The CA bundle: this server's certificate authority and those that this machine trusts. In every shell that runs az:\n\n";
    if config.authority.is_some() {
        let file = shell.quote(&bundle.display().to_string());
        text += &format!("  corro cloud setup-az --bundle > {file}\n  {}\n", shell.export("REQUESTS_CA_BUNDLE", &file));
    } else {
        text += "  nothing to do: this machine trusts the server's certificate\n";
    }
    text += "\n2. The cloud, which is then the active one:\n\n";
    let flags = config.options().into_iter().map(|(option, value)| format!("--{} {value}", option.replace('_', "-")));
    let flags: Vec<String> = flags.collect();
    let continuation = shell.line_continuation();
    text += &format!(
        "  az cloud register --name {}{continuation}\n      {}\n",
        config.cloud,
        flags.join(&format!("{continuation}\n      "))
    );
    text += &format!("  az cloud set --name {}\n", config.cloud);
    text += &format!(
        "\n3. Names of storage accounts, for the 'az storage' commands that work on files.\n{}",
        names_step(config, names, shell)
    );
    text += &format!("\n4. A login. {}", login(config, shell));
    text +=
        &format!("\nTo undo: az logout, az cloud set --name AzureCloud, az cloud unregister --name {}\n", config.cloud);
    text
}

fn names_step(config: &CloudConfig, names: &AccountNames, shell: Shell) -> String {
    let host = &config.host;
    match names {
        AccountNames::Resolvable => "\n  nothing to do: they resolve on this machine\n".to_owned(),
        AccountNames::Impossible => format!(
            "The address {host} has no subdomains. Start the server with --name NAME and use --host NAME here, or use\nconnection strings:\n\n{}",
            connection_strings(config, shell)
        ),
        AccountNames::HostsLines { address, .. } if config.names().is_empty() => format!(
            "There is no storage account yet: repeat this step when there is one, or add records *.file.{host} and\n*.blob.{host} for {address} to your DNS.\n"
        ),
        AccountNames::HostsLines { address, block } => {
            let lines: String = block.lines().map(|line| format!("  {line}\n")).collect();
            format!(
                "Add these lines to /etc/hosts (again after new accounts), or records *.file.{host} and *.blob.{host}\nfor {address} to your DNS:\n\n{lines}\nOr, without administrator rights, use a connection string for each account:\n\n{}",
                connection_strings(config, shell)
            )
        }
    }
}

/// One command per account. The key is in no command line.
pub fn connection_strings(config: &CloudConfig, shell: Shell) -> String {
    let export_command = |group: &str, name: &str| {
        let command = format!(
            "corro storage account show-connection-string -g {group} -n {name} --query connectionString -o tsv"
        );
        let value = match shell {
            Shell::Bash => format!("\"$({command})\""),
            Shell::Fish | Shell::Powershell => format!("({command})"),
        };
        format!("  {}\n", shell.export("AZURE_STORAGE_CONNECTION_STRING", &value))
    };
    match config.accounts.as_slice() {
        [] => export_command("GROUP", "ACCOUNT"),
        accounts => accounts.iter().map(|account| export_command(&account.group, &account.name)).collect(),
    }
}

/// Commands for the login. The password is passed in a file, so that it appears in no process list.
pub fn login(config: &CloudConfig, shell: Shell) -> String {
    let tenant = &config.tenant;
    let create_command = match shell {
        Shell::Bash => "(umask 077; corro ad sp create-for-rbac -n az --query password -o tsv > az-password)",
        // fish has no subshells, so the umask would stay.
        Shell::Fish => "sh -c 'umask 077; corro ad sp create-for-rbac -n az --query password -o tsv > az-password'",
        Shell::Powershell => "corro ad sp create-for-rbac -n az --query password -o tsv > az-password",
    };
    let app = match shell {
        Shell::Bash => "\"$(corro ad sp show --id az --query appId -o tsv)\"",
        Shell::Fish | Shell::Powershell => "(corro ad sp show --id az --query appId -o tsv)",
    };
    let password_arg = if shell == Shell::Powershell { "'@az-password'" } else { "@az-password" };
    format!(
        "Make a service principal once, then log in as it; az keeps the login, so the file may go:\n\n  {create_command}\n  az login --service-principal --tenant {tenant} -p {password_arg} -u {app}\n  rm az-password\n"
    )
}

/// Commands that write the hosts file with sudo.
pub fn hosts_file_commands(file: &Path, block: &str) -> String {
    let file = file.display();
    format!("  {} {file}\n  sudo tee -a {file} <<'END'\n{block}END\n", hosts_file::REMOVE_COMMAND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::cloud::setup_az::cloud_config::Account;
    use crate::commands::cloud::setup_az::cloud_config::tests::profile;

    fn cloud_config() -> CloudConfig {
        let mut config = CloudConfig::new("corro", &profile("https://127.0.0.1:8470"), None).expect("https");
        config.accounts = vec![Account { name: "acc".to_owned(), group: "g".to_owned() }];
        config
    }

    #[test]
    fn all_steps_are_printed_without_secrets() {
        let address = "127.0.0.1".parse().expect("an address");
        let block = hosts_file::block(address, &cloud_config().names());
        let names = AccountNames::HostsLines { address, block };
        for shell in Shell::ALL {
            let text = steps(&cloud_config(), &names, shell, Path::new("/tmp/my bundle.pem"));
            for part in [
                "--endpoint-active-directory https://localhost:8470/adfs",
                "--suffix-storage-endpoint localhost:8470",
                "az cloud set --name corro",
                "'/tmp/my bundle.pem'",
                "127.0.0.1 acc.file.localhost acc.blob.localhost",
                "-g g -n acc",
                "--tenant t",
            ] {
                assert!(text.contains(part), "{part} in {text}");
            }
            assert!(!text.contains("hush"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 160), "{text}");
        }
    }

    #[test]
    fn paths_are_quoted_for_every_shell() {
        for (shell, expected) in [
            (Shell::Bash, "export A='/o'\\''b $x'"),
            (Shell::Fish, "set -gx A '/o\\'b $x'"),
            (Shell::Powershell, "$env:A = '/o''b $x'"),
        ] {
            assert_eq!(shell.export("A", &shell.quote("/o'b $x")), expected);
        }
        assert_eq!(Shell::Bash.source_command(Path::new("/a/b.sh")), "source /a/b.sh");
    }
}
