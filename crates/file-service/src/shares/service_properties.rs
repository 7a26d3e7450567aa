//! Service properties of an account: metrics, CORS rules, SMB settings. Stored and returned; only the CORS rules have
//! an effect. A section that a request leaves out keeps its value.

use std::fmt::Write;

use axum::{body::Body, response::Response};
use corro_shares::Properties;

use crate::context::OperationContext;
use crate::limits::request_body;
use crate::protocol::error::StorageError;
use crate::protocol::{response, xml};
use corro_model::xml::{Element, parse_small};

/// Property of the account that holds all sections as XML.
const STORED_PROPERTY: &str = "service-properties";
/// Must fit into the properties of an account.
const MAX_STORED_BYTES: usize = 12 << 10;
const MAX_BODY_BYTES: u64 = 64 << 10;
const MAX_CORS_RULES: usize = 5;
const MAX_RETENTION_DAYS: u32 = 365;

/// Sections and their defaults.
const SECTIONS: [(&str, &str); 4] = [
    (
        "HourMetrics",
        "<HourMetrics><Version>1.0</Version><Enabled>false</Enabled><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></HourMetrics>",
    ),
    (
        "MinuteMetrics",
        "<MinuteMetrics><Version>1.0</Version><Enabled>false</Enabled><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></MinuteMetrics>",
    ),
    ("Cors", "<Cors></Cors>"),
    (
        "ProtocolSettings",
        "<ProtocolSettings><SMB><Multichannel><Enabled>false</Enabled></Multichannel></SMB></ProtocolSettings>",
    ),
];
/// First API version with `ProtocolSettings`.
const PROTOCOL_VERSION: &str = "2020-02-10";

pub(crate) async fn get(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let properties = context.on_disk(|shares, location| shares.account_properties(&location.account)).await?;
    let stored = properties.get(STORED_PROPERTY).and_then(parse_small).unwrap_or_default();
    let mut text = format!("{}<StorageServiceProperties>", xml::DECLARATION);
    for (name, default) in SECTIONS {
        if name == "ProtocolSettings" && context.request.version.as_str() < PROTOCOL_VERSION {
            continue;
        }
        match stored.child(name) {
            Some(part) => write_element(&mut text, part),
            None => text.push_str(default),
        }
    }
    text.push_str("</StorageServiceProperties>");
    Ok(response::xml_document(text))
}

pub(crate) async fn set(context: OperationContext<'_>, body: Body) -> Result<Response, StorageError> {
    let body = request_body::read_whole(context.request, body, MAX_BODY_BYTES).await?;
    let sections = parse(&body)?;
    let fits = context
        .on_disk(move |shares, location| {
            let mut fits = true;
            shares.change_account_properties(&location.account, |properties| {
                let mut stored = properties.get(STORED_PROPERTY).and_then(parse_small).unwrap_or_default();
                stored.children.retain(|part| sections.iter().all(|new| new.name != part.name));
                stored.children.extend(sections);
                stored.name = "P".to_owned();
                let mut text = String::new();
                write_element(&mut text, &stored);
                fits = text.len() <= MAX_STORED_BYTES && properties.set(STORED_PROPERTY, &text);
            })?;
            Ok(fits)
        })
        .await?;
    match fits {
        true => Ok(response::empty(202)),
        false => {
            Err(StorageError::new("InvalidXmlDocument").with_message("The service properties are longer than 12 KiB."))
        }
    }
}

/// CORS rules among the properties of an account.
pub(crate) fn load_cors(properties: &Properties) -> Option<Element> {
    let stored = properties.get(STORED_PROPERTY).and_then(parse_small)?;
    stored.children.into_iter().find(|part| part.name == "Cors")
}

fn parse(body: &[u8]) -> Result<Vec<Element>, StorageError> {
    let root = std::str::from_utf8(body).ok().and_then(parse_small);
    let root =
        root.filter(|root| root.name == "StorageServiceProperties").ok_or(StorageError::new("InvalidXmlDocument"))?;
    let mut parts: Vec<Element> = Vec::new();
    for element in &root.children {
        if parts.iter().any(|part| part.name == element.name) {
            return Err(StorageError::new("InvalidXmlDocument")
                .with_message(format!("The element {} appears twice.", element.name)));
        }
        parts.push(match element.name.as_str() {
            "HourMetrics" | "MinuteMetrics" => parse_metrics(element)?,
            "Cors" => parse_cors(element)?,
            "ProtocolSettings" => parse_protocol(element)?,
            name => {
                let message = format!("The file service has no property {name}.");
                return Err(StorageError::new("UnsupportedXmlNode").with_message(message));
            }
        });
    }
    Ok(parts)
}

