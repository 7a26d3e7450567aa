//! Lines printed by real frameworks, with the expected metrics.

use super::*;

/// Renders epoch, step/total and values as `1 12/390 loss=1.5 acc=97.5%`; empty for a line without metrics.
fn render(line: &str) -> String {
    let Some(parsed) = parse(line) else { return String::new() };
    let text = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| x.to_string());
    let of = parsed.step_total.map_or_else(String::new, |of| format!("/{of}"));
    let samples = if parsed.steps_are_samples { " samples" } else { "" };
    let rank = parsed.rank.map_or_else(String::new, |rank| format!("rank {rank}: "));
    let one = |v: &Value| format!(" {}={}{}", v.name, (v.value * 1e6).round() / 1e6, v.unit.unwrap_or_default());
    let values: String = parsed.values.iter().map(one).collect();
    format!("{rank}{} {}{of}{samples}{values}", text(parsed.epoch), text(parsed.step))
}

fn check(line: &str, expected: &str) {
    assert_eq!(render(line), expected, "{line}");
}

#[test]
fn keras_2() {
    check("Epoch 3/10", "3 -");
    check(
        "  12/1563 [>.............................] - ETA: 9:16 - loss: 2.3316 - acc: 0.1016",
        "- 12/1563 loss=2.3316 acc=0.1016",
    );
    check(
        "1563/1563 [==============================] - 42s 20ms/step - loss: 1.9312 - acc: 0.2893 - val_loss: 1.6042 - val_acc: 0.4123",
        "- 1563/1563 steps_per_second=50steps/s loss=1.9312 acc=0.2893 val_loss=1.6042 val_acc=0.4123",
    );
    check("   53/Unknown - 3s 12ms/step - loss: 1.0000e-03", "- - steps_per_second=83.333333steps/s loss=0.001");
    check(
        "390/390 - 3s - loss: 1.5 - accuracy: 0.5 - 3s/epoch - 10ms/step",
        "- 390/390 loss=1.5 accuracy=0.5 steps_per_second=100steps/s",
    );
    check(" - 3s - loss: 1.5 - acc: 0.5", "- - loss=1.5 acc=0.5");
    check(
        "5/5 [==============================] - 13s 2s/step - loss: nan",
        "- 5/5 steps_per_second=0.5steps/s loss=NaN",
    );
    check("10000/10000 [==============================] - 2s 231us/step", "");
    check("Epoch 00001: val_loss improved from inf to 0.51234, saving model to /tmp/ckpt-01-0.51.h5", "1 -");
}

#[test]
fn keras_3() {
    check(
        "12/390 ━━━━━━━━━━━━━━━━━━━━ 3s 10ms/step - accuracy: 0.1016 - loss: 2.3316",
        "- 12/390 steps_per_second=100steps/s accuracy=0.1016 loss=2.3316",
    );
    check(
        "390/390 ━━━━━━━━━━━━━━━━━━━━ 5s 10ms/step - accuracy: 0.3 - loss: 1.9 - val_accuracy: 0.4 - val_loss: 1.6 - learning_rate: 0.0010",
        "- 390/390 steps_per_second=100steps/s accuracy=0.3 loss=1.9 val_accuracy=0.4 val_loss=1.6 learning_rate=0.001",
    );
}

#[test]
fn pytorch_examples() {
    check("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300038", "1 640/60000 samples loss=2.300038");
    check("Test set: Average loss: 0.0489, Accuracy: 9835/10000 (98%)", "- - test_loss=0.0489 test_accuracy=0.9835");
    check(
        "Epoch: [0][  10/5005]\tTime  0.331 ( 0.909)\tData  0.000 ( 0.270)\tLoss 6.9875e+00 (7.0001e+00)\tAcc@1   0.00 (  0.14)",
        "0 10/5005 loss=6.9875 acc@1=0",
    );
    check("Epoch [1/5], Step [100/600], Loss: 0.2213", "1 100/600 loss=0.2213");
    check("Iter #0: 123.4 img/sec per GPU", "- 0 images_per_second=123.4images/s");
    check("step 250: train loss 2.4, val loss 2.5", "- 250 train_loss=2.4 val_loss=2.5");
    check("iter 10: loss 4.25, time 233.1ms, mfu 3.50%", "- 10 loss=4.25 mfu=3.5%");
    check("epoch 2 loss: tensor(0.25, grad_fn=<NllLossBackward>)", "2 - loss=0.25");
}

