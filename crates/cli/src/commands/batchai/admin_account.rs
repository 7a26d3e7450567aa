//! The administrator's account of new nodes and file servers: name, key and password, from arguments, configuration file and this machine. Its only side
//! effect is `--generate-ssh-keys`.

use std::process::{Command, Stdio};

use clap::Args;
use corro_model::Secret;
use corro_model::batchai::UserAccountSettings;
use serde::Deserialize;

use crate::error::CliError;
use crate::session::{env, home_dir};
use crate::ssh_keys;
use crate::stdio::note;

#[derive(Args, Debug)]
#[command(next_help_heading = "Admin Account")]
pub struct AdminArgs {
    /// Name of the administrator account [default: your user name]
    #[arg(long, short = 'u', value_name = "NAME")]
    user_name: Option<String>,
    /// SSH public key of the administrator, or a file that contains it [default: ~/.ssh/id_rsa.pub]
    #[arg(long, short = 'k', value_name = "KEY")]
    ssh_key: Option<String>,
    /// Generate ~/.ssh/id_rsa and ~/.ssh/id_rsa.pub if they do not exist
    #[arg(long)]
    generate_ssh_keys: bool,
    /// Password of the administrator
    #[arg(long, short = 'p', value_name = "PASSWORD")]
    password: Option<String>,
}

impl AdminArgs {
    /// The arguments of a caller who gave none, with a key that is generated if missing.
    pub fn generating_keys() -> AdminArgs {
        AdminArgs { user_name: None, ssh_key: None, generate_ssh_keys: true, password: None }
    }
}

/// The account of a configuration file, where every field is optional.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileAccount {
    pub admin_user_name: Option<String>,
    pub admin_user_ssh_public_key: Option<String>,
    pub admin_user_password: Option<Secret>,
}

/// The administrator's account. Arguments override the file, and the file overrides the defaults of this machine.
pub fn account(args: &AdminArgs, file: FileAccount) -> Result<UserAccountSettings, CliError> {
    let admin_user_name = args.user_name.clone().or(file.admin_user_name).unwrap_or_else(os_user);
    if admin_user_name.is_empty() {
        return Err(CliError::new("Please provide admin user name.").hint("give --user-name"));
    }
    let password = args.password.as_deref().map(Secret::new).or(file.admin_user_password);
    let made = if args.generate_ssh_keys { Some(ensure_key_pair()?) } else { None };
    let key = match args.ssh_key.clone().or(made).or(file.admin_user_ssh_public_key) {
        Some(key) => Some(ssh_keys::public_key(&key)?),
        None if password.is_none() => ssh_keys::default_public_key(&home_dir()?.join(".ssh"))?,
        None => None,
    };
    if key.is_none() && password.is_none() {
        return Err(CliError::new("Please provide admin user password or ssh key.")
            .hint("give --generate-ssh-keys, --ssh-key or --password"));
    }
    Ok(UserAccountSettings { admin_user_name, admin_user_ssh_public_key: key, admin_user_password: password })
}

fn ensure_key_pair() -> Result<String, CliError> {
    let dir = home_dir()?.join(".ssh");
    let key = ssh_keys::ensure_key_pair(&dir, &format!("{}@{}", os_user(), host_name()))?;
    if key.generated {
        note(format_args!(
            "SSH key files id_rsa and id_rsa.pub have been generated under {} to allow SSH access to the nodes. \
             If using machines without permanent storage, back up your keys to a safe location.",
            dir.display()
        ));
    } else {
        note(format_args!("Reusing existing ssh public key from {}", dir.display()));
    }
    Ok(key.public_key)
}

/// The user name as Python's `getpass.getuser`, which `az` uses: from the environment, else of the process. Empty if unknown.
pub fn os_user() -> String {
    ["LOGNAME", "USER", "LNAME", "USERNAME"].into_iter().find_map(env).unwrap_or_else(own_name)
}

/// The name of the effective user, from `id`, which knows all user databases (NSS).
fn own_name() -> String {
    let said = Command::new("id").arg("-un").stderr(Stdio::null()).output();
    let name = said.ok().filter(|said| said.status.success()).map(|said| said.stdout).unwrap_or_default();
    String::from_utf8_lossy(&name).trim().to_owned()
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_whose_it_is_without_its_environment() {
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let uid = rustix::process::geteuid().as_raw().to_string();
        let own =
            passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|parts| parts.get(2) == Some(&&*uid));
        // A user of a directory service is not in /etc/passwd.
        match own {
            Some(parts) => assert_eq!(own_name(), parts[0]),
            None => assert!(!own_name().contains(char::is_whitespace)),
        }
    }
}
