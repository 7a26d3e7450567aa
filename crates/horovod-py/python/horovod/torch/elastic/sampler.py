"""Sampler for data loaders in elastic training, part of a `TorchState`: the samples of an epoch that this rank has yet
to process."""

import math
import random
from typing import Any, Dict, Iterator, List

import torch.utils.data

import horovod.torch as hvd


class ElasticSampler(torch.utils.data.Sampler):
    """Distributes the samples of a dataset over the ranks, and tracks how many all ranks have processed. After a
    failure, or with another number of ranks, the epoch continues with the rest.

    Call `record_batch` after every batch and `set_epoch` at the end of every epoch.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.num_replicas = 0
        self.rank = 0
        self.remaining_indices: List[int] = []
        self.num_samples = 0
        self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Restarts with all samples, in the order of this epoch."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records a batch, which every rank has processed."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> Dict[str, int]:
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Dict[str, int]) -> None:
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Distributes the remaining samples over the current ranks."""
        self.num_replicas, self.rank = hvd.size(), hvd.rank()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            # The same seed on all ranks.
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        indices = list(self.remaining_indices)
        # All ranks take the same number of steps: some samples are used twice.
        while indices and len(indices) < self.total_size:
            indices += indices[: self.total_size - len(indices)]
        return iter(indices[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
