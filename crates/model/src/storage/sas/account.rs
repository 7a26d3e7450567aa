//! Account SAS: services, resource types and permissions for a whole account. Signed with the account's key like a
//! service SAS, over another string to sign.

use super::{
    Bearer, Permission, SAS_VALUE_ESCAPES, SasError, Terms, encode_parameters, hmac_base64, hmac_signer, letter_of,
    query_pairs,
};

/// Version from which the string to sign includes the encryption scope, even if empty.
const SCOPED_VERSION: &str = "2020-12-06";

/// Resource type of an account SAS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceType {
    /// The account itself: its list of shares, its settings.
    Service,
    /// A share or container as a whole.
    Container,
    /// Files, directories, blobs.
    Object,
}

/// Parameters of an account SAS as in the query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountSas {
    pub version: String,
    pub services: String,
    pub resource_types: String,
    pub permissions: String,
    pub start: String,
    pub expiry: String,
    pub addresses: String,
    pub protocols: String,
    pub encryption_scope: String,
    /// Empty before signing.
    pub signature: String,
}

impl AccountSas {
    /// Parses the account SAS of a query; `None` when the query has none.
    pub fn from_query(query: &str) -> Option<Result<Self, SasError>> {
        // Fast path: most SAS are of another kind.
        query_pairs(query).find(|(name, _)| matches!(&**name, "ss" | "srt"))?;
        let mut sas = AccountSas::default();
        let mut malformed = false;
        for (name, value) in query_pairs(query) {
            let slot = match &*name {
                "sv" => &mut sas.version,
                "ss" => &mut sas.services,
                "srt" => &mut sas.resource_types,
                "sp" => &mut sas.permissions,
                "st" => &mut sas.start,
                "se" => &mut sas.expiry,
                "sip" => &mut sas.addresses,
                "spr" => &mut sas.protocols,
                "ses" => &mut sas.encryption_scope,
                "sig" => &mut sas.signature,
                // Parameters of other kinds of SAS. One of two kinds at once is malformed.
                "sr" | "si" | "skoid" => {
                    malformed |= true;
                    continue;
                }
                _ => continue,
            };
            malformed |= !slot.is_empty() || value.chars().any(char::is_control);
            *slot = value.into_owned();
        }
        if sas.signature.is_empty() || sas.services.is_empty() && sas.resource_types.is_empty() {
            return None;
        }
        let incomplete = [&sas.version, &sas.services, &sas.resource_types, &sas.permissions];
        Some(match malformed || incomplete.iter().any(|value| value.is_empty()) {
            true => Err(SasError::Malformed),
            false => Ok(sas),
        })
    }

