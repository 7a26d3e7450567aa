//! Resource groups and their tag filter.

use corro_model::ApiError;
use corro_model::arm::*;
use corro_model::batchai::Page;
use corro_model::ops::*;

use super::{POLL_HOLD_TIME, Result, operation_by_location};
use crate::app::App;
use crate::http::arm_request::ArmRequest;
use crate::http::response::{ArmResponse, PollUrls};

pub async fn create_group(app: App, request: ArmRequest<GroupCreateParameters>) -> Result<Group> {
    let (group, created) = app.create_group(request.param("group"), request.body).await?;
    Ok(if created { ArmResponse::Created(group) } else { ArmResponse::Ok(group) })
}

pub async fn update_group(app: App, request: ArmRequest<GroupUpdateParameters>) -> Result<Group> {
    Ok(ArmResponse::Ok(app.update_group(request.param("group"), request.body).await?))
}

pub async fn get_group(app: App, request: ArmRequest<NoBody>) -> Result<Group> {
    Ok(ArmResponse::Ok(app.group(&request.param("group"))?))
}

pub async fn check_group(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    Ok(if app.group(&request.param("group")).is_ok() { ArmResponse::NoContent } else { ArmResponse::NotFound })
}

pub async fn list_groups(app: App, request: ArmRequest<NoBody>) -> Result<Page<Group>> {
    let filter = request.query("$filter").map(parse_tag_filter).transpose()?;
    let tag = filter.as_ref().map(|(name, value)| (name.as_str(), value.as_deref()));
    Ok(ArmResponse::Ok(request.page(app.filter_readable(app.groups(tag), |group| &group.id), |group| &group.name)?))
}

/// Parses `tagname eq 'a' and tagvalue eq 'b'`; the second half is optional. A quote inside a value is doubled.
fn parse_tag_filter(filter: &str) -> std::result::Result<(String, Option<String>), ApiError> {
    let read = || {
        let (name, rest) = comparison(filter, "tagname")?;
        let Some(rest) = rest.strip_prefix("and").filter(|rest| rest.starts_with(char::is_whitespace)) else {
            return rest.is_empty().then_some((name, None));
        };
        let (value, rest) = comparison(rest, "tagvalue")?;
        rest.is_empty().then_some((name, Some(value)))
    };
    read().ok_or_else(|| {
        let message = format!("'{filter}' is not a supported filter: use tagname eq 'A' and tagvalue eq 'B'");
        ApiError::new(400, "InvalidFilterInQueryString", message).about("$filter")
    })
}

/// Parses `NAME eq 'VALUE'` at the start of `text`; returns the value and the rest.
pub(super) fn comparison<'a>(text: &'a str, name: &str) -> Option<(String, &'a str)> {
    let text =
        text.trim_start().strip_prefix(name)?.trim_start().strip_prefix("eq")?.trim_start().strip_prefix('\'')?;
    let (mut value, mut rest) = (String::new(), text);
    loop {
        let (part, after) = rest.split_once('\'')?;
        value.push_str(part);
        match after.strip_prefix('\'') {
            Some(more) => {
                value.push('\'');
                rest = more;
            }
            None => return Some((value, after.trim())),
        }
    }
}

pub async fn delete_group(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    let operation = app.delete_group(request.param("group")).await?;
    let path =
        path_of::<GroupOperation>(&[("subscription", &app.installation.subscription), ("operation", &operation)]);
    let location = format!("{}{path}?api-version={GROUPS_VERSION}", request.base_url);
    Ok(ArmResponse::Accepted(PollUrls { async_operation: None, location }))
}

pub async fn group_operation(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    app.wait_for_operation(&request.param("operation"), POLL_HOLD_TIME).await;
    operation_by_location(&app, &request, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_filters_are_parsed_with_any_value() {
        let check = |filter: &str, expected: Option<(&str, Option<&str>)>| {
            let read = parse_tag_filter(filter).ok();
            let read = read.as_ref().map(|(name, value)| (name.as_str(), value.as_deref()));
            assert_eq!(read, expected, "{filter}");
        };
        check("tagname eq 'a'", Some(("a", None)));
        check(" tagname  eq 'a'  and tagvalue eq 'b' ", Some(("a", Some("b"))));
        let inside = "tagname eq 'salt and pepper' and tagvalue eq 'x and tagvalue eq y'";
        check(inside, Some(("salt and pepper", Some("x and tagvalue eq y"))));
        check("tagname eq 'it''s' and tagvalue eq ''", Some(("it's", Some(""))));
        check("tagname eq ''''", Some(("'", None)));
        let more = "tagname eq 'a' and tagvalue eq 'b' x";
        for wrong in ["", "tagname", "tagname eq a", "tagname eq 'a", "tagname eq 'a' or 'b'", "tagvalue eq 'b'", more]
        {
            check(wrong, None);
        }
    }
}
