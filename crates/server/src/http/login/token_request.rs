//! Parses token requests: client id and secret from the form, HTTP Basic, or the headers of a managed identity. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use corro_model::Secret;
use corro_model::storage::query_texts;
use http::{HeaderMap, header};

use super::TokenRefusal;

/// Token protocol of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenProtocol {
    /// `/oauth2/token`: names a resource.
    V1,
    /// `/oauth2/v2.0/token`: names a scope.
    V2,
    /// Managed identity: names no grant type.
    ManagedIdentity,
}

#[derive(Debug, PartialEq)]
pub struct TokenRequest {
    pub client_id: String,
    pub secret: Secret,
    pub resource: String,
}

/// Headers of App Service managed identities, which hold a value from the environment; here it is `ID:SECRET`.
const IDENTITY_HEADERS: [&str; 2] = ["secret", "x-identity-header"];

pub fn parse(
    protocol: TokenProtocol,
    form: &str,
    query: &str,
    headers: &HeaderMap,
) -> Result<TokenRequest, TokenRefusal> {
    // Secrets in a query would appear in logs, so the query may hold the resource only.
    let form = query_texts(form);
    let field = |name: &str| form.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str());
    match protocol {
        TokenProtocol::ManagedIdentity => {
            let Some((client_id, secret)) = basic_auth(headers).or_else(|| identity_header(headers)) else {
                let text = "A managed identity needs the id and secret of a service principal here: set MSI_ENDPOINT to http://ID:SECRET@HOST/oauth2/token, or MSI_SECRET to ID:SECRET";
                return Err(TokenRefusal::unauthorized(7000218, text));
            };
            let query = query_texts(query);
            let field_or_query = |name: &str| {
                let in_query = query.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str());
                if field(name).is_empty() { in_query } else { field(name) }.to_owned()
            };
            let others = ["client_id", "object_id", "msi_res_id", "mi_res_id"].map(field_or_query);
            if others.iter().any(|other| !other.is_empty() && !other.eq_ignore_ascii_case(&client_id)) {
                return Err(TokenRefusal::bad("invalid_request", 700016, "Identity not found"));
            }
            Ok(TokenRequest { client_id, secret, resource: field_or_query("resource") })
        }
        TokenProtocol::V1 | TokenProtocol::V2 => {
            match field("grant_type") {
                "client_credentials" => {}
                "" => return Err(missing("grant_type")),
                other => {
                    let text = format!("The grant type '{other}' is not supported: use client_credentials");
                    return Err(TokenRefusal::bad("unsupported_grant_type", 70003, text));
                }
            }
            let (client_id, secret) = match basic_auth(headers) {
                Some(credentials) => credentials,
                None if field("client_id").is_empty() => return Err(missing("client_id")),
                None if !field("client_assertion").is_empty() => {
                    let text = "Certificates are not supported: use a client_secret";
                    return Err(TokenRefusal::unauthorized(700027, text));
                }
                None if field("client_secret").is_empty() => {
                    let text = "The request's body must contain 'client_secret'";
                    return Err(TokenRefusal::unauthorized(7000218, text));
                }
                None => (field("client_id").to_owned(), Secret::new(field("client_secret"))),
            };
            if protocol == TokenProtocol::V1 {
                return Ok(TokenRequest { client_id, secret, resource: field("resource").to_owned() });
            }
            let scopes = field("scope").split_whitespace();
            // Client libraries add these by default.
            let mut scopes = scopes.filter(|scope| !["openid", "profile", "offline_access"].contains(scope));
            let Some(scope) = scopes.next() else { return Err(missing("scope")) };
            match (scope.strip_suffix("/.default"), scopes.next()) {
                (Some(resource), None) => Ok(TokenRequest { client_id, secret, resource: resource.to_owned() }),
                _ => {
                    let text = format!("The scope '{}' is not valid: use RESOURCE/.default", field("scope"));
                    Err(TokenRefusal::bad("invalid_scope", 1002012, text))
                }
            }
        }
    }
}

fn missing(field: &str) -> TokenRefusal {
    let text = format!("The request body must contain the following parameter: '{field}'");
    TokenRefusal::bad("invalid_request", 900144, text)
}

