"""The tutorial's training for PyTorch: the network, the optimizer and the schedule of cifar10_keras.py, with Horovod.

Run once for each rank, by a job (job.json beside it) or by `corro run -np 4 python cifar10_torch.py --dir out`. Uses the
GPU of its local rank where there is one; images are then shifted and mirrored on it. `--compile` makes PyTorch submit
fewer kernels. What Horovod needs is marked HOROVOD. Rank 0 alone writes.
"""
import argparse
import math
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import cifar10_data
import horovod.torch as hvd

batch_size = 32
num_classes = 10
model_name = "torch_cifar10_trained_model.pt"
# Batches that are prepared and scored together: a GPU gets a few large kernels instead of many small ones.
batches_at_once = 50


def main():
    args = parse()
    # HOROVOD: initialize Horovod.
    hvd.init()
    leads = hvd.rank() == 0
    # HOROVOD: pin the GPU of this local rank (one GPU per process).
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks_beside_each_other()))
    # HOROVOD: adjust the number of epochs to the number of ranks.
    epochs = args.epochs if args.epochs is not None else int(math.ceil(100.0 / hvd.size()))

    (x_train, y_train), (x_test, y_test) = load(args, device)
    if leads:
        print("x_train shape:", tuple(x_train.shape))
        print(x_train.shape[0], "train samples")
        print(x_test.shape[0], "test samples")
        print("Using real-time data augmentation.", flush=True)

    torch.manual_seed(args.seed + hvd.rank())
    model = network().to(device)
    forward = compiled(model, args.compile, device) if args.compile else model
    # HOROVOD: adjust the learning rate to the number of ranks. It falls as rate / (1 + decay * steps).
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.0001 * hvd.size(), alpha=0.9, eps=1e-7)
    # HOROVOD: add the Horovod Distributed Optimizer.
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 1e-6 * step))
    # HOROVOD: everybody begins with the weights and the optimizer of rank 0.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    mine = slice(hvd.rank(), None, hvd.size())
    for epoch in range(1, epochs + 1):
        if leads:
            print("Epoch %d/%d" % (epoch, epochs), flush=True)
        began = time.monotonic()
        loss, accuracy = train(model, forward, optimizer, schedule, x_train, y_train, args.steps, leads)
        # HOROVOD: every rank has looked at its part; what is shown is for all of them.
        figures = torch.tensor([loss, accuracy, *evaluate(model, x_test[mine], y_test[mine])])
        figures = hvd.allreduce(figures, name="figures").tolist()
        if leads:
            text = " - loss: %.4f - acc: %.4f - val_loss: %.4f - val_acc: %.4f" % tuple(figures)
            print("%ds%s" % (time.monotonic() - began, text), flush=True)

    if leads:
        # Save the weights.
        save_dir = os.path.join(args.dir, "saved_models")
        os.makedirs(save_dir, exist_ok=True)
        model_path = os.path.join(save_dir, model_name)
        torch.save({name: value.cpu() for name, value in model.state_dict().items()}, model_path)
        print("Saved trained model at %s " % model_path)
        # Score the trained model.
        loss, accuracy = evaluate(model, x_test, y_test)
        print("Test loss:", loss)
        print("Test accuracy:", accuracy, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-d", "--dir", required=True, help="directory to save the model to, in saved_models/")
    parser.add_argument("--data", default=os.environ.get("CIFAR10_DATA"),
                        help="CIFAR-10: an archive of its authors or a directory of batch files "
                             "[default: $CIFAR10_DATA, or what lies in --dir or beside this script]")
    parser.add_argument("--epochs", type=int, help="[default: 100 divided by the number of ranks]")
    parser.add_argument("--steps", type=int, help="batches an epoch [default: all]")
    parser.add_argument("--limit", type=int, help="use only the first images of the training and the test set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", nargs="?", const="reduce-overhead", choices=["default", "reduce-overhead", "cuda-graphs"],
                        metavar="MODE",
                        help="default or reduce-overhead: train with torch.compile in this mode (PyTorch 2.0 or later; "
                             "reduce-overhead uses CUDA graphs on a GPU). cuda-graphs: record forward and backward once "
                             "without a compiler (needs a GPU). [without MODE: reduce-overhead]")
    return parser.parse_args()


def ranks_beside_each_other():
    """Nodes of one machine share its processors."""
    hosts = os.environ.get("AZ_BATCH_HOST_LIST", "").split(",")
    return hvd.size() if all(host.startswith("127.") for host in hosts) else hvd.local_size()


def load(args, device):
    """Both sets on the device: images as bytes with the channels first, labels as numbers."""
    try:
        data = cifar10_data.find(args.data, args.dir, os.path.dirname(os.path.abspath(__file__)))
        sets = cifar10_data.load(data)
    except cifar10_data.DataError as error:
        raise SystemExit("cifar10_torch.py: %s with --data" % error)
    return [
        (torch.from_numpy(images[:args.limit]).permute(0, 3, 1, 2).contiguous().to(device),
         torch.from_numpy(labels[:args.limit, 0]).long().to(device))
        for images, labels in sets
    ]


def network():
    """Keras' weights at the beginning: Glorot's, and no bias."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 64, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * 6 * 6, 512), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(512, num_classes),
    )
    for layer in model:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return model


def compiled(model, mode, device):
    """The model as a function that submits less to the device, for batches of `batch_size` and for the last one of an
    epoch. Compiles now, so that no rank waits for another one's compiler in the first exchange. The weights stay those of
    the model, so Horovod reduces their gradients as before."""
    model.train()
    sample = torch.zeros(batch_size, 3, 32, 32, device=device)
    if mode == "cuda-graphs":
        if device.type != "cuda":
            unsupported("--compile cuda-graphs needs a GPU, and PyTorch finds none here. Use --compile default")
        plain = model.forward
        torch.cuda.make_graphed_callables(model, (sample,))
        # A graph is for one size of batches.
        return lambda images: model(images) if len(images) == batch_size else plain(images)
    if not hasattr(torch, "compile"):
        unsupported("--compile %s needs PyTorch 2.0 or later, and this is %s. Leave it out" % (mode, torch.__version__))
    begin_step = getattr(getattr(torch, "compiler", None), "cudagraph_mark_step_begin", lambda: None)

    def forward(images):
        begin_step()
        return optimized(images)

    try:
        optimized = torch.compile(model, mode=mode, dynamic=False)
        # The training begins with the same random numbers as without a compiler.
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            forward(sample).sum().backward()
    except Exception as error:
        # The reason is often a missing C++ compiler, or Triton on a GPU.
        unsupported("--compile %s is impossible here: %s: %s. Leave it out" % (mode, type(error).__name__, error))
    model.zero_grad()
    return forward


def unsupported(reason):
    raise SystemExit("cifar10_torch.py: %s." % reason)


def augment(images):
    """Shifts each image by up to a tenth, also by parts of a pixel, and mirrors half of them; edges are drawn out."""
    n, device = len(images), images.device
    where = torch.zeros(n, 2, 3, device=device)
    where[:, 0, 0] = torch.randint(0, 2, (n,), device=device) * 2.0 - 1
    where[:, 1, 1] = 1
    # Of the width, which is 2 in these coordinates.
    where[:, :, 2] = (torch.rand(n, 2, device=device) * 2 - 1) * 0.1 * 2
    grid = F.affine_grid(where, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def train(model, forward, optimizer, schedule, x, y, steps, leads):
    """One epoch over all images in a new order. Loss and accuracy over it."""
    model.train()
    order = torch.randperm(len(x), device=x.device)
    order = order[:steps * batch_size] if steps else order
    total, seen, step = torch.zeros(2, device=x.device), 0, 0
    progress = Progress(math.ceil(len(order) / batch_size)) if leads else None
    for chosen in order.split(batches_at_once * batch_size):
        images, labels = augment(x[chosen].float() / 255), y[chosen]
        outputs = torch.empty(len(chosen), num_classes, device=x.device)
        batches = zip(images.split(batch_size), labels.split(batch_size), outputs.split(batch_size))
        for batch, expected, kept in batches:
            optimizer.zero_grad()
            output = forward(batch)
            F.cross_entropy(output, expected).backward()
            optimizer.step()
            schedule.step()
            # Copied: the next step of a compiled model overwrites the output.
            kept.copy_(output.detach())
            step += 1
        total += scores(outputs, labels)
        seen += len(chosen)
        if progress and progress.is_due(step):
            progress.show(step, *(total / seen).tolist())
    return (total / seen).tolist()


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    total = torch.zeros(2, device=x.device)
    for images, labels in zip(x.split(1000), y.split(1000)):
        total += scores(model(images.float() / 255), labels)
    return (total / len(x)).tolist()


def scores(output, labels):
    """Sum of the loss, and number of images that are recognized."""
    return torch.stack([F.cross_entropy(output, labels, reduction="sum"), (output.argmax(1) == labels).sum()])


class Progress:
    """Keras' line of an epoch. Looking at a figure waits for the GPU, so it is done a few times a second only."""

    def __init__(self, steps):
        self.steps, self.began, self.shown = steps, time.monotonic(), 0.0

    def is_due(self, step):
        now = time.monotonic()
        if step < self.steps and now - self.shown < 0.5:
            return False
        self.shown = now
        return True

    def show(self, step, loss, accuracy):
        done = 30 * step // self.steps
        bar = "=" * 30 if step == self.steps else "=" * max(0, done - 1) + ">" + "." * (30 - max(1, done))
        left = (time.monotonic() - self.began) / step * (self.steps - step)
        width = len(str(self.steps))
        text = "%*d/%d [%s] - ETA: %ds - loss: %.4f - acc: %.4f" % (width, step, self.steps, bar, left, loss, accuracy)
        sys.stdout.write("\r" + text + ("\n" if step == self.steps else ""))
        sys.stdout.flush()


main()
