"""GPU tensors: every collective, the optimizer and SyncBatchNorm, also with streams. SPMD; several ranks may share one
GPU. Skipped without a GPU."""

import pytest
import torch
from torch import nn

import horovod.torch as hvd

if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

INIT: dict[str, str] = {}
hvd.init(**INIT)
RANK, SIZE = hvd.rank(), hvd.size()
DEVICE = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
torch.cuda.set_device(DEVICE)

DTYPES = [torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


def own(shape=(4, 3), dtype=torch.float32, rank=RANK):
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) % 5 + rank).to(dtype)


def of_all(shape=(4, 3), dtype=torch.float32):
    return torch.stack([own(shape, dtype, rank) for rank in range(SIZE)])


def same(tensor, expected):
    assert tensor.device == DEVICE
    assert torch.equal(tensor.cpu(), expected.to(tensor.dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (7,), (4, 3), (0, 2)])
def test_allreduce_and_broadcast(dtype, shape):
    given = own(shape, dtype).to(DEVICE)
    same(hvd.allreduce(given, op=hvd.Sum), of_all(shape, dtype).sum(0))
    same(given, own(shape, dtype))
    same(hvd.broadcast(given, SIZE - 1), own(shape, dtype, SIZE - 1))
    assert hvd.allreduce_(given, op=hvd.Sum) is given
    same(given, of_all(shape, dtype).sum(0))
    given = own(shape, dtype).to(DEVICE)
    same(hvd.broadcast_(given, SIZE - 1), own(shape, dtype, SIZE - 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_other_collectives(dtype):
    given = own((SIZE * 2, 3), dtype).to(DEVICE)
    every = of_all((SIZE * 2, 3), dtype)
    same(hvd.allgather(given), every.reshape(-1, 3))
    same(hvd.alltoall(given), torch.cat([part[RANK * 2 : RANK * 2 + 2] for part in every]))
    same(hvd.reducescatter(given, op=hvd.Sum), every.sum(0)[RANK * 2 : RANK * 2 + 2])
    splits = torch.full((SIZE,), 1, dtype=torch.int32, device=DEVICE)
    output, received = hvd.alltoall(given, splits)
    assert received.device == DEVICE and received.tolist() == [1] * SIZE
    same(output, every[:, RANK])
    for result in hvd.grouped_allreduce([given, given * 2], op=hvd.Sum)[:1]:
        same(result, every.sum(0))
    for result in hvd.grouped_allgather([given, given]):
        same(result, every.reshape(-1, 3))
    for result in hvd.grouped_reducescatter([given, given], op=hvd.Sum):
        same(result, every.sum(0)[RANK * 2 : RANK * 2 + 2])


def test_autograd():
    given = torch.ones(5, device=DEVICE, requires_grad=True)
    hvd.allreduce(given, op=hvd.Sum).sum().backward()
    same(given.grad, torch.full((5,), float(SIZE)))
    given = torch.ones(2, 2, device=DEVICE, requires_grad=True)
    hvd.allgather(given).sum().backward()
    same(given.grad, torch.ones(2, 2))


def test_compression():
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        same(hvd.allreduce(own().to(DEVICE), op=hvd.Sum, compression=compression), of_all().sum(0))


def slow_kernels(tensor):
    """Work that is still in the stream when the next line of Python runs."""
    noise = torch.ones(3000, 3000, device=DEVICE)
    for _ in range(20):
        noise = noise @ noise * 1e-4
    return tensor + 0 * noise.sum()


def test_copies_wait_for_pending_kernels():
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            given = slow_kernels(torch.full((100_000,), float(RANK + 1), device=DEVICE))
            result = hvd.allreduce(given, op=hvd.Sum)
            in_place = hvd.allreduce_(slow_kernels(given.clone()), op=hvd.Sum)
            doubled = result * 2
        stream.synchronize()
        total = float(sum(range(1, SIZE + 1)))
        assert (result == total).all() and (in_place == total).all() and (doubled == 2 * total).all()


@pytest.mark.skipif(SIZE < 2, reason="a rank alone agrees with itself")
def test_gpu_and_cpu_tensors_do_not_match():
    given = torch.ones(2, device=DEVICE if RANK == 0 else "cpu")
    with pytest.raises(hvd.HorovodInternalError, match="CPU/GPU device selection"):
        hvd.allreduce(given, name="device")
    same(hvd.allreduce(torch.ones(2, device=DEVICE), op=hvd.Sum), torch.full((2,), float(SIZE)))


def test_a_group_is_on_one_device():
    with pytest.raises(hvd.HorovodInternalError, match="Tensors in list must be on same device."):
        hvd.grouped_allreduce([torch.ones(2, device=DEVICE), torch.ones(2)])


def network():
    torch.manual_seed(3)
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 16, 4)]
    return nn.Sequential(*layers).double().to(DEVICE)


