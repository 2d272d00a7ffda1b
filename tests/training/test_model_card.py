"""Tests of the README of an exported model, as the Hugging Face Hub reads it."""

import pytest
import yaml
from builders import dataset, tiny_job
from huggingface_hub import ModelCard
from stored_runs import TASKS, run

from mlcl.training.export import load_model, write_export

WORDS = ["ball", "run", "vote", "law"] * 3
LICENCES = [
    ("CC BY 4.0", {"license": "cc-by-4.0"}),
    ("Apache 2.0", {"license": "apache-2.0"}),
    ("none stated; cite Krizhevsky 2009", {"license": "unknown"}),
    ("not stated", {"license": "unknown"}),
    ('for research: "x", # y', {"license": "other", "license_name": "licence-of-the-data"}),
    ("not for commerce", {"license": "other", "license_link": "README.md"}),
]


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    home = tmp_path_factory.mktemp("run")
    return home / "run", *run(tiny_job(tiny, epochs=1), home)


def card(folder):
    return ModelCard.load(folder / "README.md")


def test_the_hub_reads_figures_tags_and_data(finished, tmp_path):
    source, job_data, metrics = finished
    index = write_export(
        tmp_path / "model", source, job_data, {"experiment": "tiny", "name": "a: run #1"}, "## More"
    )
    data, text = card(tmp_path / "model").data, (tmp_path / "model" / "README.md").read_text()
    assert (data.library_name, data.pipeline_tag, data.license) == ("mlcl", "text-classification", "unknown")
    assert {"mlcl", "multi-class"} <= set(data.tags)
    assert data.model_name == "tiny, a: run #1"
    prefix = f"{index.prefix(index.best)}test/"
    card_metrics = {result.metric_name.partition(" ")[0]: result.metric_value for result in data.eval_results}
    assert card_metrics == {
        name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)
    }
    assert next(iter(card_metrics)) == index.metric
    first_result = data.eval_results[0]
    assert (first_result.dataset_name, first_result.dataset_split) == ("tiny", "test")
    assert first_result.dataset_revision == job_data.fingerprint
    assert "## More" in text
    assert f"fingerprint `{job_data.fingerprint}`, from made for tests. Their licence: none." in text


@pytest.mark.parametrize(("licence", "fields"), LICENCES)
def test_the_licence_is_that_which_the_source_declares(licence, fields, tmp_path):
    rows = {
        "text": WORDS,
        "split": ["train"] * 4 + ["validation"] * 4 + ["test"] * 4,
        "topic": [0, 0, 1, 1] * 3,
    }
    data = dataset(tmp_path / "data", "licensed", {"topic": ("sport", "state")}, rows, licence=licence)
    job = tiny_job(data, "objective.heads={}", "objective.classifier.labels=topic", "evaluation.knn=null",
                   "train.batch_size=4", epochs=1)  # fmt: skip
    job_data, _ = run(job, tmp_path)
    write_export(tmp_path / "model", tmp_path / "run", job_data, {})
    front_matter = yaml.safe_load((tmp_path / "model" / "README.md").read_text().split("---\n")[1])
    assert front_matter.items() >= fields.items()
    assert load_model(tmp_path / "model").index.provenance["data_licence"] == licence


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_a_card_that_the_hub_reads(task, tiny, tmp_path):
    job_data, _ = run(tiny_job(tiny, *TASKS[task], epochs=1), tmp_path)
    write_export(tmp_path / "model", tmp_path / "run", job_data, {})
    data = card(tmp_path / "model").data
    assert data.model_name == "tiny"
    assert len(data.eval_results) > 1
