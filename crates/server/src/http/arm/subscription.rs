//! Tenants, subscriptions, regions, providers, and the list of all resources.

use corro_model::ApiError;
use corro_model::arm::*;
use corro_model::batchai::{Page, Tags};
use corro_model::ops::*;

use super::Result;
use super::groups::comparison;
use crate::app::App;
use crate::http::arm_request::ArmRequest;
use crate::http::response::ArmResponse;

pub async fn tenants(app: App, _request: ArmRequest<NoBody>) -> Result<Page<Tenant>> {
    let tenant =
        Tenant { id: format!("/tenants/{}", app.installation.tenant), tenant_id: app.installation.tenant.to_string() };
    Ok(ArmResponse::Ok(Page::whole(vec![tenant])))
}

pub async fn list(app: App, _request: ArmRequest<NoBody>) -> Result<Page<Subscription>> {
    Ok(ArmResponse::Ok(Page::whole(vec![Subscription::new(&app.installation.subscription, &app.installation.tenant)])))
}

pub async fn get(app: App, _request: ArmRequest<NoBody>) -> Result<Subscription> {
    Ok(ArmResponse::Ok(Subscription::new(&app.installation.subscription, &app.installation.tenant)))
}

pub async fn locations(app: App, _request: ArmRequest<NoBody>) -> Result<Page<Location>> {
    let groups = app.filter_readable(app.groups(None), |group| &group.id);
    let in_use = groups.iter().map(|group| group.location.as_str());
    Ok(ArmResponse::Ok(Page::whole(corro_model::arm::locations(&app.installation.subscription, in_use))))
}

pub async fn providers(app: App, _request: ArmRequest<NoBody>) -> Result<Page<Provider>> {
    Ok(ArmResponse::Ok(Page::whole(corro_model::arm::providers(&app.installation.subscription))))
}

/// A provider; also the response to its registration, which always exists.
pub async fn provider(app: App, request: ArmRequest<NoBody>) -> Result<Provider> {
    Ok(ArmResponse::Ok(find_provider(&app, &request.param("provider"))?))
}

pub async fn unregister_provider(app: App, request: ArmRequest<NoBody>) -> Result<Provider> {
    let provider = find_provider(&app, &request.param("provider"))?;
    let message = format!("{} is part of this server and cannot be unregistered", provider.namespace);
    Err(ApiError::conflict("ProviderStays", message))
}

fn find_provider(app: &App, given: &str) -> std::result::Result<Provider, ApiError> {
    let providers = corro_model::arm::providers(&app.installation.subscription);
    let known: Vec<&str> = providers.iter().map(|provider| provider.namespace.as_str()).collect();
    let message = format!("The resource namespace '{given}' is invalid: this server has {}", known.join(", "));
    let found = providers.into_iter().find(|provider| provider.namespace.eq_ignore_ascii_case(given));
    found.ok_or_else(|| ApiError::new(404, "InvalidResourceNamespace", message))
}

/// Top-level resources: workspaces and storage accounts.
pub async fn resources(app: App, request: ArmRequest<NoBody>) -> Result<Page<GenericResource>> {
    let filter = request.query("$filter").filter(|text| !text.trim().is_empty()).map(parse_filter).transpose()?;
    let group = request.param("group");
    let group = (!group.is_empty()).then_some(group.as_str());
    let workspaces = app.workspaces(group)?.into_iter().map(|workspace| GenericResource {
        id: workspace.id,
        name: workspace.name,
        resource_type: workspace.kind,
        location: workspace.location,
        tags: workspace.tags,
        kind: None,
        sku: None,
    });
    let accounts = app.accounts(group, &request.base_url)?.into_iter().map(|account| GenericResource {
        id: account.id,
        name: account.name,
        resource_type: account.resource_type,
        location: account.location,
        tags: account.tags,
        kind: Some(account.kind),
        sku: Some(account.sku),
    });
    let wanted = |resource: &GenericResource| filter.as_ref().is_none_or(|filter| filter.matches(resource));
    let found: Vec<_> = workspaces.chain(accounts).filter(wanted).collect();
    let mut found = app.filter_readable(found, |resource| &resource.id);
    found.sort_by_cached_key(|resource| resource.id.to_lowercase());
    Ok(ArmResponse::Ok(request.page(found, |resource| &resource.id)?))
}

