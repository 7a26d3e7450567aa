//! Annotations of a job: a note, tags and a pin. They belong to no specification, and may change at any time. A Corro extension.

use serde::{Deserialize, Serialize};

use crate::ApiError;

const MAX_NOTE_CHARS: usize = 10_000;
const MAX_TAGS: usize = 20;
const MAX_TAG_CHARS: usize = 64;

/// What people have noted about a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobAnnotations {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
}

/// New values of annotations; those that are absent stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnnotationChanges {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
}

impl JobAnnotations {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl AnnotationChanges {
    /// Checks the new values and normalises them: without surrounding space, each tag once. The error names the field.
    pub fn normalized(self) -> Result<Self, ApiError> {
        let note = self.note.map(|note| note.trim().to_owned());
        if let Some(note) = &note {
            let length = note.chars().count();
            if length > MAX_NOTE_CHARS {
                let message = format!("the note has {length} characters: at most {MAX_NOTE_CHARS} are allowed");
                return Err(ApiError::invalid("note", message));
            }
            if note.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
                return Err(ApiError::invalid("note", "the note has a control character: remove it"));
            }
        }
        let tags = self.tags.map(normalize_tags).transpose()?;
        Ok(Self { note, tags, pinned: self.pinned })
    }

    /// Applies the changes; returns the names of the fields that became different.
    pub fn apply(self, annotations: &mut JobAnnotations) -> Vec<&'static str> {
        let mut changed = Vec::new();
        replace(&mut annotations.note, self.note, "note", &mut changed);
        replace(&mut annotations.tags, self.tags, "tags", &mut changed);
        replace(&mut annotations.pinned, self.pinned, "pinned", &mut changed);
        changed
    }
}

fn replace<T: PartialEq>(old: &mut T, new: Option<T>, name: &'static str, changed: &mut Vec<&'static str>) {
    if let Some(new) = new.filter(|new| new != old) {
        *old = new;
        changed.push(name);
    }
}

fn normalize_tags(tags: Vec<String>) -> Result<Vec<String>, ApiError> {
    let mut kept: Vec<String> = Vec::new();
    for tag in &tags {
        let tag = tag.trim();
        if tag.is_empty() || kept.iter().any(|other| other.eq_ignore_ascii_case(tag)) {
            continue;
        }
        if tag.chars().count() > MAX_TAG_CHARS {
            let message = format!("the tag '{tag}' is longer than {MAX_TAG_CHARS} characters: shorten it");
            return Err(ApiError::invalid("tags", message));
        }
        if tag.contains(',') || tag.chars().any(char::is_control) {
            let message = format!("the tag '{}' has a comma or a control character: remove it", tag.escape_default());
            return Err(ApiError::invalid("tags", message));
        }
        kept.push(tag.to_owned());
    }
    if kept.len() > MAX_TAGS {
        let message = format!("there are {} tags: at most {MAX_TAGS} are allowed", kept.len());
        return Err(ApiError::invalid("tags", message));
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(tags: &[&str]) -> AnnotationChanges {
        AnnotationChanges { tags: Some(tags.iter().map(|tag| (*tag).to_owned()).collect()), ..Default::default() }
    }

    #[test]
    fn tags_are_trimmed_unique_and_bounded() {
        let kept = tags(&[" a ", "b", "A", ""]).normalized().expect("valid");
        assert_eq!(kept, tags(&["a", "b"]));
        let many: Vec<String> = (0..=MAX_TAGS).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let long = "x".repeat(MAX_TAG_CHARS + 1);
        for wrong in [&many[..], &["a,b"], &["a\nb"], &[long.as_str()]] {
            let error = tags(wrong).normalized().expect_err("refused");
            assert_eq!((error.status, error.target.as_deref()), (400, Some("tags")), "{wrong:?}");
        }
    }

    #[test]
    fn notes_are_text_of_bounded_length() {
        let note = |text: &str| AnnotationChanges { note: Some(text.to_owned()), ..Default::default() }.normalized();
        assert_eq!(note(" two\nlines \n").expect("valid").note.as_deref(), Some("two\nlines"));
        assert!(note("bell\u{7}").is_err() && note(&"x".repeat(MAX_NOTE_CHARS + 1)).is_err());
        assert!(note(&"ü".repeat(MAX_NOTE_CHARS)).is_ok());
    }

    #[test]
    fn only_given_fields_change() {
        let mut annotations =
            JobAnnotations { note: "old".to_owned(), tags: vec!["a".to_owned()], ..Default::default() };
        assert_eq!(tags(&["a"]).apply(&mut annotations), [""; 0]);
        let pin = AnnotationChanges { pinned: Some(true), note: Some(String::new()), tags: None };
        assert_eq!(pin.apply(&mut annotations), ["note", "pinned"]);
        assert_eq!(annotations, JobAnnotations { note: String::new(), tags: vec!["a".to_owned()], pinned: true });
        let text = serde_json::to_string(&JobAnnotations::default()).expect("plain data");
        assert_eq!(text, "{}", "what is not set is not sent");
    }
}
