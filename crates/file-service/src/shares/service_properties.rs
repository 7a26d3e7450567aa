//! Settings of an account's file service: metrics, rules for browsers, the SMB protocol. Kept and told again; nothing
//! here measures or speaks SMB. A part that a request leaves out stays as it was.

use std::fmt::Write;

use axum::{body::Body, response::Response};
use corro_shares::Properties;

use crate::context::Context;
use crate::limits::request_body;
use crate::protocol::error::Refusal;
use crate::protocol::xml_parse::{self, Element};
use crate::protocol::{response, xml};

/// The name the whole is kept under with the account.
const KEPT: &str = "service-properties";
/// All of it must fit beside nothing else into what an account can keep.
const MAX_KEPT: usize = 12 << 10;
const MAX_BODY: u64 = 64 << 10;
const MAX_RULES: usize = 5;
const MAX_DAYS: u32 = 365;

/// The parts there are, with what they are before anybody sets them.
const PARTS: [(&str, &str); 4] = [
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
/// Since this version there are settings of the protocol.
const PROTOCOL_VERSION: &str = "2020-02-10";

pub(crate) async fn get(context: Context<'_>) -> Result<Response, Refusal> {
    let properties = context.on_disk(|shares, place| shares.account_properties(&place.account)).await?;
    let kept = properties.get(KEPT).and_then(xml_parse::parse).unwrap_or_default();
    let mut text = format!("{}<StorageServiceProperties>", xml::DECLARATION);
    for (name, usual) in PARTS {
        if name == "ProtocolSettings" && context.call.version.as_str() < PROTOCOL_VERSION {
            continue;
        }
        match kept.child(name) {
            Some(part) => write_element(&mut text, part),
            None => text.push_str(usual),
        }
    }
    text.push_str("</StorageServiceProperties>");
    Ok(response::document(text))
}

pub(crate) async fn set(context: Context<'_>, body: Body) -> Result<Response, Refusal> {
    let body = request_body::read_whole(context.call, body, MAX_BODY).await?;
    let said = parse(&body)?;
    let fits = context
        .on_disk(move |shares, place| {
            let mut fits = true;
            shares.change_account_properties(&place.account, |properties| {
                let mut kept = properties.get(KEPT).and_then(xml_parse::parse).unwrap_or_default();
                kept.children.retain(|part| said.iter().all(|new| new.name != part.name));
                kept.children.extend(said);
                kept.name = "P".to_owned();
                let mut text = String::new();
                write_element(&mut text, &kept);
                fits = text.len() <= MAX_KEPT && properties.set(KEPT, &text);
            })?;
            Ok(fits)
        })
        .await?;
    match fits {
        true => Ok(response::empty(202)),
        false => Err(Refusal::new("InvalidXmlDocument").saying("The settings are longer than 12 KiB.")),
    }
}

/// The rules for browsers among what is kept with an account.
pub(crate) fn cors_in(properties: &Properties) -> Option<Element> {
    let kept = properties.get(KEPT).and_then(xml_parse::parse)?;
    kept.children.into_iter().find(|part| part.name == "Cors")
}

fn parse(body: &[u8]) -> Result<Vec<Element>, Refusal> {
    let root = std::str::from_utf8(body).ok().and_then(xml_parse::parse);
    let root = root.filter(|root| root.name == "StorageServiceProperties").ok_or(Refusal::new("InvalidXmlDocument"))?;
    let mut parts: Vec<Element> = Vec::new();
    for element in &root.children {
        if parts.iter().any(|part| part.name == element.name) {
            return Err(Refusal::new("InvalidXmlDocument").saying(format!("{} stands there twice.", element.name)));
        }
        parts.push(match element.name.as_str() {
            "HourMetrics" | "MinuteMetrics" => metrics(element)?,
            "Cors" => cors(element)?,
            "ProtocolSettings" => protocol(element)?,
            name => {
                let message = format!("The file service has no settings named {name}.");
                return Err(Refusal::new("UnsupportedXmlNode").saying(message));
            }
        });
    }
    Ok(parts)
}

fn metrics(element: &Element) -> Result<Element, Refusal> {
    let mut children = vec![leaf("Version", needed(element, "Version")?), flag(element, "Enabled")?];
    let is_on = children[1].text == "true";
    if is_on || element.child("IncludeAPIs").is_some() {
        children.push(flag(element, "IncludeAPIs")?);
    }
    let retention = element.child("RetentionPolicy").ok_or_else(|| missing("RetentionPolicy"))?;
    let mut policy = vec![flag(retention, "Enabled")?];
    if policy[0].text == "true" {
        let days = needed(retention, "Days")?.parse::<u32>().ok().filter(|days| (1..=MAX_DAYS).contains(days));
        policy.push(leaf("Days", &days.ok_or_else(|| wrong("Days"))?.to_string()));
    }
    children.push(branch("RetentionPolicy", policy));
    Ok(branch(&element.name, children))
}

fn cors(element: &Element) -> Result<Element, Refusal> {
    let mut rules = Vec::new();
    for rule in &element.children {
        if rule.name != "CorsRule" {
            return Err(Refusal::new("UnsupportedXmlNode").saying(format!("{} is no rule of Cors.", rule.name)));
        }
        let age = needed(rule, "MaxAgeInSeconds")?.parse::<u32>().map_err(|_| wrong("MaxAgeInSeconds"))?;
        rules.push(branch(
            "CorsRule",
            vec![
                leaf("AllowedOrigins", needed(rule, "AllowedOrigins")?),
                leaf("AllowedMethods", needed(rule, "AllowedMethods")?),
                leaf("AllowedHeaders", rule.text_of("AllowedHeaders")),
                leaf("ExposedHeaders", rule.text_of("ExposedHeaders")),
                leaf("MaxAgeInSeconds", &age.to_string()),
            ],
        ));
    }
    match rules.len() > MAX_RULES {
        true => Err(Refusal::new("InvalidXmlDocument").saying("There can be 5 rules of Cors at most.")),
        false => Ok(branch("Cors", rules)),
    }
}

fn protocol(element: &Element) -> Result<Element, Refusal> {
    // The documentation writes it in one way, the clients in the other.
    let smb = element.child("SMB").or(element.child("Smb")).ok_or_else(|| missing("SMB"))?;
    let mut children = Vec::new();
    if let Some(multichannel) = smb.child("Multichannel") {
        children.push(branch("Multichannel", vec![flag(multichannel, "Enabled")?]));
    }
    Ok(branch("ProtocolSettings", vec![branch("SMB", children)]))
}

fn needed<'e>(element: &'e Element, name: &'static str) -> Result<&'e str, Refusal> {
    match element.text_of(name) {
        "" => Err(missing(name)),
        text => Ok(text),
    }
}

/// True or false; older clients write them with a capital.
fn flag(element: &Element, name: &'static str) -> Result<Element, Refusal> {
    match needed(element, name)?.to_ascii_lowercase().as_str() {
        word @ ("true" | "false") => Ok(leaf(name, word)),
        _ => Err(wrong(name)),
    }
}

fn missing(name: &'static str) -> Refusal {
    Refusal::new("MissingRequiredXmlNode").saying(format!("The settings need {name}."))
}

fn wrong(name: &'static str) -> Refusal {
    Refusal::new("InvalidXmlNodeValue").saying(format!("{name} has a value that cannot be used."))
}

fn leaf(name: &str, text: &str) -> Element {
    Element { name: name.to_owned(), text: text.to_owned(), children: Vec::new() }
}

fn branch(name: &str, children: Vec<Element>) -> Element {
    Element { name: name.to_owned(), text: String::new(), children }
}

/// In printable ASCII, for it is kept as a property.
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