/// Conditions that a resource must meet; `None` accepts any.
#[derive(Debug, Default, PartialEq)]
struct Filter {
    group: Option<String>,
    name: Option<String>,
    location: Option<String>,
    resource_type: Option<String>,
    tag: Option<String>,
    tag_value: Option<String>,
}

impl Filter {
    fn matches(&self, resource: &GenericResource) -> bool {
        let is = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|w| w.eq_ignore_ascii_case(value));
        let group = resource.id.split('/').nth(4).unwrap_or_default();
        is(&self.group, group)
            && is(&self.name, &resource.name)
            && is(&self.location, &resource.location)
            && is(&self.resource_type, &resource.resource_type)
            && self.has_tag(&resource.tags)
    }

    fn has_tag(&self, tags: &Tags) -> bool {
        let value = self.tag.as_ref().map(|tag| tags.iter().find(|(name, _)| name.eq_ignore_ascii_case(tag)));
        match (value, &self.tag_value) {
            (None, _) => true,
            (Some(None), _) => false,
            (Some(Some(_)), None) => true,
            (Some(Some((_, value))), Some(wanted)) => value == wanted,
        }
    }
}

/// Parses `resourceGroup eq 'g' and name eq 'n'`, in any order.
fn parse_filter(filter: &str) -> std::result::Result<Filter, ApiError> {
    let read = || {
        let (mut found, mut rest) = (Filter::default(), filter.trim());
        loop {
            let field = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric())?];
            let (value, after) = comparison(rest, field)?;
            let slot = match field.to_ascii_lowercase().as_str() {
                "resourcegroup" => &mut found.group,
                "name" => &mut found.name,
                "location" => &mut found.location,
                "resourcetype" => &mut found.resource_type,
                "tagname" => &mut found.tag,
                "tagvalue" => &mut found.tag_value,
                _ => return None,
            };
            if slot.replace(value).is_some() {
                return None;
            }
            if after.is_empty() {
                return Some(found);
            }
            rest = after.strip_prefix("and").filter(|rest| rest.starts_with(char::is_whitespace))?.trim_start();
        }
    };
    read().ok_or_else(|| {
        let fields = "resourceGroup, name, location, resourceType, tagname, tagvalue";
        let message = format!("'{filter}' is not a supported filter: use FIELD eq 'VALUE' and ..., of {fields}");
        ApiError::new(400, "InvalidFilterInQueryString", message).about("$filter")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_filters_match_all_conditions() {
        let resource = GenericResource {
            id: "/subscriptions/s/resourceGroups/G/providers/Microsoft.BatchAI/workspaces/w".to_owned(),
            name: "w".to_owned(),
            resource_type: "Microsoft.BatchAI/workspaces".to_owned(),
            location: "eastus".to_owned(),
            tags: [("team".to_owned(), "it's us".to_owned())].into_iter().collect(),
            kind: None,
            sku: None,
        };
        let check = |filter: &str, expected: Option<bool>| {
            let taken = parse_filter(filter).ok().map(|filter| filter.matches(&resource));
            assert_eq!(taken, expected, "{filter}");
        };
        check("resourceGroup eq 'g'", Some(true));
        check("resourceGroup eq 'g' and name eq 'W' and location eq 'eastus'", Some(true));
        check("name eq 'other'", Some(false));
        check("resourceType eq 'microsoft.batchai/Workspaces'", Some(true));
        check("tagname eq 'team' and tagvalue eq 'it''s us'", Some(true));
        check("tagname eq 'team' and tagvalue eq 'them'", Some(false));
        check("tagname eq 'none'", Some(false));
        for wrong in
            ["x", "name", "name eq w", "size eq 'w'", "name eq 'a' or name eq 'b'", "name eq 'w' and name eq 'w'"]
        {
            check(wrong, None);
        }
    }
}
