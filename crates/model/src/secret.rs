//! Redacted wrapper for passwords, account keys and secret variables. It deserializes from a request and is read only
//! with [`Secret::expose`]; `Debug` does not show the value.

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
