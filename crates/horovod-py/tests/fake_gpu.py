"""A rank whose "GPU" is main memory (fake_cuda.c), for test_fake_gpu.py: plays TensorFlow's executor or XLA, and calls
the engine's kernels as they do. `python fake_gpu.py PART FAKE_LIBRARY`; asserts by itself."""

import ctypes
import sys
import threading
from typing import Any, Callable

import numpy as np

from horovod import _core
from horovod.common import basics

POINTER = ctypes.c_void_p


class Cuda:
    """The fake driver, found by the engine under its name."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self.library.fake_cuda_log.restype = ctypes.c_char_p

    def calls(self) -> list[str]:
        """What happened since the last time."""
        lines = self.library.fake_cuda_log().decode().splitlines()
        self.library.fake_cuda_clear()
        return lines


class Handles:
    """Objects behind the pointers of a C API."""

    def __init__(self) -> None:
        self.by_number: dict[int, Any] = {}
        self.last = 0

    def new(self, value: Any) -> int:
        self.last += 16
        self.by_number[self.last] = value
        return self.last

    def __getitem__(self, number: int) -> Any:
        return self.by_number[number]


class TensorFlow:
    """The part of TensorFlow's C API that the engine uses."""

    NUMBERS = {"float32": 1, "float64": 2, "int32": 3, "int64": 9}

    def __init__(self) -> None:
        self.objects = Handles()
        self.kernels: dict[tuple[str, str], dict[str, Any]] = {}
        self.kept: list[Any] = []
        _core.register_tensorflow({name: self.function(name) for name in _core.tensorflow_symbols()})

    def function(self, name: str) -> int:
        """Address of a function; those that do not matter here return a new pointer."""
        result, arguments, body = self.functions().get(name, (POINTER, [POINTER] * 4, lambda *_: self.objects.new(name)))
        function = ctypes.CFUNCTYPE(result, *arguments)(body)
        self.kept.append(function)
        return ctypes.cast(function, POINTER).value or 0

    def functions(self) -> dict[str, tuple[Any, list[Any], Callable[..., Any]]]:
        new, text, number = self.objects.new, ctypes.c_char_p, ctypes.c_int
        objects, status = self.objects, POINTER
        return {
            "TF_NewStatus": (POINTER, [], lambda: new({"code": 0, "text": b""})),
            "TF_SetStatus": (None, [POINTER, number, text], lambda s, code, t: objects[s].update(code=code, text=t)),
            "TF_GetCode": (number, [POINTER], lambda s: objects[s]["code"]),
            "TF_NewAsyncKernelBuilder": (POINTER, [text, text, POINTER, POINTER, POINTER], self.new_kernel),
            "TF_KernelBuilder_HostMemory": (None, [POINTER, text], lambda b, n: objects[b]["host"].append(n.decode())),
            "TF_RegisterKernelBuilder": (None, [text, POINTER, status], self.register),
            "TF_OpKernelConstruction_GetAttrSize": (None, [POINTER, text, POINTER, POINTER, status], self.size_of),
            "TF_OpKernelConstruction_GetAttrString": (None, [POINTER, text, POINTER, ctypes.c_size_t, status], self.string),
            "TF_OpKernelConstruction_GetAttrInt64": (None, [POINTER, text, POINTER, status], self.int64),
            "TF_OpKernelConstruction_GetAttrBool": (None, [POINTER, text, POINTER, status], self.boolean),
            "TF_NumInputs": (number, [POINTER], lambda c: len(objects[c]["inputs"])),
            "TF_GetInput": (None, [POINTER, number, POINTER, status], self.get_input),
            "TF_AllocateOutput": (
                POINTER,
                [POINTER, number, number, ctypes.POINTER(ctypes.c_int64), number, ctypes.c_size_t, status],
                self.allocate,
            ),
            "TF_OpKernelContext_Failure": (None, [POINTER, POINTER], lambda c, s: objects[c].update(failure=objects[s])),
            "TF_TensorType": (number, [POINTER], lambda t: self.NUMBERS[objects[t].dtype.name]),
            "TF_NumDims": (number, [POINTER], lambda t: objects[t].ndim),
            "TF_Dim": (ctypes.c_int64, [POINTER, number], lambda t, axis: objects[t].shape[axis]),
            "TF_TensorByteSize": (ctypes.c_size_t, [POINTER], lambda t: objects[t].nbytes),
            "TF_TensorData": (POINTER, [POINTER], lambda t: objects[t].ctypes.data),
            "TF_RunAsyncOpKernelDoneCallback": (None, [POINTER], lambda _: self.done.release()),
        }

    def new_kernel(self, op: bytes, device: bytes, create: int, compute: int, delete: int) -> int:
        kernel = {"key": (op.decode(), device.decode()), "create": create, "compute": compute, "host": []}
        return self.objects.new(kernel)

    def register(self, name: bytes, builder: int, status: int) -> None:
        kernel = self.objects[builder]
        self.kernels[kernel["key"]] = kernel

    def attribute(self, construction: int, name: bytes) -> Any:
        return self.objects[construction][name.decode()]

    def size_of(self, construction: int, name: bytes, items: int, total: int, status: int) -> None:
        ctypes.c_int32.from_address(total).value = len(self.attribute(construction, name))

    def string(self, construction: int, name: bytes, to: int, size: int, status: int) -> None:
        ctypes.memmove(to, self.attribute(construction, name).encode(), size)

    def int64(self, construction: int, name: bytes, to: int, status: int) -> None:
        ctypes.c_int64.from_address(to).value = self.attribute(construction, name)

    def boolean(self, construction: int, name: bytes, to: int, status: int) -> None:
        ctypes.c_uint8.from_address(to).value = self.attribute(construction, name)

    def get_input(self, context: int, index: int, to: int, status: int) -> None:
        POINTER.from_address(to).value = self.objects.new(self.objects[context]["inputs"][index])

    def allocate(self, context: int, index: int, dtype: int, dims: Any, n_dims: int, size: int, status: int) -> int:
        name = next(name for name, number in self.NUMBERS.items() if number == dtype)
        output = np.full([dims[axis] for axis in range(n_dims)], 77, name)
        assert output.nbytes == size
        self.objects[context]["outputs"][index] = output
        return self.objects.new(output)

    def run(self, op: str, inputs: list[np.ndarray], device: str = "GPU", **attributes: Any) -> list[np.ndarray]:
        """Creates a kernel, executes it once and returns its outputs."""
        given = {
            "requests": f"{len(inputs)} {op}",
            "kind": _core.ALLREDUCE,
            "grouped": len(inputs) > 1,
            "reduce_op": 1,
            "prescale_bits": 0x3FF0000000000000,
            "postscale_bits": 0x3FF0000000000000,
            "root_rank": 0,
            "process_set_id": 0,
            **attributes,
        }
        kernel = self.kernels[op, device]
        state = ctypes.CFUNCTYPE(POINTER, POINTER)(kernel["create"])(self.objects.new(given))
        context = {"inputs": inputs, "outputs": {}, "failure": None}
        self.done, callback = threading.Semaphore(0), (ctypes.c_size_t * 4)()
        compute = ctypes.CFUNCTYPE(None, POINTER, POINTER, POINTER)(kernel["compute"])
        compute(state, self.objects.new(context), ctypes.addressof(callback))
        assert self.done.acquire(timeout=60), f"{op} does not end"
        if context["failure"] is not None:
            raise RuntimeError(context["failure"]["text"].decode())
        return [context["outputs"][index] for index in sorted(context["outputs"])]