fn parse_metrics(element: &Element) -> Result<Element, StorageError> {
    let mut children =
        vec![text_element("Version", required_text(element, "Version")?), parse_flag(element, "Enabled")?];
    let is_on = children[1].text == "true";
    if is_on || element.child("IncludeAPIs").is_some() {
        children.push(parse_flag(element, "IncludeAPIs")?);
    }
    let retention = element.child("RetentionPolicy").ok_or_else(|| missing("RetentionPolicy"))?;
    let mut policy = vec![parse_flag(retention, "Enabled")?];
    if policy[0].text == "true" {
        let days = required_text(retention, "Days")?
            .parse::<u32>()
            .ok()
            .filter(|days| (1..=MAX_RETENTION_DAYS).contains(days));
        policy.push(text_element("Days", &days.ok_or_else(|| invalid("Days"))?.to_string()));
    }
    children.push(parent_element("RetentionPolicy", policy));
    Ok(parent_element(&element.name, children))
}

fn parse_cors(element: &Element) -> Result<Element, StorageError> {
    let mut rules = Vec::new();
    for rule in &element.children {
        if rule.name != "CorsRule" {
            return Err(StorageError::new("UnsupportedXmlNode")
                .with_message(format!("The element {} is not allowed in Cors.", rule.name)));
        }
        let age = required_text(rule, "MaxAgeInSeconds")?.parse::<u32>().map_err(|_| invalid("MaxAgeInSeconds"))?;
        rules.push(parent_element(
            "CorsRule",
            vec![
                text_element("AllowedOrigins", required_text(rule, "AllowedOrigins")?),
                text_element("AllowedMethods", required_text(rule, "AllowedMethods")?),
                text_element("AllowedHeaders", rule.child_text("AllowedHeaders")),
                text_element("ExposedHeaders", rule.child_text("ExposedHeaders")),
                text_element("MaxAgeInSeconds", &age.to_string()),
            ],
        ));
    }
    match rules.len() > MAX_CORS_RULES {
        true => Err(StorageError::new("InvalidXmlDocument").with_message("There can be at most 5 CORS rules.")),
        false => Ok(parent_element("Cors", rules)),
    }
}

fn parse_protocol(element: &Element) -> Result<Element, StorageError> {
    // The documentation and the clients spell it differently.
    let smb = element.child("SMB").or(element.child("Smb")).ok_or_else(|| missing("SMB"))?;
    let mut children = Vec::new();
    if let Some(multichannel) = smb.child("Multichannel") {
        children.push(parent_element("Multichannel", vec![parse_flag(multichannel, "Enabled")?]));
    }
    Ok(parent_element("ProtocolSettings", vec![parent_element("SMB", children)]))
}

fn required_text<'e>(element: &'e Element, name: &'static str) -> Result<&'e str, StorageError> {
    match element.child_text(name) {
        "" => Err(missing(name)),
        text => Ok(text),
    }
}

/// Older clients capitalize the value.
fn parse_flag(element: &Element, name: &'static str) -> Result<Element, StorageError> {
    match required_text(element, name)?.to_ascii_lowercase().as_str() {
        word @ ("true" | "false") => Ok(text_element(name, word)),
        _ => Err(invalid(name)),
    }
}

fn missing(name: &'static str) -> StorageError {
    StorageError::new("MissingRequiredXmlNode").with_message(format!("The element {name} is missing."))
}

fn invalid(name: &'static str) -> StorageError {
    StorageError::new("InvalidXmlNodeValue").with_message(format!("The element {name} has an invalid value."))
}

fn text_element(name: &str, text: &str) -> Element {
    Element { name: name.to_owned(), text: text.to_owned(), children: Vec::new() }
}

fn parent_element(name: &str, children: Vec<Element>) -> Element {
    Element { name: name.to_owned(), text: String::new(), children }
}

/// Writes printable ASCII only, because it is stored as a property.
fn write_element(text: &mut String, element: &Element) {
    let _ = write!(text, "<{}>", element.name);
    for c in xml::escape(&element.text).chars() {
        match c {
            ' '..='~' => text.push(c),
            c => {
                let _ = write!(text, "&#{};", u32::from(c));
            }
        }
    }
    element.children.iter().for_each(|child| write_element(text, child));
    let _ = write!(text, "</{}>", element.name);
}
