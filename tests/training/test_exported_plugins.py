"""Tests that an exported model runs its job's plugin files only if predicting or scoring needs them."""

import sys

import pytest
import stored_runs
from builders import job_tree

from mlcl.config import load_job
from mlcl.plugins import REGISTRIES, registry
from mlcl.training.export import load_model
from mlcl.training.export.labelling import Labelling

PLUGIN = """
from mlcl.evaluation import Metric
from mlcl.losses import OverlapRule, overlap_loss

def dice_rule():
    return OverlapRule(lambda counts: 2 * counts.shared / (counts.anchor_size + counts.candidate_size))

DICE = overlap_loss("dice", dice_rule, summary="s", source="s")
MISSES = Metric(name="misses", summary="s", source="s", mode="min", classes=lambda prediction: 0.25)
"""


pytestmark = pytest.mark.usefixtures("forgotten_plugin_files", "one_thread")


def exported(folder, tree):
    """Trains and exports a model, unloads its plugin file, and returns the model and the module's name."""
    job = load_job(tree)
    _, model = stored_runs.exported(job, folder)
    for plural in REGISTRIES:
        registry(plural).remove(job.plugins[0].label)
    (module,) = [name for name in sys.modules if name.startswith("mlcl_plugin_")]
    del sys.modules[module]
    return model, module


def test_a_loss_is_not_needed_to_predict_a_metric_is_to_score(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PLUGIN)
    tree = job_tree(tiny, epochs=1) | {"plugins": ["mine.py"]}
    tree["objective"]["heads"] = {"tags": {"loss": "dice", "labels": "tags", "weight": 0.2}}
    folder, module = exported(tmp_path, tree)
    model = load_model(folder)
    assert model.job.objective.heads["tags"].loss == "dice"
    assert len(model.predict(["vote noise1"]).labels) == 1
    assert module not in sys.modules
    result = Labelling(model, tiny, split="test").run(lambda _: None)
    assert result.metrics["test/misses"] == 0.25


BASELINE = """
from dataclasses import replace
from mlcl.training.baselines import BASELINES

OWN = replace(BASELINES["tfidf_svm"], name="own_svm")
"""


@pytest.mark.parametrize(("ensemble", "is_run"), [("tfidf_svm", False), ("own_svm", True)])
def test_the_baseline_of_an_ensemble_may_be_in_the_file(tiny, tmp_path, monkeypatch, ensemble, is_run):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(BASELINE)
    tree = job_tree(tiny, epochs=1) | {"plugins": ["mine.py"]}
    tree["evaluation"]["ensemble"] = ensemble
    folder, module = exported(tmp_path, tree)
    assert len(load_model(folder).predict(["vote noise1"], predictor="ensemble").labels) == 1
    assert (module in sys.modules) == is_run


def test_an_encoder_is_needed(tiny, tmp_path, monkeypatch, root):
    monkeypatch.chdir(tmp_path)
    source = root / "examples" / "plugin" / "mlcl_example" / "bag_of_words.py"
    (tmp_path / "mine.py").write_text(source.read_text())
    encoder = {"name": "bag_of_words", "width": 8}
    folder, module = exported(
        tmp_path, job_tree(tiny, epochs=1) | {"plugins": ["mine.py"], "encoder": encoder}
    )
    assert len(load_model(folder).predict(["vote noise1"]).labels) == 1
    assert module in sys.modules
