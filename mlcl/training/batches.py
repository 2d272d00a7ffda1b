"""Builds batches of an encoded split: chooses their rows, and reads inputs, labels, sample ids and views.

Shapes: B samples, V views, R = V * B rows: the first view of all samples, then the second, and so on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mlcl.config import AugmentConfig, JobConfig
from mlcl.data import DatasetInfo, ImageRows, Split, TokenRows, augment, class_tree, normalise
from mlcl.errors import UserError
from mlcl.labels import LabelRows, copy_to_device
from mlcl.samplers import Balanced, EpochSampler, Grouped
from mlcl.samplers.epochs import Order
from mlcl.training.classifier import Labels
from mlcl.training.features.inputs import FeatureRows
from mlcl.training.input_reader import CollatedRows

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class Batch:
    """A batch of R rows.

    `inputs` are on the device of the model, `labels` and `sample_ids` in the host's memory.
    """

    inputs: Inputs
    labels: Mapping[str, Labels]
    sample_ids: Tensor

    def __len__(self) -> int:
        return len(self.sample_ids)


@dataclass(frozen=True)
class Rows:
    """An encoded split: the encoder's inputs, and the labels, keyed by the name of the head or classifier.

    `sample_ids` are the numbers of the rows in the data set. `augment` says how views of images differ,
    `compile` whether the augmentation is compiled.
    """

    inputs: TokenRows | ImageRows | FeatureRows | CollatedRows
    labels: Mapping[str, Labels]
    sample_ids: Tensor
    augment: AugmentConfig
    compile: bool = False

    def __len__(self) -> int:
        return len(self.sample_ids)

    def batch(self, indices_B: Tensor, views: int, device: torch.device) -> Batch:
        """Returns the batch with `views` views of each of the rows `indices_B`, see `batches`."""
        return next(self.batches([indices_B], views, device))

    def batches(self, indices: Iterable[Tensor], views: int, device: torch.device) -> Iterator[Batch]:
        """Yields for each tensor of indices (B,) a batch with `views` views of each row.

        Images are augmented on the device; the views of other inputs differ only by the encoder's dropout.
        """
        for indices_B, raw_inputs in read_ahead(indices, self.inputs.batch, device):
            inputs, indices_R = dict(raw_inputs), indices_B.repeat(views)
            if views > 1:
                inputs = {
                    key: value.repeat(views, *[1] * (value.ndim - 1)) for key, value in raw_inputs.items()
                }
            if isinstance(self.inputs, ImageRows):
                inputs["pixels"] = self._augment_pixels(inputs["pixels"])
            labels = {name: space[indices_R] for name, space in self.labels.items()}
            yield Batch(inputs, labels, self.sample_ids[indices_R])

    def plain_inputs(self, indices_B: Tensor, device: torch.device) -> Inputs:
        """Returns the inputs of the rows `indices_B` for evaluation, on the device, without augmentation."""
        inputs = {
            key: value.to(device, non_blocking=True) for key, value in self.inputs.batch(indices_B).items()
        }
        if isinstance(self.inputs, ImageRows):
            inputs["pixels"] = normalise(inputs["pixels"]).contiguous(memory_format=memory_format(device))
        return inputs

    def _augment_pixels(self, pixels: Tensor) -> Tensor:
        config, function = self.augment, compiled_augment() if self.compile else augment
        views = function(
            pixels, crop=config.crop, flip=config.flip, jitter=config.jitter, grayscale=config.grayscale
        )
        return views.contiguous(memory_format=memory_format(pixels.device))

    def copy_to_gpu(self, device: torch.device) -> Rows:
        """Returns the rows with images copied into GPU memory, if `device` is a GPU and they fit into it."""
        if device.type != "cuda" or not isinstance(self.inputs, ImageRows):
            return self
        return replace(self, inputs=self.inputs.resident(device, torch.cuda.mem_get_info(device)[0]))


def memory_format(device: torch.device) -> torch.memory_format:
    """Returns the memory format of images that is fast for the device's convolutions."""
    return torch.channels_last if device.type == "cuda" else torch.contiguous_format


@functools.cache
def compiled_augment() -> Callable[..., Tensor]:
    """Returns a compiled `augment`, which is compiled once per process."""
    return torch.compile(augment)


