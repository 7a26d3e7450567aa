//! SAS tokens and URLs that allow reading one file for a limited time.

use std::time::{SystemTime, UNIX_EPOCH};

use corro_model::storage::sas::{self, Sas};

use super::{FileService, Signer, VERSION};

impl FileService {
    /// SAS token with the parameters of `sas` for a share (`path` is empty) or file. `None` without the account key,
    /// which signs it.
    pub fn sas_token(&self, sas: Sas, share: &str, path: &str) -> Option<String> {
        let Signer::Key(key) = &self.signer else { return None };
        let sas = Sas { version: VERSION.to_owned(), ..sas };
        Some(sas.signed_query(key, &self.account, share, path.trim_matches('/')))
    }

    /// SAS URL of a file, valid for `minutes`. `None` without the account key, or if the expiry is not a valid date.
    pub fn read_link(&self, share: &str, path: &str, minutes: u32) -> Option<String> {
        let Signer::Key(key) = &self.signer else { return None };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        let expires = i64::try_from(now).ok()? + i64::from(minutes) * 60;
        let query = sas::read_link_query(key, &self.account, share, path, expires).ok()?;
        Some(format!("{}{}?{query}", self.transport.server(), self.path_of(share, path)))
    }
}
