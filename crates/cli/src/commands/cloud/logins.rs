//! What `az` remembers of logins: `azureProfile.json` (subscriptions of all clouds, one of them in use) and
//! `accessTokens.json` (passwords of service principals among them). A login at our cloud takes the mark "in use" from the
//! subscription of another; an undo gives it back, and forgets the login. Pure.

use serde_json::Value;

/// `az` begins the first of them so.
const MARK: char = '\u{feff}';

/// The service principals that are logged in at this cloud.
pub fn principals(profile: &str, cloud: &str) -> Vec<String> {
    let of_cloud = subscriptions(&parse(profile)).into_iter().filter(|login| is_of(login, cloud));
    of_cloud.filter_map(|login| Some(login["user"]["name"].as_str()?.to_owned())).collect()
}

/// The profile without logins of this cloud, or `before` itself where nothing else has changed.
pub fn without_cloud(profile: &str, before: Option<&str>, cloud: &str) -> Option<String> {
    let (mut value, old) = (parse(profile), subscriptions(&parse(before.unwrap_or_default())));
    let mut rest = subscriptions(&value);
    let n_all = rest.len();
    rest.retain(|login| !is_of(login, cloud));
    if unmarked(&rest) == unmarked(&old) {
        return before.map(str::to_owned);
    }
    if rest.len() == n_all {
        return Some(profile.to_owned());
    }
    if !rest.iter().any(is_in_use)
        && let Some(used) = old.iter().find(|login| is_in_use(login))
    {
        let found = rest.iter_mut().find(|login| login["id"] == used["id"]);
        found.into_iter().for_each(|login| login["isDefault"] = Value::Bool(true));
    }
    value["subscriptions"] = Value::Array(rest);
    Some(format!("{MARK}{value}"))
}

/// The list of tokens without those of these principals; `None` when none of them is there.
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
    serde_json::from_str(text.trim_start_matches(MARK)).unwrap_or_default()
}

fn subscriptions(profile: &Value) -> Vec<Value> {
    profile["subscriptions"].as_array().cloned().unwrap_or_default()
}

fn is_of(login: &Value, cloud: &str) -> bool {
    login["environmentName"].as_str() == Some(cloud)
}

fn is_in_use(login: &Value) -> bool {
    login["isDefault"].as_bool().unwrap_or(false)
}

/// Whichever is in use.
fn unmarked(logins: &[Value]) -> Vec<Value> {
    let unmark = |login: &Value| {
        let mut login = login.clone();
        login["isDefault"] = Value::Null;
        login
    };
    logins.iter().map(unmark).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn login(id: &str, cloud: &str, is_default: bool) -> Value {
        json!({"id": id, "environmentName": cloud, "isDefault": is_default, "user": {"name": format!("of-{id}")}})
    }

    fn profile(logins: &[Value]) -> String {
        format!("{MARK}{}", json!({"subscriptions": logins, "installationId": "i"}))
    }

    #[test]
    fn the_subscription_that_was_in_use_is_in_use_again() {
        let before = format!("{MARK}{{\"subscriptions\":  [{}]}}", login("a", "AzureCloud", true));
        let now = profile(&[login("a", "AzureCloud", false), login("c", "corro", true)]);
        assert_eq!(principals(&now, "corro"), ["of-c"]);
        assert_eq!(without_cloud(&now, Some(&before), "corro"), Some(before.clone()));
        // Somebody logged in elsewhere since: that stays, and so does what was never ours.
        let more =
            profile(&[login("a", "AzureCloud", false), login("b", "AzureCloud", false), login("c", "corro", true)]);
        let expected = profile(&[login("a", "AzureCloud", true), login("b", "AzureCloud", false)]);
        assert_eq!(without_cloud(&more, Some(&before), "corro"), Some(expected));
        let other = profile(&[login("b", "AzureCloud", true)]);
        assert_eq!(without_cloud(&other, Some(&before), "corro"), Some(other.clone()));
    }

    #[test]
    fn where_nothing_was_nothing_is_left() {
        assert_eq!(without_cloud(&profile(&[login("c", "corro", true)]), None, "corro"), None);
        assert_eq!(without_cloud("", None, "corro"), None);
        assert_eq!(without_cloud("\u{feff}{}", Some("\u{feff}{}"), "corro"), Some("\u{feff}{}".to_owned()));
    }

    #[test]
    fn passwords_of_our_principals_are_forgotten_and_no_others() {
        let entry = |id: &str| json!({"servicePrincipalId": id, "accessToken": "hush"});
        let tokens = json!([entry("of-a"), entry("of-c"), {"userId": "me"}]).to_string();
        let expected = json!([entry("of-a"), {"userId": "me"}]).to_string();
        assert_eq!(without_principals(&tokens, &["of-c".to_owned()]), Some(expected));
        assert_eq!(without_principals(&tokens, &[]), None);
        assert_eq!(without_principals("not JSON", &["of-c".to_owned()]), None);
    }
}