def images(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(4 * SIZE, 3, 8, 8, generator=generator, dtype=torch.float64).to(DEVICE)


OPTIONS = {
    "plain": {},
    "groups": {"groups": 2},
    "passes": {"backward_passes_per_step": 2},
    "predivide": {"gradient_predivide_factor": 2.0},
    "fp16": {"compression": hvd.Compression.fp16},
    "bf16 in groups": {"compression": hvd.Compression.bf16, "groups": 2},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("own_stream", [False, True])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_optimizer_like_one_process(options, own_stream, memory_format):
    passes = options.get("backward_passes_per_step", 1)
    tolerance = {hvd.Compression.fp16: 2e-3, hvd.Compression.bf16: 2e-2}.get(options.get("compression"), 1e-8)
    model, expected = network().to(memory_format=memory_format), network()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model.named_parameters(), **options
    )
    plain = torch.optim.SGD(expected.parameters(), lr=0.05, momentum=0.9)
    stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for step in range(4):
            optimizer.zero_grad()
            for _ in range(passes):
                model(images(step)[RANK * 4 : RANK * 4 + 4]).square().mean().backward()
            optimizer.step()
    stream.synchronize()
    for step in range(4):
        plain.zero_grad()
        for _ in range(passes):
            expected(images(step)).square().mean().backward()
        plain.step()
    for parameter, other in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(parameter.detach(), other.detach(), rtol=tolerance, atol=tolerance)


def test_a_gradient_scaler():
    scaler = torch.amp.GradScaler("cuda") if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler()
    model, expected = network(), network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model.named_parameters())
    plain = torch.optim.SGD(expected.parameters(), lr=0.05)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(model(images(step)[RANK * 4 : RANK * 4 + 4]).square().mean()).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        plain.zero_grad()
        expected(images(step)).square().mean().backward()
        plain.step()
    for parameter, other in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(parameter.detach(), other.detach(), rtol=1e-6, atol=1e-8)


def test_sparse_gradients_and_adasum():
    torch.manual_seed(1)
    table = nn.Embedding(6, 3, sparse=True).to(DEVICE)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), [("table", table.weight)])
    start = table.weight.detach().clone()
    table(torch.tensor([RANK % 6], device=DEVICE)).sum().backward()
    optimizer.step()
    expected = start.clone()
    for rank in range(SIZE):
        expected[rank % 6] -= 1.0 / SIZE
    torch.testing.assert_close(table.weight.detach(), expected)
    if SIZE & (SIZE - 1) == 0:
        model = network()
        adasum = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Adasum
        )
        model(images(RANK)[:4]).square().mean().backward()
        adasum.step()
        sums = hvd.allgather(torch.stack([parameter.detach().sum() for parameter in model.parameters()]).unsqueeze(0))
        assert all(torch.equal(one, sums[0]) for one in sums)


def test_state_from_one_rank():
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01 * (RANK + 1))
    if RANK == 0:
        model(images(0)).square().mean().backward()
        optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.01
    moments = torch.stack([state["exp_avg"].sum() for state in optimizer.state.values()]).unsqueeze(0)
    assert moments.device == DEVICE
    gathered = hvd.allgather(moments)
    assert all(torch.equal(one, gathered[0]) for one in gathered)


def test_sync_batch_norm():
    torch.manual_seed(0)
    synchronized, expected = hvd.SyncBatchNorm(3).double().to(DEVICE), nn.BatchNorm2d(3).double().to(DEVICE)
    whole = images(0)
    given = whole[RANK * 4 : RANK * 4 + 4].clone().requires_grad_()
    reference = whole.clone().requires_grad_()
    result, wanted = synchronized(given), expected(reference)
    torch.testing.assert_close(result, wanted[RANK * 4 : RANK * 4 + 4])
    result.pow(3).sum().backward()
    wanted.pow(3).sum().backward()
    torch.testing.assert_close(given.grad, reference.grad[RANK * 4 : RANK * 4 + 4])
    torch.testing.assert_close(synchronized.running_var, expected.running_var)
