//! What a person reads: the steps that `--write` does, as commands to type, and those that are left to do afterwards. Pure.
//! No secret is in any of it, nor on any command line that it shows.

use std::net::IpAddr;
use std::path::Path;

use clap::ValueEnum;

use super::hosts;
use super::site::Site;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Fish,
    Powershell,
}

impl Shell {
    pub const ALL: [Shell; 3] = [Shell::Bash, Shell::Fish, Shell::Powershell];

    pub fn file_name(self) -> &'static str {
        match self {
            Shell::Bash => "corro-az.sh",
            Shell::Fish => "corro-az.fish",
            Shell::Powershell => "corro-az.ps1",
        }
    }

    /// The command that takes over the variables of a file.
    pub fn source(self, file: &Path) -> String {
        let file = self.quote(&file.display().to_string());
        match self {
            Shell::Bash | Shell::Fish => format!("source {file}"),
            Shell::Powershell => format!(". {file}"),
        }
    }

    /// What that file says.
    pub fn environment(self, site: &Site, bundle: Option<&Path>) -> String {
        let mut text = format!(
            "# Lets az reach the Corro server at {}. Written by 'corro cloud setup-az --write'; to be sourced.\n",
            site.url()
        );
        if let Some(bundle) = bundle {
            text += &format!("{}\n", self.export("REQUESTS_CA_BUNDLE", &self.quote(&bundle.display().to_string())));
        }
        text + &format!("# Not through a proxy.\n{}\n", self.no_proxy(&site.host))
    }

    fn export(self, name: &str, value: &str) -> String {
        match self {
            Shell::Bash => format!("export {name}={value}"),
            Shell::Fish => format!("set -gx {name} {value}"),
            Shell::Powershell => format!("$env:{name} = {value}"),
        }
    }

    /// The small letters count where both are set.
    fn no_proxy(self, host: &str) -> String {
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

    fn line_goes_on(self) -> &'static str {
        if self == Shell::Powershell { " `" } else { " \\" }
    }
}

/// How this machine gets to know the names of accounts.
pub enum Names {
    /// It knows them.
    Known,
    /// By these lines in the hosts file.
    Lines { address: IpAddr, block: String },
    /// There are none: the server is known by an address only.
    None,
}

/// All steps, to be typed.
pub fn steps(site: &Site, names: &Names, shell: Shell, bundle: &Path) -> String {
    let mut text = format!(
        "How to let az reach the Corro server at {}. 'corro cloud setup-az --write' does steps 1 to 3.\n",
        site.url()
    );
    text += "\n1. Whom to believe: this server's certificate authority, beside those this machine trusts. In every shell that runs az:\n\n";
    if site.authority.is_some() {
        let file = shell.quote(&bundle.display().to_string());
        text += &format!("  corro cloud setup-az --bundle > {file}\n  {}\n", shell.export("REQUESTS_CA_BUNDLE", &file));
    } else {
        text += "  nothing to do: this machine trusts the server's certificate\n";
    }
    text += "\n2. The cloud, which is then the active one:\n\n";
    let flags = site.options().into_iter().map(|(option, value)| format!("--{} {value}", option.replace('_', "-")));
    let flags: Vec<String> = flags.collect();
    let goes_on = shell.line_goes_on();
    text += &format!(
        "  az cloud register --name {}{goes_on}\n      {}\n",
        site.cloud,
        flags.join(&format!("{goes_on}\n      "))
    );
    text += &format!("  az cloud set --name {}\n", site.cloud);
    text += &format!(
        "\n3. Names of storage accounts, for the 'az storage' commands that work on files.\n{}",
        about_names(site, names, shell)
    );
    text += &format!("\n4. A login. {}", login(site, shell));
    text += &format!(
        "\nTo go back: az logout, az cloud set --name AzureCloud, az cloud unregister --name {}\n",
        site.cloud
    );
    text
}