    /// Index of the key in `keys` that signed this SAS, if it is valid at `now`.
    pub fn check<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        account: &str,
        bearer: Bearer,
        now: i64,
    ) -> Result<usize, SasError> {
        let signer = hmac_signer(keys, &self.string_to_sign(account), &self.signature).ok_or(SasError::Signature)?;
        let AccountSas { start, expiry, addresses, protocols, .. } = self;
        Terms { start, expiry, addresses, protocols }.check(bearer, now)?;
        Ok(signer)
    }

    /// Whether the SAS covers a service: `f` for files, `b` for blobs.
    pub fn is_for_service(&self, letter: char) -> bool {
        self.services.contains(letter)
    }

    pub fn is_for(&self, resource: ResourceType) -> bool {
        self.resource_types.contains(match resource {
            ResourceType::Service => 's',
            ResourceType::Container => 'c',
            ResourceType::Object => 'o',
        })
    }

    pub fn permits(&self, permission: Permission) -> bool {
        self.permissions.contains(letter_of(permission))
    }

    /// Signs the parameters and returns the query, in the order of the SDKs.
    pub fn signed_query(&self, key: &[u8], account: &str) -> String {
        let signature = hmac_base64(key, &self.string_to_sign(account));
        encode_parameters(
            &[
                ("st", &self.start),
                ("se", &self.expiry),
                ("sp", &self.permissions),
                ("sip", &self.addresses),
                ("spr", &self.protocols),
                ("sv", &self.version),
                ("ss", &self.services),
                ("srt", &self.resource_types),
                ("ses", &self.encryption_scope),
                ("sig", &signature),
            ],
            &SAS_VALUE_ESCAPES,
        )
    }

    fn string_to_sign(&self, account: &str) -> String {
        let mut lines = vec![
            account,
            &self.permissions,
            &self.services,
            &self.resource_types,
            &self.start,
            &self.expiry,
            &self.addresses,
            &self.protocols,
            &self.version,
        ];
        // Versions are dates, so they compare as text.
        if self.version.as_str() >= SCOPED_VERSION {
            lines.push(&self.encryption_scope);
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Bearer = Bearer { address: None, over_tls: false };
    const NOW: i64 = 1_528_410_115; // 2018-06-07T22:21:55Z

    fn sas(version: &str) -> AccountSas {
        let text = |text: &str| text.to_owned();
        AccountSas {
            version: text(version),
            services: text("bf"),
            resource_types: text("co"),
            permissions: text("rl"),
            expiry: text("2018-06-08"),
            ..AccountSas::default()
        }
    }

    /// The signatures were computed with another implementation of HMAC, over the strings to sign of
    /// azure-storage-common 2.1 and azure-storage-file-share 12.15.
    #[test]
    fn both_texts_are_signed_as_the_sdks_do() {
        let key: Vec<u8> = (0..64).collect();
        for (version, signature) in [
            ("2018-03-28", "cjDrPGp+xDhvzGrKzLZqWgOUYiFY8R8xvy+BTLesqyM="),
            ("2023-11-03", "hSdOd1nvpFIsVPdzrxrwI+3T+FUU/zZpjbyyxHjeXcs="),
        ] {
            let query = sas(version).signed_query(&key, "acc");
            let read = AccountSas::from_query(&query).expect("signed").expect("well-formed");
            assert_eq!(read.signature, signature, "{version}");
            assert_eq!(read.check(&[&key], "acc", PLAIN, NOW), Ok(0));
            assert_eq!(read.check(&[&key], "other", PLAIN, NOW), Err(SasError::Signature));
            assert_eq!(read.check(&[[8; 64]], "acc", PLAIN, NOW), Err(SasError::Signature));
            assert_eq!(read.check(&[&key], "acc", PLAIN, NOW + 86_400), Err(SasError::Expired));
            for (from, to) in [("ss=bf", "ss=bfqt"), ("srt=co", "srt=sco"), ("sp=rl", "sp=rwl"), ("08", "09")] {
                let forged = AccountSas::from_query(&query.replace(from, to)).expect("signed").expect("well-formed");
                assert_eq!(forged.check(&[&key], "acc", PLAIN, NOW), Err(SasError::Signature), "{to}");
            }
        }
        let sas = sas("2018-03-28");
        assert!(sas.is_for_service('f') && !sas.is_for_service('q'));
        assert!(sas.is_for(ResourceType::Object) && !sas.is_for(ResourceType::Service));
        assert!(sas.permits(Permission::List) && !sas.permits(Permission::Delete));
    }

    #[test]
    fn links_of_other_kinds_are_none_and_mixed_ones_malformed() {
        for query in ["comp=list", "ss=f&srt=o", "sv=2018-03-28&sr=s&sp=r&se=2018-06-08&sig=x"] {
            assert_eq!(AccountSas::from_query(query), None, "{query}");
        }
        for query in [
            "sv=2018-03-28&ss=f&sp=r&sig=x",
            "sv=2018-03-28&ss=f&srt=o&sig=x",
            "ss=f&srt=o&sp=r&sig=x",
            "sv=2018-03-28&ss=f&srt=o&sp=r&sr=s&sig=x",
            "sv=2018-03-28&ss=f&srt=o&sp=r&sp=w&sig=x",
            "sv=2018-03-28&ss=f&srt=o%0A&sp=r&sig=x",
        ] {
            assert_eq!(AccountSas::from_query(query), Some(Err(SasError::Malformed)), "{query}");
        }
    }
}
