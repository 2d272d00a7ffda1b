"""Tests of batches of images on a device, a compiled training, and the reads of a logging window."""

import contextlib
import threading
from functools import partial
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from builders import tiny_job
from losses.devices import DEVICE, Device
from patience import PATIENCE
from stored_runs import TAGS, run
from torch.utils._python_dispatch import TorchDispatchMode

from mlcl.config import AugmentConfig
from mlcl.data import ImageRows
from mlcl.labels import LabelRows
from mlcl.losses import build_loss, tiling
from mlcl.models import Projection
from mlcl.testing.datasets import small_dataset
from mlcl.training import batches
from mlcl.training.batches import Rows
from mlcl.training.builders import build_loop, build_model
from mlcl.training.classifier import BinaryCrossEntropy, Classifier, CrossEntropy
from mlcl.training.context import ONE_PROCESS
from mlcl.training.job_data import JobData
from mlcl.training.loop_settings import Callbacks, LogWindow
from mlcl.training.objective import CLASSIFIER, ContrastiveModel, Head, Objective

CPU = torch.device("cpu")


@pytest.fixture
def images():
    return ImageRows(np.random.default_rng(0).integers(0, 256, (6, 3, 8, 8), dtype=np.uint8))


def test_resident_images_give_the_same_batches(images):
    on_device = images.resident(CPU, free=1 << 20)
    assert isinstance(on_device.pixels, torch.Tensor)
    rows = torch.tensor([4, 4, 0])
    assert torch.equal(on_device.batch(rows)["pixels"], images.batch(rows)["pixels"])
    assert len(on_device) == len(images)
    assert on_device.resident(CPU, free=0) is on_device


def test_images_that_would_fill_the_device_stay_where_they_are(images):
    assert images.resident(CPU, free=4 * images.pixels.nbytes - 1) is images
    assert images.resident(CPU, free=4 * images.pixels.nbytes) is not images


def test_a_device_gets_images_in_the_order_of_its_convolutions(images, monkeypatch):
    rows = Rows(images, {}, torch.arange(6), AugmentConfig())

    def inputs():
        torch.manual_seed(0)
        views = rows.batch(torch.arange(4), 2, CPU).inputs["pixels"]
        return views, rows.plain_inputs(torch.arange(4), CPU)["pixels"]

    expected = inputs()
    monkeypatch.setattr(batches, "memory_format", lambda _device: torch.channels_last)
    for actual, image in zip(inputs(), expected, strict=True):
        assert actual.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(actual, image)


@pytest.mark.parametrize("wanted", [False, True])
def test_convolutions_on_a_cpu_change_their_format_where_asked(wanted, tmp_path):
    data = small_dataset(tmp_path / "images", "image")
    network = "encoder={name: cnn_image, width: 4, blocks: 2, image_size: 8}"
    job_data = JobData.of(tiny_job(data, *TAGS, network, channels_last=wanted), tmp_path)
    model = build_model(job_data)
    build_loop(job_data, model, ONE_PROCESS, Callbacks(print, dict, bool))
    weights = [p for p in model.encoder.parameters() if p.ndim == 4 and p.shape[1] > 1]
    assert weights
    assert all(p.is_contiguous(memory_format=torch.channels_last) == wanted for p in weights)


def test_a_batch_is_read_while_a_gpu_works_on_the_one_before(monkeypatch):
    read_events, awaited, recorded = [threading.Event() for _ in range(4)], [], []
    current = SimpleNamespace(wait_event=awaited.append)
    monkeypatch.setattr(
        torch.cuda, "Stream", lambda _device: SimpleNamespace(record_event=lambda: "is copied")
    )
    monkeypatch.setattr(torch.cuda, "stream", lambda _stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: current)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda tensor, stream: recorded.append((tensor, stream))
    )
    monkeypatch.setattr(batches, "copy_to_device", lambda value, _device: value)

    def inputs(rows):
        read_events[int(rows)].set()
        if int(rows) == 3:
            raise ValueError("a damaged batch")
        return {"rows": 10 * rows}

    results = []

    def work():
        for rows, batch in batches.read_ahead(torch.arange(4), inputs, torch.device("cuda")):
            assert read_events[int(rows) + 1].wait(PATIENCE)
            results.append((int(rows), int(batch["rows"])))
            assert awaited == ["is copied"] * len(results)
            assert recorded[-1] == (batch["rows"], current)

    with pytest.raises(ValueError, match="a damaged batch"):
        work()
    assert results == [(0, 0), (1, 10), (2, 20)]