def check(results: list[np.ndarray], *expected: Any) -> None:
    assert len(results) == len(expected)
    for result, array in zip(results, expected):
        np.testing.assert_array_equal(result, array)


def tensorflow(cuda: Cuda) -> None:
    """Every kernel on the GPU, and the order of its work."""
    tf = TensorFlow()
    ops = {op for op, _ in tf.kernels}
    assert len(ops) == 9 and set(tf.kernels) == {(op, device) for op in ops for device in ("CPU", "GPU")}
    in_main_memory = {op: tf.kernels[op, "GPU"]["host"] for op in ops if tf.kernels[op, "GPU"]["host"]}
    assert in_main_memory == {"HorovodAlltoall": ["splits", "received_splits"], "HorovodJoin": ["last_joined_rank"]}
    size, rank = basics.size(), basics.rank()
    own = np.arange(2 * size * 3, dtype=np.float32).reshape(2 * size, 3) + rank
    all_ranks = [own - rank + other for other in range(size)]
    total = sum(all_ranks)

    check(tf.run("HorovodAllreduce", [own]), total)
    calls = [call for call in cuda.calls() if "context" in call]
    assert calls[0] == "record context 1000" and calls[-1] == "wait context 1000", calls
    check(tf.run("HorovodGroupedAllreduce", [own, own * 2]), total, total * 2)
    check(tf.run("HorovodAllreduce", [own], device="CPU", requests="1 cpu"), total)
    assert not [call for call in cuda.calls() if call.startswith("copy")]
    check(tf.run("HorovodBroadcast", [own], kind=_core.BROADCAST, root_rank=size - 1), all_ranks[-1])
    cuda.calls()
    check(tf.run("HorovodAllgather", [own], kind=_core.ALLGATHER), np.concatenate(all_ranks))
    calls = cuda.calls()
    copy = next(index for index, call in enumerate(calls) if call.startswith("copy"))
    # TensorFlow's memory may be in use before the copy, and is used after it.
    assert "record context 1000" in calls[:copy] and "wait context 1000" in calls[copy:], calls
    mine = slice(2 * rank, 2 * rank + 2)
    check(tf.run("HorovodReducescatter", [own], kind=_core.REDUCESCATTER), total[mine])
    splits = np.full(size, 2, np.int32)
    exchanged = np.concatenate([other[mine] for other in all_ranks])
    results = tf.run("HorovodAlltoall", [own, splits], kind=_core.ALLTOALL, requests="1 alltoall", grouped=False)
    check(results, exchanged, splits)
    check(tf.run("HorovodAllreduce", [np.zeros((0, 3), np.float32)], requests="1 empty"), np.zeros((0, 3)))
    assert 0 <= tf.run("HorovodJoin", [])[0] < size
    cuda.library.fake_cuda_set_ordinal(1)
    expect_error("a tensor is on GPU 1, and earlier ones are on GPU 0", lambda: tf.run("HorovodAllreduce", [own]))


