//! A value that must not be seen: passwords, account keys, secret variables. It can be read from a request and handed
//! on deliberately with [`Secret::expose`]; printing or debugging it shows nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_secret_does_not_show_in_debug_output() {
        assert_eq!(format!("{:?}", super::Secret::new("hunter2")), "(secret)");
    }
}