def test_a_forward_on_a_device_waits_for_nothing_but_its_images(images, monkeypatch):
    """Tests two heads and a classifier, whose labels stay in the host's memory."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(tiling, "_size_by_memory", lambda _device: 4)
    sets = LabelRows.from_lists([[0], [0, 1], [1], [], [2], [0, 2]], 3)
    classes = torch.tensor([0, 0, 1, 1, 2, 2])
    for targets, criterion in ((classes, CrossEntropy()), (sets, BinaryCrossEntropy())):
        losses = {
            "class": build_loss("supcon"),
            "labels": build_loss("simdis", engine="tiled", normalize=True),
        }
        heads = {name: Head(Projection("linear", 192, dim=4), loss, 0.5) for name, loss in losses.items()}
        model = ContrastiveModel(
            Flat(), Objective(heads, Classifier(torch.nn.Linear(192, 3), 0.5, criterion))
        )
        labels = {"class": classes, "labels": sets, CLASSIFIER: targets}
        rows = Rows(images, labels, torch.arange(6), AugmentConfig())
        batch = rows.batch(torch.arange(6), 2, CPU)
        with Device() as device:
            inputs = {"pixels": batch.inputs["pixels"].to(DEVICE, non_blocking=True)}
            model.to(DEVICE)
            device.waits.clear()
            value = model.objective(model(inputs), batch.labels, batch.sample_ids)
            assert value.total.device == DEVICE
        assert device.waits == []


class Flat(torch.nn.Module):
    """An encoder that returns the flattened pixels."""

    def forward(self, pixels):
        return pixels.flatten(1)


@pytest.fixture
def eager(monkeypatch):
    """Makes torch.compile run the traced graph without compiling it."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    batches.compiled_augment.cache_clear()
    yield
    batches.compiled_augment.cache_clear()
    torch.compiler.reset()


def test_compiled_views_are_the_same(images, eager):
    views = []
    for compiled in (False, True):
        rows = Rows(images, {}, torch.arange(6), AugmentConfig(), compiled)
        torch.manual_seed(0)
        views.append(rows.batch(torch.arange(4), 2, CPU).inputs["pixels"])
    assert torch.equal(*views)


def trained(tiny, home, *overrides):
    events = []
    _, metrics = run(
        tiny_job(tiny, *overrides, epochs=2), home, home / str(len(overrides)), events, test=False
    )
    return metrics, [event.note for event in events]


def test_a_compiled_training_is_the_same_and_says_what_its_first_step_took(tiny, tmp_path, eager):
    expected, _ = trained(tiny, tmp_path)
    compiled, notes = trained(tiny, tmp_path, "train.compile=true")
    assert compiled == expected
    assert sum("the first step took" in note for note in notes) == 1


def test_graphs_are_of_the_encoder(tiny, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, **options: calls.append((module, options)))
    trained(tiny, tmp_path, "train.compile=graphs", "train.micro_batch_size=4")
    assert [(type(module).__name__, options) for module, options in calls] == [
        ("CnnText", {"mode": "reduce-overhead"})
    ]


class Reads(TorchDispatchMode):
    """A mode that counts the operations that make the host wait for a value."""

    count = 0

    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        self.count += operator.overloadpacket.__name__ in ("_local_scalar_dense", "nonzero", "equal")
        return operator(*arguments, **(options or {}))


def test_the_window_is_read_once(tiny, tmp_path, monkeypatch):
    """Tests that a window's `add` reads no value, and that `read` gets all values from one tensor."""
    read_counts = {"add": [], "read": []}

    def watched(name):
        original, tolist = getattr(LogWindow, name), torch.Tensor.tolist

        def call(*arguments):
            lists = []
            tolist_patch = mock.patch.object(torch.Tensor, "tolist", lambda t: lists.append(t) or tolist(t))
            with Reads() as reads, tolist_patch:
                result = original(*arguments)
            read_counts[name].append(len(lists) if lists else reads.count)
            return result

        return call

    for name in read_counts:
        monkeypatch.setattr(LogWindow, name, watched(name))
    trained(tiny, tmp_path)
    assert read_counts["add"]
    assert not any(read_counts["add"])
    assert [count for count in read_counts["read"] if count] == [1, 1]  # one read in each of two epochs