def label_statistics(labels: Mapping[str, Labels]) -> dict[str, str]:
    """Describes a batch's labels in one line per label space, for the error message of a diverged loss."""
    lines = {}
    for name, space in labels.items():
        if isinstance(space, LabelRows):
            counts = space.counts()
            lines[name] = f"{int(counts.sum())} labels on {len(space)} rows, {int((counts == 0).sum())} empty"
        else:
            lines[name] = f"{len(torch.unique(space))} distinct values on {len(space)} rows"
    return lines


def read_ahead(
    batches: Iterable[Tensor], read: Callable[[Tensor], Inputs], device: torch.device
) -> Iterator[tuple[Tensor, Inputs]]:
    """Yields the indices (B,) of each batch and the inputs that `read` returns for them, on the device.

    For a GPU a thread reads one batch ahead and copies it from pinned memory on a stream of its own.
    """
    if device.type != "cuda":
        yield from ((indices_B, read(indices_B)) for indices_B in batches)
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def fetch(indices_B: Tensor) -> tuple[Inputs, torch.cuda.Event]:
        with torch.cuda.stream(stream):
            inputs = {name: copy_to_device(value, device) for name, value in read(indices_B).items()}
            return inputs, stream.record_event()

    def wait(indices_B: Tensor, future: Future[tuple[Inputs, torch.cuda.Event]]) -> tuple[Tensor, Inputs]:
        inputs, event = future.result()
        current_stream = torch.cuda.current_stream(device)
        current_stream.wait_event(event)
        for value in inputs.values():
            # Otherwise the next copy could get the memory of `value` while this batch is still in use.
            value.record_stream(current_stream)
        return indices_B, inputs

    with ThreadPoolExecutor(1) as pool:
        previous = None
        for indices_B in batches:
            pending = indices_B, pool.submit(fetch, indices_B)
            if previous is not None:
                yield wait(*previous)
            previous = pending
        if previous is not None:
            yield wait(*previous)


def sampler_labels(job: JobConfig, info: DatasetInfo) -> str | None:
    """Returns the sampler's label space, None for `uniform`. Raises UserError if a hierarchy is missing."""
    sampler = job.train.sampler
    classifier = job.objective.classifier.labels
    if sampler.name == "uniform":
        return None
    if sampler.labels is not None:
        return sampler.labels
    if sampler.name != "hierarchical":
        return classifier
    hierarchies = {name: space for name, space in info.label_spaces.items() if space.kind == "hierarchy"}
    head_hierarchies = [head.labels for head in job.objective.heads.values() if head.labels in hierarchies]
    own_name = info.own_name(classifier)
    classifier_hierarchies = [name for name, space in hierarchies.items() if space.levels[-1] == own_name]
    if not (head_hierarchies or classifier_hierarchies):
        raise UserError("no head has a hierarchy", key="train.sampler.labels", allowed=list(hierarchies))
    return (head_hierarchies or classifier_hierarchies)[0]


def build_sampler(
    job: JobConfig, train: Split, rank: int, world_size: int, min_rows: int = 1
) -> EpochSampler:
    """Builds a rank's sampler, which gives each rank `min_rows` rows of a batch.

    Raises UserError for too few rows, a too small batch, or rows of one class.
    """
    config, size, labels = job.train, job.train.batch_size, sampler_labels(job, train.info)
    order: Order | None = None
    if labels is not None:
        levels = class_tree(train, labels)
        if len(levels[0].members) < 2:
            raise UserError("the training rows are of one class", key="train.sampler.labels", found=labels)
        if config.sampler.name == "balanced":
            order = Balanced(levels[-1], len(train), size, config.sampler.power or 0.0)
        else:
            order = Grouped(levels, len(train), size, *group_sizes(job))
    try:
        return EpochSampler(
            len(train), size, config.seed, rank, world_size, config.drop_last, order, min_rows
        )
    except ValueError as error:
        raise UserError(str(error), key="train.batch_size", found=size) from None


def group_sizes(job: JobConfig) -> tuple[int, int]:
    """Returns k and `branches` of the samplers `pk` and `hierarchical`, from the job or their defaults.

    A batch has k rows of each finest class, and `branches` finer classes of each coarser class.
    """
    sampler = job.train.sampler
    return sampler.k or (4 if sampler.name == "pk" else 2), sampler.branches or 2
