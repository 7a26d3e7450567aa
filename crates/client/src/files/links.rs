//! Links that let whoever holds them read one file for a while. Entered by commands that list files.

use std::time::{SystemTime, UNIX_EPOCH};

use corro_model::storage::sas::{self, Sas};

use super::{FileService, Signer, VERSION};

impl FileService {
    /// The query of a link with the parameters of `sas`, to be put behind the address of a share (`path` is empty) or
    /// file. `None` without the account's key, which signs it.
    pub fn sas_token(&self, sas: Sas, share: &str, path: &str) -> Option<String> {
        let Signer::Key(key) = &self.signer else { return None };
        let sas = Sas { version: VERSION.to_owned(), ..sas };
        Some(sas.signed_query(key, &self.account, share, path.trim_matches('/')))
    }

    /// A link to a file, good for some minutes. `None` without the account's key, which signs it, or when that time is
    /// past the end of the calendar.
    pub fn read_link(&self, share: &str, path: &str, minutes: u32) -> Option<String> {
        let Signer::Key(key) = &self.signer else { return None };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        let expires = i64::try_from(now).ok()? + i64::from(minutes) * 60;
        let query = sas::read_link_query(key, &self.account, share, path, expires).ok()?;
        Some(format!("{}{}?{query}", self.transport.server(), self.path_of(share, path)))
    }
}