def old_driver(cuda: Cuda) -> None:
    """Without events of a context the kernels on the GPU fail with the reason, and those on the CPU work."""
    assert "cuCtxRecordEvent: it is too old" in (_core.context_events_obstacle() or "")
    tf = TensorFlow()
    own = np.ones(3, np.float32)
    expect_error("older than CUDA 12.5", lambda: tf.run("HorovodAllreduce", [own]))
    check(tf.run("HorovodAllreduce", [own], device="CPU"), own * basics.size())


class Buffer(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", POINTER),
        ("dtype", ctypes.c_int),
        ("data", POINTER),
        ("rank", ctypes.c_int64),
        ("dims", POINTER),
    ]


class Values(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension", POINTER),
        ("size", ctypes.c_int64),
        ("types", POINTER),
        ("values", POINTER),
    ]


class Attributes(ctypes.Structure):
    _fields_ = Values._fields_[:4] + [("names", POINTER), ("values", POINTER)]


class Span(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class Frame(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", POINTER),
        ("api", POINTER),
        ("context", POINTER),
        ("stage", ctypes.c_int),
        ("arguments", Values),
        ("results", Values),
        ("attributes", Attributes),
    ]


class ErrorArguments(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("extension", POINTER), ("message", ctypes.c_char_p), ("code", ctypes.c_int)]


class StreamArguments(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("extension", POINTER), ("context", POINTER), ("stream", POINTER)]


class Xla:
    """The part of XLA's interface that the engine uses. Its stream has the number 4711."""

    STREAM = 4711

    def __init__(self) -> None:
        self.errors: list[tuple[int, str]] = []
        self.on_error = ctypes.CFUNCTYPE(POINTER, ctypes.POINTER(ErrorArguments))(self.new_error)
        self.on_stream = ctypes.CFUNCTYPE(POINTER, ctypes.POINTER(StreamArguments))(self.get_stream)
        # Size, extensions, the version (size, extensions, two numbers), internals, then functions.
        self.api = (ctypes.c_size_t * 12)()
        self.api[6] = ctypes.cast(self.on_error, POINTER).value or 0
        self.api[10] = ctypes.cast(self.on_stream, POINTER).value or 0
        self.on_cpu, self.on_gpu = _core.xla_handlers(0, 3)

    def new_error(self, arguments: Any) -> int:
        self.errors.append((arguments[0].code, arguments[0].message.decode()))
        return 1

    def get_stream(self, arguments: Any) -> None:
        arguments[0].stream = self.STREAM

    def call(self, handler: int, requests: str, inputs: list[np.ndarray], stage: int = 3) -> list[np.ndarray]:
        outputs = [np.full_like(array, 77) for array in inputs]
        span, name, kept = Span(requests.encode(), len(requests)), Span(b"requests", 8), []

        def pointers(structs: Any) -> int:
            array = (POINTER * max(1, len(structs)))(*map(ctypes.addressof, structs))
            kept.extend([structs, array])
            return ctypes.addressof(array)

        def types(number: int, n: int) -> int:
            kept.append((ctypes.c_int * max(1, n))(*[number] * n))
            return ctypes.addressof(kept[-1])

        def values(arrays: list[np.ndarray]) -> Values:
            dims = [(ctypes.c_int64 * max(1, array.ndim))(*array.shape) for array in arrays]
            kept.append(dims)
            number = {"float32": 11, "int32": 4, "complex64": 15}
            buffers = [
                Buffer(48, None, number[array.dtype.name], array.ctypes.data, array.ndim, ctypes.addressof(shape))
                for array, shape in zip(arrays, dims)
            ]
            return Values(40, None, len(arrays), types(1, len(arrays)), pointers(buffers))

        attributes = Attributes(48, None, 1, types(4, 1), pointers([name]), pointers([span]))
        api = ctypes.addressof(self.api)
        frame = Frame(ctypes.sizeof(Frame), None, api, None, stage, values(inputs), values(outputs), attributes)
        error = ctypes.CFUNCTYPE(POINTER, ctypes.POINTER(Frame))(handler)(ctypes.byref(frame))
        if error:
            raise RuntimeError(self.errors[-1][1])
        return outputs


def xla(cuda: Cuda) -> None:
    """The handler for CUDA: results, and the order of its work in XLA's stream."""
    from_one, call = 0x3FF0000000000000, Xla()
    size, rank = basics.size(), basics.rank()
    plain = f"{_core.ALLREDUCE} 1 {from_one} {from_one} 0 0"
    own, other = np.arange(5, dtype=np.float32) + rank, np.array([[rank]], np.int32)
    total = sum(np.arange(5, dtype=np.float32) + member for member in range(size))
    for number in range(3):
        results = call.call(call.on_gpu, f"{plain}\n1 a{number}\n2 b{number}", [own, own, other])
        check(results, total, total, [[sum(range(size))]])
        calls = [line for line in cuda.calls() if line.endswith(f" {Xla.STREAM}")]
        assert calls[0].startswith("record") and calls[-1].startswith("wait"), calls
    broadcast = f"{_core.BROADCAST} 1 {from_one} {from_one} {size - 1} 0"
    check(call.call(call.on_gpu, f"{broadcast}\n1 c", [own]), own - rank + size - 1)
    check(call.call(call.on_cpu, f"{plain}\n1 cpu", [own]), total)
    check(call.call(call.on_gpu, f"{plain}\n1 empty", [own[:0]]), own[:0])
    # Other stages than the execution do nothing.
    check(call.call(call.on_gpu, "", [own], stage=0), np.full(5, 77))
    expect_error("invalid requests", lambda: call.call(call.on_gpu, "nonsense", [own]))
    expect_error("the requests have 2 tensors, and the call 1", lambda: call.call(call.on_gpu, f"{plain}\n2 d", [own]))
    strange = own.astype(np.complex64)
    expect_error("e: tensors of this type are not supported", lambda: call.call(call.on_gpu, f"{plain}\n1 e", [strange]))
    basics.shutdown()
    expect_error("Horovod has not been initialized", lambda: call.call(call.on_gpu, f"{plain}\n1 f", [own]))


def expect_error(text: str, function: Callable[[], Any]) -> None:
    try:
        function()
    except RuntimeError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no error: {text}")


if __name__ == "__main__":
    part, path = sys.argv[1:]
    driver = Cuda(path)
    basics.init()
    {"tensorflow": tensorflow, "old_driver": old_driver, "xla": xla}[part](driver)
    print("all is well")