fn about_names(site: &Site, names: &Names, shell: Shell) -> String {
    let host = &site.host;
    match names {
        Names::Known => "\n  nothing to do: this machine knows them already\n".to_owned(),
        Names::None => format!(
            "Nothing can be named below an address like {host}. Start the server with --name NAME and say so here with\n--host NAME, or use connection strings:\n\n{}",
            connection_strings(site, shell)
        ),
        Names::Lines { address, .. } if site.names().is_empty() => format!(
            "There is no storage account yet: see this again when there is one, or have records *.file.{host} and\n*.blob.{host} for {address} in your DNS.\n"
        ),
        Names::Lines { address, block } => {
            let lines: String = block.lines().map(|line| format!("  {line}\n")).collect();
            format!(
                "Either these lines in /etc/hosts (again when there are new accounts), or records *.file.{host} and\n*.blob.{host} for {address} in your DNS:\n\n{lines}\nOr, without any right on this machine, a connection string for each account:\n\n{}",
                connection_strings(site, shell)
            )
        }
    }
}

/// One command for each account. The key stays out of command lines.
pub fn connection_strings(site: &Site, shell: Shell) -> String {
    let ask = |group: &str, name: &str| {
        let command = format!(
            "corro storage account show-connection-string -g {group} -n {name} --query connectionString -o tsv"
        );
        let value = match shell {
            Shell::Bash => format!("\"$({command})\""),
            Shell::Fish | Shell::Powershell => format!("({command})"),
        };
        format!("  {}\n", shell.export("AZURE_STORAGE_CONNECTION_STRING", &value))
    };
    match site.accounts.as_slice() {
        [] => ask("GROUP", "ACCOUNT"),
        accounts => accounts.iter().map(|account| ask(&account.group, &account.name)).collect(),
    }
}

/// How to log in. Passwords go by file, so that they are in no list of processes.
pub fn login(site: &Site, shell: Shell) -> String {
    let tenant = &site.tenant;
    let private = match shell {
        Shell::Bash => "(umask 077; corro ad sp create-for-rbac -n az --query password -o tsv > az-password)",
        // Here a block is no shell of its own, and the mask would stay.
        Shell::Fish => "sh -c 'umask 077; corro ad sp create-for-rbac -n az --query password -o tsv > az-password'",
        Shell::Powershell => "corro ad sp create-for-rbac -n az --query password -o tsv > az-password",
    };
    let app = match shell {
        Shell::Bash => "\"$(corro ad sp show --id az --query appId -o tsv)\"",
        Shell::Fish | Shell::Powershell => "(corro ad sp show --id az --query appId -o tsv)",
    };
    let at = if shell == Shell::Powershell { "'@az-password'" } else { "@az-password" };
    format!(
        "Make a service principal once, then log in as it; az keeps the login, so the file may go:\n\n  {private}\n  az login --service-principal --tenant {tenant} -p {at} -u {app}\n  rm az-password\n"
    )
}

/// What somebody without the right to write the hosts file may ask somebody with it to do.
pub fn hosts_by_hand(file: &Path, block: &str) -> String {
    let file = file.display();
    format!("  {} {file}\n  sudo tee -a {file} <<'END'\n{block}END\n", hosts::REMOVE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::cloud::site::Account;
    use crate::commands::cloud::site::tests::profile;

    fn site() -> Site {
        let mut site = Site::new("corro", &profile("https://127.0.0.1:8470"), None).expect("https");
        site.accounts = vec![Account { name: "acc".to_owned(), group: "g".to_owned() }];
        site
    }

    #[test]
    fn every_step_is_there_and_no_secret() {
        let address = "127.0.0.1".parse().expect("an address");
        let block = hosts::block(address, &site().names());
        let names = Names::Lines { address, block };
        for shell in Shell::ALL {
            let text = steps(&site(), &names, shell, Path::new("/tmp/my bundle.pem"));
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
    fn a_path_is_one_word_in_every_shell() {
        for (shell, expected) in [
            (Shell::Bash, "export A='/o'\\''b $x'"),
            (Shell::Fish, "set -gx A '/o\\'b $x'"),
            (Shell::Powershell, "$env:A = '/o''b $x'"),
        ] {
            assert_eq!(shell.export("A", &shell.quote("/o'b $x")), expected);
        }
        assert_eq!(Shell::Bash.source(Path::new("/a/b.sh")), "source /a/b.sh");
    }
}