#[test]
fn tqdm_and_lightning() {
    check(
        " 12%|█▏        | 12/100 [00:01<00:10,  8.50it/s, loss=0.1, acc=0.9]",
        "- 12/100 steps_per_second=8.5steps/s loss=0.1 acc=0.9",
    );
    check(
        "Epoch 0:  50%|█████     | 50/100 [00:01<00:01, 45.2it/s, v_num=0, train_loss_step=0.5, foo=3]",
        "0 50/100 steps_per_second=45.2steps/s train_loss_step=0.5 foo=3",
    );
    check(
        "Epoch 1/3:  12%|█▏        | 12/100 [00:01<00:10,  2.00s/it, loss=0.1]",
        "1 12/100 steps_per_second=0.5steps/s loss=0.1",
    );
    check(
        "Epoch 3/9 ━━━━━━━━━━━━━━━━━ 100/100 0:00:01 • 0:00:00 45.20it/s v_num: 0.000 train_loss: 0.512",
        "3 100/100 steps_per_second=45.2steps/s train_loss=0.512",
    );
    check(" 12%|█▏        | 12/100 [00:01<00:10,  8.50it/s]", "- 12/100 steps_per_second=8.5steps/s");
    check("12it [00:01,  8.50it/s, loss=0.5]", "- 12 steps_per_second=8.5steps/s loss=0.5");
    check("Validation DataLoader 0: 100%|██████████| 10/10 [00:00<00:00, 45.2it/s]", "");
    check("Downloading: 100%|██████████| 170M/170M [00:02<00:00, 60.1MB/s]", "");
    check("Map: 100%|██████████| 1000/1000 [00:00<00:00, 9999.1 examples/s]", "");
}

#[test]
fn hugging_face() {
    check(
        "{'loss': 0.5, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 1.0}",
        "1 - loss=0.5 grad_norm=1.25 learning_rate=0.00005",
    );
    check("{'loss': '0.5', 'epoch': '1.5'}", "1.5 - loss=0.5");
    check(
        "{'eval_loss': 0.25, 'eval_accuracy': 0.75, 'eval_runtime': 12.5, 'eval_samples_per_second': 81.2, 'epoch': 2.0}",
        "2 - eval_loss=0.25 eval_accuracy=0.75 eval_runtime=12.5s eval_samples_per_second=81.2samples/s",
    );
}

#[test]
fn names_and_values() {
    check("step=10 loss=0.5 reward_x=3", "- 10 loss=0.5 reward_x=3");
    check("epoch=3, val_loss=0.25, lr=1e-3", "3 - val_loss=0.25 lr=0.001");
    check("2026-11-16 18:20:11,123 INFO trainer.py:42 step: 7 loss: 0.5", "- 7 loss=0.5");
    check("loss=0.5", "- - loss=0.5");
    check("Validation accuracy: 97.5%", "- - val_accuracy=97.5%");
    check(r#"{"step": 4, "loss": 0.5}"#, "- 4 loss=0.5");
    check(r#"{"corro": {"step": 10, "x": 0.5}}"#, "- 10 x=0.5");
}

#[test]
fn launcher_prefixes_give_the_rank() {
    check("[1,3]<stdout>:step=10 loss=0.5", "rank 3: - 10 loss=0.5");
    check("[2]<stderr>:loss=0.5", "rank 2: - - loss=0.5");
    check("[rank1]: loss=0.5", "rank 1: - - loss=0.5");
    check("rank 4: loss=0.5", "rank 4: - - loss=0.5");
    check("[1,0]<stdout>: 1/20 [>....] - ETA: 1s - loss: 1.5", "rank 0: - 1/20 loss=1.5");
    check("[0] loss=0.5", "- - loss=0.5");
}

#[test]
fn unrelated_numbers_are_ignored() {
    for line in [
        "2026-11-16 18:20:11,123 INFO listening on 127.0.0.1:8080",
        "Namespace(lr=0.1, epochs=10, loss=3)",
        "lr=0.1 batch_size=32",
        "TensorFlow version: 2.16.1",
        "Downloading data from http://example.org:80/loss.npz",
        "11493376/11490434 [==============================] - 0s 0us/step",
        "saved /mnt/out/epoch=3-loss=0.25.ckpt",
        "pid: 4711, port: 8080, seed: 42",
        "WARNING: 3 of 4 ranks are late",
        "GPU 0: 80 C, 300W / 700W",
        "Model size: 102.5 MB, 25557032 parameters",
        "error: 3 files not found",
        "x_train shape: (50000, 32, 32, 3)",
        "",
        "{",
        "nan",
    ] {
        check(line, "");
    }
}
