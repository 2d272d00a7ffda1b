"""Batches of images on a device, a compiled training, and a logging window that the host reads once."""

from functools import partial

import numpy as np
import pytest
import torch
from builders import tiny_job
from losses.waits import Waits

from mlcl.config import AugmentConfig
from mlcl.data import ImageRows
from mlcl.training import batches
from mlcl.training.batches import Rows
from mlcl.training.context import ONE_PROCESS
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData
from mlcl.training.loop_settings import LogWindow

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
        return views, rows.plain(torch.arange(4), CPU)["pixels"]

    expected = inputs()
    monkeypatch.setattr(batches, "memory_format", lambda _device: torch.channels_last)
    for one, other in zip(inputs(), expected, strict=True):
        assert one.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(one, other)


@pytest.fixture
def eager(monkeypatch):
    """torch.compile without a compiler: what it traces is run as it is."""
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
    job = tiny_job(tiny, *overrides, epochs=2)
    events = []
    outcome = run_experiment(
        JobData.of(job, home),
        folder=home / str(len(overrides)),
        context=ONE_PROCESS,
        listener=events.append,
        test=False,
    )
    times = ("time/", "train/rows_per_second", "train/data_wait")
    metrics = {key: value for key, value in outcome.metrics.items() if not key.startswith(times)}
    return metrics, [event.note for event in events]


def test_a_compiled_training_is_the_same_and_says_what_its_first_step_took(tiny, tmp_path, eager):
    plain, _ = trained(tiny, tmp_path)
    compiled, notes = trained(tiny, tmp_path, "train.compile=true")
    assert compiled == plain
    assert sum("the first step took" in note for note in notes) == 1


def test_graphs_are_of_the_encoder(tiny, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda module, **how: asked.append((module, how)))
    trained(tiny, tmp_path, "train.compile=graphs", "train.micro_batch_size=4")
    assert [(type(module).__name__, how) for module, how in asked] == [
        ("CnnText", {"mode": "reduce-overhead"})
    ]


def test_the_window_is_read_once(tiny, tmp_path, monkeypatch):
    counted = {"add": [], "read": []}

    def watched(name):
        original = getattr(LogWindow, name)

        def call(*arguments):
            with Waits() as waits:
                original(*arguments)
            counted[name].append(dict(waits.count))

        return call

    for name in counted:
        monkeypatch.setattr(LogWindow, name, watched(name))
    trained(tiny, tmp_path)
    assert counted["add"]
    assert not any(counted["add"])
    assert [waits for waits in counted["read"] if waits] == [{"tolist": 1}] * 2  # of two epochs
