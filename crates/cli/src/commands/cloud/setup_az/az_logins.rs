//! Edits az's login files: `azureProfile.json` (subscriptions of all clouds, one of them the default) and `accessTokens.json` (with passwords of
//! service principals). A login at our cloud becomes the default; an undo removes it and restores the previous default. Pure.

use serde_json::Value;

/// Byte order mark with which `az` begins `azureProfile.json`.
const BOM: char = '\u{feff}';

/// Service principals that are logged in at this cloud.
pub fn principals(profile: &str, cloud: &str) -> Vec<String> {
    let logins = subscriptions(&parse(profile)).into_iter().filter(|login| is_of_cloud(login, cloud));
    logins.filter_map(|login| Some(login["user"]["name"].as_str()?.to_owned())).collect()
}

/// The profile without logins of this cloud; `before` itself if nothing else has changed.
pub fn without_cloud(profile: &str, before: Option<&str>, cloud: &str) -> Option<String> {
    let (mut value, old) = (parse(profile), subscriptions(&parse(before.unwrap_or_default())));
    let mut rest = subscriptions(&value);
    let n_logins = rest.len();
    rest.retain(|login| !is_of_cloud(login, cloud));
    if without_default_flag(&rest) == without_default_flag(&old) {
        return before.map(str::to_owned);
    }
    if rest.len() == n_logins {
        return Some(profile.to_owned());
    }
    if !rest.iter().any(is_default_subscription)
        && let Some(used) = old.iter().find(|login| is_default_subscription(login))
    {
        let found = rest.iter_mut().find(|login| login["id"] == used["id"]);
        found.into_iter().for_each(|login| login["isDefault"] = Value::Bool(true));
    }
    value["subscriptions"] = Value::Array(rest);
    Some(format!("{BOM}{value}"))
}

/// The token list without those of these principals; `None` if it has none of them.
pub fn without_principals(tokens: &str, principals: &[String]) -> Option<String> {
    let Value::Array(all) = parse(tokens) else { return None };
    let is_theirs = |entry: &Value| {
        let name = entry["servicePrincipalId"].as_str().unwrap_or_default();
        principals.iter().any(|principal| principal == name)
    };
    let rest: Vec<Value> = all.iter().filter(|entry| !is_theirs(entry)).cloned().collect();
    (rest.len() < all.len()).then(|| Value::Array(rest).to_string())
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text.trim_start_matches(BOM)).unwrap_or_default()
}

fn subscriptions(profile: &Value) -> Vec<Value> {
    profile["subscriptions"].as_array().cloned().unwrap_or_default()
}

fn is_of_cloud(login: &Value, cloud: &str) -> bool {
    login["environmentName"].as_str() == Some(cloud)
}

fn is_default_subscription(login: &Value) -> bool {
    login["isDefault"].as_bool().unwrap_or(false)
}

/// The logins with the default flag cleared, for comparisons.
fn without_default_flag(logins: &[Value]) -> Vec<Value> {
    let clear = |login: &Value| {
        let mut login = login.clone();
        login["isDefault"] = Value::Null;
        login
    };
    logins.iter().map(clear).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn login(id: &str, cloud: &str, is_default: bool) -> Value {
        json!({"id": id, "environmentName": cloud, "isDefault": is_default, "user": {"name": format!("of-{id}")}})
    }

    fn profile(logins: &[Value]) -> String {
        format!("{BOM}{}", json!({"subscriptions": logins, "installationId": "i"}))
    }

    #[test]
    fn the_previous_default_subscription_is_restored() {
        let before = format!("{BOM}{{\"subscriptions\":  [{}]}}", login("a", "AzureCloud", true));
        let now = profile(&[login("a", "AzureCloud", false), login("c", "corro", true)]);
        assert_eq!(principals(&now, "corro"), ["of-c"]);
        assert_eq!(without_cloud(&now, Some(&before), "corro"), Some(before.clone()));
        // Later logins at other clouds stay.
        let more =
            profile(&[login("a", "AzureCloud", false), login("b", "AzureCloud", false), login("c", "corro", true)]);
        let expected = profile(&[login("a", "AzureCloud", true), login("b", "AzureCloud", false)]);
        assert_eq!(without_cloud(&more, Some(&before), "corro"), Some(expected));
        let other = profile(&[login("b", "AzureCloud", true)]);
        assert_eq!(without_cloud(&other, Some(&before), "corro"), Some(other.clone()));
    }

    #[test]
    fn a_profile_that_did_not_exist_is_removed() {
        assert_eq!(without_cloud(&profile(&[login("c", "corro", true)]), None, "corro"), None);
        assert_eq!(without_cloud("", None, "corro"), None);
        assert_eq!(without_cloud("\u{feff}{}", Some("\u{feff}{}"), "corro"), Some("\u{feff}{}".to_owned()));
    }

    #[test]
    fn only_passwords_of_our_principals_are_removed() {
        let entry = |id: &str| json!({"servicePrincipalId": id, "accessToken": "hush"});
        let tokens = json!([entry("of-a"), entry("of-c"), {"userId": "me"}]).to_string();
        let expected = json!([entry("of-a"), {"userId": "me"}]).to_string();
        assert_eq!(without_principals(&tokens, &["of-c".to_owned()]), Some(expected));
        assert_eq!(without_principals(&tokens, &[]), None);
        assert_eq!(without_principals("not JSON", &["of-c".to_owned()]), None);
    }
}
