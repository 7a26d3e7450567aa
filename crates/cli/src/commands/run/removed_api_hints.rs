//! Hints for scripts that use APIs which Keras and TensorFlow have removed: the replacement, found by the error message in a rank's last output.
//! Pure.

/// Text in Python's error message, and the hint.
const REMOVED_APIS: [(&str, &str); 14] = [
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

/// The hint for the last lines of a failed rank; `None` if they mention no removed API.
pub fn find_hint(last_lines: &[String]) -> Option<String> {
    let contains = |needle: &str| last_lines.iter().rev().any(|line| line.contains(needle));
    let (_, replacement) = REMOVED_APIS.iter().find(|(needle, _)| contains(needle))?;
    Some(format!("{replacement}. To run the script as it is: corro run --compat keras-2018 …"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replacement_is_named() {
        let words = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let traceback = "Traceback (most recent call last):\n  File \"a.py\", line 20, in <module>\n    config = tf.ConfigProto()\n             ^^^^^^^^^^^^^^\nAttributeError: module 'tensorflow' has no attribute 'ConfigProto'";
        let hint = find_hint(&words(traceback)).expect("it is known");
        assert_eq!(
            hint,
            "tf.ConfigProto is gone: use tf.config.set_visible_devices. To run the script as it is: corro run --compat keras-2018 …"
        );
        assert_eq!(find_hint(&words("AttributeError: module 'mine' has no attribute 'other'")), None);
        assert_eq!(find_hint(&[]), None);
    }
}
