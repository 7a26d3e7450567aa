//! The steps of a page that a reader follows: commands to run and files to write. A test runs them.
//!
//! A block `sh` is run, `sh,norun` is only shown, `LANGUAGE,file=NAME` is written to a file, and the lines of a comment that opens with
//! `<!-- run` are run without being shown.

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

use crate::anchors::markdown_options;

/// One step of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Run(String),
    WriteFile { name: String, text: String },
}

/// Steps of a page, in order.
pub fn steps(markdown: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut info = None;
    let mut text = String::new();
    for event in Parser::new_ext(markdown, markdown_options()) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(words))) => info = Some(words.to_string()),
            Event::Text(part) if info.is_some() => text.push_str(&part),
            Event::End(TagEnd::CodeBlock) => {
                let text = std::mem::take(&mut text);
                steps.extend(info.take().and_then(|info| step_of(&info, text)));
            }
            Event::Start(Tag::HtmlBlock) => text.clear(),
            Event::Html(part) => text.push_str(&part),
            Event::End(TagEnd::HtmlBlock) => {
                let commands = text.trim().strip_prefix("<!-- run").and_then(|rest| rest.strip_suffix("-->"));
                steps.extend(commands.map(|commands| Step::Run(commands.trim_start().to_owned())));
                text.clear();
            }
            _ => {}
        }
    }
    steps
}

fn step_of(info: &str, text: String) -> Option<Step> {
    let (language, attribute) = info.split_once(',').map_or((info, ""), |(language, rest)| (language, rest.trim()));
    if let Some(name) = attribute.strip_prefix("file=") {
        return Some(Step::WriteFile { name: name.to_owned(), text });
    }
    (language == "sh" && attribute.is_empty()).then_some(Step::Run(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_commands_files_and_hidden_commands() {
        let markdown = "# Page\n\n<!-- run\ncorro group create -n g\n-->\n\n```json,file=job.json\n{}\n```\n\n```sh\ncorro a\ncorro b\n```\n\n\
                        ```sh,norun\nssh other\n```\n\n```text\nout\n```\n\n<!-- a remark -->\n";
        let run = |text: &str| Step::Run(text.to_owned());
        let expected = [
            run("corro group create -n g\n"),
            Step::WriteFile { name: "job.json".to_owned(), text: "{}\n".to_owned() },
            run("corro a\ncorro b\n"),
        ];
        assert_eq!(steps(markdown), expected);
    }
}
