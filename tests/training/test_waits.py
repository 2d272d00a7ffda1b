"""Tests that a training step, from encoder to logging window, never waits for the device, for any loss."""

import contextlib
import sys
from dataclasses import replace

import pytest
import torch
from builders import tree_dataset
from torch.overrides import TorchFunctionMode
from training.test_every_loss import SEVERAL, job_of

from mlcl.config import AugmentConfig
from mlcl.data import ImageRows, augment
from mlcl.losses import LOSSES, tiling
from mlcl.training.batches import Rows
from mlcl.training.builders import build_loop, build_model
from mlcl.training.classifier import AsymmetricLoss
from mlcl.training.context import Context
from mlcl.training.grad_cache import Passes
from mlcl.training.job_data import JobData
from mlcl.training.loop_settings import Callbacks

CPU = torch.device("cpu")
VALUELESS = torch.device("meta")
"""A device whose tensors have no values, so that reading or mixing them with other tensors raises."""
HOW = {
    "auto": ("objective.heads.detail.temperature={learned: 0.2}",),
    "tiled": ("train.clip_norm=1.0", "train.optimizer=sgd"),
    "unknown": (
        "objective.heads.detail.temperature={learned: 0.2}",
        "objective.heads.detail.reduction=mean_valid",
        "objective.heads.detail.normalize=false",
    ),
}
"""Overrides by case. `unknown` has settings for which the engine might read values from the device."""
CASES = [(name, "one path") for name in LOSSES] + [
    (name, "several paths") for name, spec in LOSSES.items() if spec.labels == "path"
]
every_loss = pytest.mark.parametrize(("name", "labels"), CASES)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return tree_dataset(tmp_path_factory.mktemp("tree"))


def steps(job, home, device, engine):
    """Returns a function that makes a step on the device and returns the weights it did not update."""
    data, context = JobData.of(job, home), Context(device)
    model = build_model(data).to(device)
    rows = data.encode(data.train)
    for _, head in model.objective.named_heads():
        head.loss.engine = engine
    loop = build_loop(data, model, context, Callbacks(lambda _: None, dict, lambda: False))
    batch = rows.batch(torch.arange(12), job.views, CPU)
    batch = replace(batch, inputs={name: value.to(device) for name, value in batch.inputs.items()})
    passes = Passes.of(model, context, loop.train, loop.views, loop.share)
    loop.position.step = 1  # the very first step asks for the free memory and reads the batch

    def step():
        loop._run_step(passes, batch, False)
        states = loop.optimizer.state
        return [name for name, weight in model.named_parameters() if weight not in states]

    return step


def job_for(name, labels, how, tiny, tree):
    if labels == "several paths":
        return job_of(name, tree, *SEVERAL, *HOW[how])
    return job_of(name, tiny, *HOW[how])


def test_a_read_is_an_error():
    value = torch.ones(2, device=VALUELESS)
    for call in (value.sum().item, value.tolist, value.cpu, value.nonzero, lambda: value + torch.ones(2)):
        with pytest.raises((RuntimeError, NotImplementedError)):
            call()


class NoNumberOfTheHost(TorchFunctionMode):
    """A mode that refuses operations that copy numbers from the host, for which a GPU would wait.

    The operations are `tensor[index] = number` and the creation of tensors from Python numbers on the device.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.Tensor.__setitem__ and args[0].device == VALUELESS:
            indices = args[1] if isinstance(args[1], tuple) else (args[1],)
            assert isinstance(args[2], torch.Tensor) or not any(isinstance(p, torch.Tensor) for p in indices)
        if func in (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor):
            assert result.device != VALUELESS
        return result


def test_a_number_of_the_host_is_an_error():
    value = torch.ones(2, device=VALUELESS)
    with NoNumberOfTheHost():
        value[0] = 1
        value[:1] = 1
        for operation in (
            lambda: value.__setitem__(torch.zeros(1, dtype=torch.int64, device=VALUELESS), 1),
            lambda: value.new_tensor([1.0]),
            lambda: torch.tensor([1.0], device=VALUELESS),
        ):
            with pytest.raises(AssertionError):
                operation()


PIXELS = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)


@pytest.mark.parametrize("crop", [0.2, 1.0])
def test_augmentation_reads_nothing(crop):
    with NoNumberOfTheHost():
        assert augment(PIXELS.to(VALUELESS), crop=crop).shape == PIXELS.shape


def test_the_asymmetric_loss_reads_nothing():
    logit_RL = torch.zeros(2, 3, device=VALUELESS)
    with NoNumberOfTheHost():
        assert AsymmetricLoss(0, 4, 0.05)(logit_RL, logit_RL).shape == (2, 3)


@pytest.mark.gpu
def test_batches_of_images_keep_no_gpu_waiting():
    device = torch.device("cuda", 0)
    rows = Rows(ImageRows(PIXELS.numpy()), {}, torch.arange(4), AugmentConfig()).copy_to_gpu(device)
    rows.batch(torch.arange(4), 2, device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        batch = rows.batch(torch.arange(4), 2, device)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert batch.inputs["pixels"].shape == (8, 3, 8, 8)


@pytest.mark.parametrize("how", HOW)
@every_loss
def test_a_step_reads_nothing(name, labels, how, tiny, tree, tmp_path, monkeypatch):
    monkeypatch.setattr(tiling, "TILE", 4)
    monkeypatch.setattr(tiling, "_size_by_memory", lambda _device: 4)
    # Autocast and fused kernels do not know this device.
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(
        sys.modules["torch.optim.optimizer"], "_get_fused_kernels_supported_devices", lambda: ["meta"]
    )
    job = job_for(name, labels, how, tiny, tree)
    step = steps(job, tmp_path, VALUELESS, "auto" if how == "auto" else "tiled")
    with NoNumberOfTheHost():
        assert step() == []  # a read would raise


@pytest.mark.gpu
@pytest.mark.parametrize("how", HOW)
@every_loss
def test_a_step_keeps_no_gpu_waiting(name, labels, how, tiny, tree, tmp_path):
    job = job_for(name, labels, how, tiny, tree)
    step = steps(job, tmp_path, torch.device("cuda", 0), "auto" if how == "auto" else "tiled")
    step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert step() == []  # a wait would raise
    finally:
        torch.cuda.set_sync_debug_mode("default")
