//! The administrator of a new cluster's nodes: name, key and password, from arguments, file and this machine. Entered by
//! `cluster create`.

use corro_model::Secret;
use corro_model::batchai::UserAccountSettings;

use super::CreateArgs;
use crate::commands::cluster_spec::FileAccount;
use crate::failure::Failure;
use crate::session::{env, home_dir};
use crate::ssh_keys;
use crate::talk::say;

/// Who may log in to the nodes. Makes a key pair when asked to; that is the only thing it changes.
pub fn account(args: &CreateArgs, file: FileAccount) -> Result<UserAccountSettings, Failure> {
    let admin_user_name = args.user_name.clone().or(file.admin_user_name).unwrap_or_else(os_user);
    let password = args.password.as_deref().map(Secret::new).or(file.admin_user_password);
    let given = args.ssh_key.clone().or(file.admin_user_ssh_public_key);
    let ssh_dir = || home_dir().map(|home| home.join(".ssh"));
    let key = match given {
        Some(key) => Some(ssh_keys::public_key(&key)?),
        None if args.generate_ssh_keys => {
            let key = ssh_keys::ensure_key_pair(&ssh_dir()?, &format!("{}@{}", os_user(), host_name()))?;
            if key.generated {
                say(format_args!(
                    "SSH key files 'id_rsa' and 'id_rsa.pub' have been generated under ~/.ssh to allow SSH access to \
                     the nodes. If using machines without permanent storage, back up your keys to a safe location."
                ));
            }
            Some(key.public_key)
        }
        None if password.is_none() => ssh_keys::default_public_key(&ssh_dir()?)?,
        None => None,
    };
    if key.is_none() && password.is_none() {
        return Err(Failure::new("Please provide admin user password or ssh key")
            .hint("give --generate-ssh-keys, --ssh-key or --password"));
    }
    Ok(UserAccountSettings { admin_user_name, admin_user_ssh_public_key: key, admin_user_password: password })
}

fn os_user() -> String {
    ["LOGNAME", "USER", "USERNAME"].into_iter().find_map(env).unwrap_or_else(|| "corro".to_owned())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}
