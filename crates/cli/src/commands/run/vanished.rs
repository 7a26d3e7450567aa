//! Names that scripts of 2018 use and today's Keras and TensorFlow no longer have: from a rank's last words, what to write
//! instead. Entered by `run` when a rank has failed. Pure; guesses nothing that the words do not say.

/// What Python says, and what stands there today.
const VANISHED: [(&str, &str); 14] = [
    ("has no attribute 'ConfigProto'", "tf.ConfigProto is gone: use tf.config.set_visible_devices"),
    ("module 'tensorflow' has no attribute 'Session'", "tf.Session is gone: TensorFlow 2 needs no session"),
    ("module 'tensorflow' has no attribute 'placeholder'", "tf.placeholder is gone: use keras.Input"),
    ("has no attribute 'set_session'", "K.set_session is gone: Keras needs no session"),
    ("cannot import name 'set_session'", "K.set_session is gone: Keras needs no session"),
    (
        "cannot import name 'ImageDataGenerator'",
        "ImageDataGenerator is gone: use keras.layers.RandomFlip, RandomTranslation, …",
    ),
    ("has no attribute 'rmsprop'", "keras.optimizers.rmsprop is now keras.optimizers.RMSprop"),
    ("module 'keras.optimizers' has no attribute 'sgd'", "keras.optimizers.sgd is now keras.optimizers.SGD"),
    ("module 'keras.optimizers' has no attribute 'adam'", "keras.optimizers.adam is now keras.optimizers.Adam"),
    ("Argument(s) not recognized: {'lr'", "an optimizer's lr is now learning_rate, and decay a learning rate schedule"),
    ("has no attribute 'fit_generator'", "model.fit_generator is gone: model.fit takes generators"),
    ("has no attribute 'evaluate_generator'", "model.evaluate_generator is gone: model.evaluate takes generators"),
    ("No module named 'keras.utils.np_utils'", "keras.utils.np_utils is now keras.utils"),
    ("No module named 'keras.layers.", "the parts of keras.layers are now keras.layers itself"),
];

/// For the last lines of a rank that failed; `None` when they do not speak of a name that has vanished.
pub fn advice(last_words: &[String]) -> Option<String> {
    let said = |needle: &str| last_words.iter().rev().any(|line| line.contains(needle));
    let (_, today) = VANISHED.iter().find(|(needle, _)| said(needle))?;
    Some(format!("{today}. To run the script as it is: corro run --compat keras-2018 …"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replacement_is_named() {
        let words = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let traceback = "Traceback (most recent call last):\n  File \"a.py\", line 20, in <module>\n    config = tf.ConfigProto()\n             ^^^^^^^^^^^^^^\nAttributeError: module 'tensorflow' has no attribute 'ConfigProto'";
        let said = advice(&words(traceback)).expect("it is known");
        assert_eq!(
            said,
            "tf.ConfigProto is gone: use tf.config.set_visible_devices. To run the script as it is: corro run --compat keras-2018 …"
        );
        assert_eq!(advice(&words("AttributeError: module 'mine' has no attribute 'other'")), None);
        assert_eq!(advice(&[]), None);
    }
}