fn basic_auth(headers: &HeaderMap) -> Option<(String, Secret)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, credentials) = value.split_once(' ')?;
    let credentials = STANDARD.decode(credentials.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("Basic"))?;
    split_id_secret(&String::from_utf8(credentials).ok()?)
}

fn identity_header(headers: &HeaderMap) -> Option<(String, Secret)> {
    IDENTITY_HEADERS.into_iter().find_map(|name| split_id_secret(headers.get(name)?.to_str().ok()?))
}

fn split_id_secret(text: &str) -> Option<(String, Secret)> {
    let (id, secret) = text.rsplit_once(':')?;
    (!id.is_empty() && !secret.is_empty()).then(|| (id.to_owned(), Secret::new(secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        of.iter().map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value"))).collect()
    }

    #[test]
    fn credentials_are_found_wherever_clients_send_them() {
        let found = |protocol, form: &str, query: &str, credentials: &[(&'static str, &str)]| match parse(
            protocol,
            form,
            query,
            &headers(credentials),
        ) {
            Ok(TokenRequest { client_id, secret, resource }) => format!("{client_id} {} {resource}", secret.expose()),
            Err(refusal) => format!("{} {} {}", refusal.status.as_u16(), refusal.error, refusal.code),
        };
        let grant = "grant_type=client_credentials";
        let basic_auth = [("authorization", "Basic aWQ6czNjcmV0")]; // id:s3cret
        for (protocol, form, query, credentials, expected) in [
            (TokenProtocol::V1, format!("{grant}&client_id=id&client_secret=s%2B&resource=r"), "", &[][..], "id s+ r"),
            (TokenProtocol::V1, format!("{grant}&resource=r"), "", &basic_auth, "id s3cret r"),
            (TokenProtocol::V1, grant.to_owned(), "", &[], "400 invalid_request 900144"),
            (TokenProtocol::V1, format!("{grant}&client_id=id"), "client_secret=s", &[], "401 invalid_client 7000218"),
            (
                TokenProtocol::V1,
                format!("{grant}&client_id=id&client_assertion=x"),
                "",
                &[],
                "401 invalid_client 700027",
            ),
            (TokenProtocol::V1, String::new(), "", &basic_auth, "400 invalid_request 900144"),
            (
                TokenProtocol::V1,
                "grant_type=password&client_id=id".to_owned(),
                "",
                &[],
                "400 unsupported_grant_type 70003",
            ),
            (
                TokenProtocol::V2,
                format!("{grant}&scope=https%3A%2F%2Fh%2F.default"),
                "",
                &basic_auth,
                "id s3cret https://h",
            ),
            (TokenProtocol::V2, format!("{grant}&scope=h%2F.default+openid"), "", &basic_auth, "id s3cret h"),
            (TokenProtocol::V2, format!("{grant}&scope=h%2Fread"), "", &basic_auth, "400 invalid_scope 1002012"),
            (TokenProtocol::V2, grant.to_owned(), "", &basic_auth, "400 invalid_request 900144"),
            // A managed identity needs a secret too, and not in the query.
            (TokenProtocol::ManagedIdentity, "resource=r".to_owned(), "", &basic_auth, "id s3cret r"),
            (
                TokenProtocol::ManagedIdentity,
                String::new(),
                "resource=r",
                &[("secret", "http://name:s")],
                "http://name s r",
            ),
            (TokenProtocol::ManagedIdentity, String::new(), "resource=r", &[("x-identity-header", "id:s")], "id s r"),
            (
                TokenProtocol::ManagedIdentity,
                "resource=r".to_owned(),
                "",
                &[("metadata", "true")],
                "401 invalid_client 7000218",
            ),
            (
                TokenProtocol::ManagedIdentity,
                "client_id=id&client_secret=s".to_owned(),
                "",
                &[],
                "401 invalid_client 7000218",
            ),
            (TokenProtocol::ManagedIdentity, "resource=r&client_id=ID".to_owned(), "", &basic_auth, "id s3cret r"),
            (
                TokenProtocol::ManagedIdentity,
                "resource=r&msi_res_id=other".to_owned(),
                "",
                &basic_auth,
                "400 invalid_request 700016",
            ),
        ] {
            assert_eq!(
                found(protocol, &form, query, credentials),
                expected,
                "{protocol:?} {form} {query} {credentials:?}"
            );
        }
    }
}
