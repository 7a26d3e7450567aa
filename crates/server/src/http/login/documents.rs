//! Public discovery documents that clients read before they request a token. Pure; every URL starts with the base URL that the
//! client used.

use serde_json::{Value, json};

/// The metadata document is a list from this version on.
const FIRST_LIST_VERSION: &str = "2018";

/// The authority of an endpoint of this server: `adfs` of `https://HOST/adfs/oauth2/authorize`.
pub fn authority_in<'a>(endpoint: &'a str, base_url: &str) -> Option<&'a str> {
    let (scheme, rest) = endpoint.split_once("://")?;
    let (host, path) = rest.split_once('/')?;
    let ours = base_url.split_once("://")?.1;
    // Some clients omit the port.
    let is_ours = [ours, ours.rsplit_once(':').map_or(ours, |(name, _)| name)].contains(&host);
    (scheme == "https" && is_ours).then(|| path.split('/').next()).flatten()
}

pub fn instance(base_url: &str, authority: &str, v2: bool) -> Value {
    let host = base_url.split_once("://").map_or(base_url, |(_, host)| host);
    let version = if v2 { "v2.0/" } else { "" };
    json!({
        "tenant_discovery_endpoint": format!("{base_url}/{authority}/{version}.well-known/openid-configuration"),
        "api-version": "1.1",
        "metadata": [{"preferred_network": host, "preferred_cache": host, "aliases": [host]}],
    })
}

pub fn open_id(base_url: &str, authority: &str, tenant: &str, v2: bool) -> Value {
    let below = format!("{base_url}/{authority}");
    let version = if v2 { "v2.0/" } else { "" };
    let issuer = match (authority.eq_ignore_ascii_case("adfs"), v2) {
        (true, _) => below.clone(),
        (false, true) => format!("{base_url}/{tenant}/v2.0"),
        (false, false) => format!("{base_url}/{tenant}/"),
    };
    json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{below}/oauth2/{version}authorize"),
        "token_endpoint": format!("{below}/oauth2/{version}token"),
        "device_authorization_endpoint": format!("{below}/oauth2/{version}devicecode"),
        "jwks_uri": format!("{below}/discovery/{version}keys"),
        "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
        "grant_types_supported": ["client_credentials"],
        "response_types_supported": ["token"],
        "response_modes_supported": ["query"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["HS256"],
        "scopes_supported": ["openid"],
        "claims_supported": ["appid", "tid", "iat", "exp"],
    })
}

/// Cloud metadata as `az cloud register` and later clients request it, by version.
pub fn metadata(base_url: &str, tenant: &str, version: &str) -> Value {
    let host = base_url.split_once("://").map_or(base_url, |(_, host)| host);
    if version < FIRST_LIST_VERSION {
        return json!({
            "galleryEndpoint": base_url,
            "graphEndpoint": base_url,
            "portalEndpoint": base_url,
            "authentication": {"loginEndpoint": format!("{base_url}/adfs"), "audiences": [base_url]},
        });
    }
    json!([{
        "name": "Corro",
        "portal": base_url,
        "resourceManager": base_url,
        "gallery": base_url,
        "graph": base_url,
        "graphAudience": base_url,
        "authentication": {
            "loginEndpoint": format!("{base_url}/adfs"),
            "audiences": [base_url],
            "tenant": tenant,
            "identityProvider": "ADFS",
        },
        "suffixes": {"storage": host},
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_servers_authorities_are_accepted() {
        let of = |endpoint: &'static str| authority_in(endpoint, "https://box:8470");
        assert_eq!(of("https://box:8470/adfs/oauth2/authorize"), Some("adfs"));
        assert_eq!(of("https://box/t-1/oauth2/v2.0/authorize"), Some("t-1"));
        for other in ["https://box.evil/adfs/", "https://evil/box:8470/adfs", "http://box:8470/adfs/", "box/adfs", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn documents_contain_the_address_of_the_request() {
        let document = open_id("https://box", "t-1", "t-1", true);
        assert_eq!(document["token_endpoint"], "https://box/t-1/oauth2/v2.0/token");
        assert_eq!(document["issuer"], "https://box/t-1/v2.0");
        assert_eq!(open_id("https://box", "adfs", "t-1", false)["token_endpoint"], "https://box/adfs/oauth2/token");
        let old = metadata("https://box", "t-1", "2015-01-01");
        assert_eq!(old["authentication"]["loginEndpoint"], "https://box/adfs");
        assert_eq!(metadata("https://box:1", "t-1", "2019-05-01")[0]["suffixes"]["storage"], "box:1");
    }
}
