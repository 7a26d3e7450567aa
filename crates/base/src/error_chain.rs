//! The text of an error with its causes.

use std::error::Error;

/// The error and its causes in one line: `cannot do this: because of that`. A cause whose text the error before it already
/// repeats, as some libraries do, is left out.
pub fn join(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// The texts of the causes of an error, outermost first, without those that the one before already repeats.
pub fn causes(error: &dyn Error) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for cause in std::iter::successors(error.source(), |cause| (*cause).source()) {
        let text = cause.to_string();
        if !texts.last().is_some_and(|last| last.contains(&text)) {
            texts.push(text);
        }
    }
    texts
}

/// The text of the innermost cause, or of the error itself where it has none.
pub fn root_cause(error: &dyn Error) -> String {
    let innermost = std::iter::successors(error.source(), |cause| (*cause).source()).last();
    innermost.map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn causes_follow_their_error_and_repetitions_are_left_out() {
        let error = Layer("connect: refused", Some(Box::new(Layer("refused", Some(Box::new(Layer("port 1", None)))))));
        assert_eq!(join(&error), "connect: refused: port 1");
        assert_eq!(causes(&error), ["refused", "port 1"]);
        assert_eq!(root_cause(&error), "port 1");
        let alone = Layer("alone", None);
        assert_eq!((join(&alone), root_cause(&alone)), ("alone".to_owned(), "alone".to_owned()));
    }
}
