"""Collectives and training on one GPU: DistributedOptimizer, allreduce beside Gloo, NCCL and plain processes

Needs PyTorch for CUDA, torchvision and the package horovod, installed for the Python that runs it; builds nothing. Ranks share the GPU. The last
line is the verdict.
"""

import datetime
import os
import platform
import sys

import torch

import ranks

quick = "--quick" in sys.argv
flags = ["--quick"] if quick else []


def percentiles(values):
    ordered = sorted(values)
    at = lambda share: ordered[min(len(ordered) - 1, int(len(ordered) * share))]  # noqa: E731
    return ordered[0], at(0.5), at(0.99), ordered[-1]


def show(label, values, unit):
    low, middle, high, top = percentiles(values)
    print(f"{label:46} min {low:10.1f}  p50 {middle:10.1f}  p99 {high:10.1f}  max {top:10.1f} {unit}  ({len(values)})", flush=True)
    return middle


def main():
    if not torch.cuda.is_available():
        print("verdict: missed: there is no GPU that PyTorch can use")
        return 1
    memory = torch.cuda.get_device_properties(0).total_memory >> 30
    print(f"{datetime.date.today()}, {torch.cuda.get_device_name(0)} ({memory} GiB), {os.cpu_count()} cores, Linux {platform.release()}, "
          f"PyTorch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    goals = []
    p50 = {}
    libraries = ["corro", "gloo", "nccl"]
    for size in (1, 2, 4):
        for library in libraries if size > 1 else ["corro"]:
            for line in ranks.run("collectives.py", size, [library, *flags]):
                label = f"{size} ranks, {line['case']}, {library}"
                p50[size, line["case"], library] = show(label, line["times"], "us")
    for size, limit in ((2, 1000), (4, 1500)):
        ours = p50[size, "ResNet-50, one group", "corro"]
        others = ", ".join(f"{library} {p50[size, 'ResNet-50, one group', library] / ours:.0f} times" for library in libraries[1:])
        goals.append((ours <= limit, f"ResNet-50's gradients on {size} ranks {ours / 1000:.2f} ms (goal {limit / 1000}; {others})"))
    small = p50[2, "4 B", "corro"]
    goals.append((small <= 60, f"4 B on 2 ranks {small:.0f} us (goal 60)"))
    share = p50[1, "copy of 512 MB", "corro"] / p50[2, "256 MB", "corro"]
    goals.append((share >= 0.6, f"256 MB on 2 ranks at {share:.0%} of what the memory allows (goal 60 %)"))

    seconds = {}
    # In turns, so that both see the same clocks of the GPU.
    for size in (1, 2):
        for kind in ("plain", "corro", "plain", "corro"):
            lines = ranks.run("training.py", size, [kind, *flags])
            seconds.setdefault((size, kind), []).extend(line["seconds"] * 1000 for line in lines)
    middle = {}
    for (size, kind), values in seconds.items():
        middle[size, kind] = show(f"{size} ranks, step of ResNet-50, {kind}", values, "ms")
    overhead = middle[1, "corro"] / middle[1, "plain"] - 1
    goals.append((overhead < 0.01, f"overhead of DistributedOptimizer on 1 rank {overhead:.1%} (goal under 1 %)"))
    speed = middle[2, "plain"] / middle[2, "corro"]
    goals.append((speed >= 0.95, f"2 ranks at {speed:.1%} of two plain processes (goal 95 %)"))
    met = all(good for good, _ in goals)
    print(f"verdict: {'met' if met else 'missed'}: " + "; ".join(("" if good else "MISSED: ") + text for good, text in goals))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
