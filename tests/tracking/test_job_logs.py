"""Tests of the log of a job at its start."""

import json

import pytest
from builders import job_tree

from mlcl.config import load_job
from mlcl.data import Dataset
from mlcl.evaluation import METRICS
from mlcl.tracking import Provenance
from mlcl.tracking.job_logs import JobLogs
from mlcl.tracking.log import LOG, first_entry, log_folder
from mlcl.tracking.names import Tag

PLUGIN = """
from mlcl.evaluation import Metric

def of_rows(prediction):
    return 0.5

MISSES = Metric(name="misses", summary="s", source="s", mode="min", classes=of_rows)
HOPS = Metric(name="hops", summary="s", source="s", mode="min", hits=lambda right, known: known - right)
GAIN = Metric(name="gain", summary="s", source="s", classes=of_rows)
"""


def tags_of(home, job, info, id):
    JobLogs(home, "sqlite:///x.db", Provenance({}, ""), lambda _: None).start(
        job, info, id=id, name=id, owner=id
    )
    return first_entry(log_folder(home, id) / LOG)["tags"]


@pytest.mark.usefixtures("forgotten_plugin_files")
def test_the_better_side_of_metrics_is_kept_those_of_plugin_files_too(tiny, tmp_path, monkeypatch):
    (tmp_path / "metrics.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    tags = []
    for id, plugins in (("plain", []), ("own", ["metrics.py"])):
        job = load_job(job_tree(tiny) | {"plugins": plugins})
        tags.append(tags_of(tmp_path, job, Dataset.open(tiny).info, id))
    plain_names, plugin_names = (set(json.loads(run_tags[Tag.LOWER_IS_BETTER])) for run_tags in tags)
    assert plugin_names - plain_names == {"hops", "hops_*", "misses"}
    lower = {name for name, metric in METRICS.items() if metric.mode == "min"} - {"hops", "misses"}
    assert {"hamming_loss", "ranking_loss", "lca_distance"} <= lower
    assert {name.removesuffix("_*") for name in plain_names} == lower


def test_the_notes_of_the_data_are_kept_as_far_as_a_tag_takes_them(tiny, tmp_path):
    info, job = Dataset.open(tiny).info, load_job(job_tree(tiny))

    def kept(id, *notes):
        return tags_of(tmp_path, job, info.model_copy(update={"notes": notes}), id).get(Tag.DATA_NOTES)

    assert kept("none") is None
    assert json.loads(kept("two", "first", "second")) == ["first", "second"]
    assert json.loads(kept("long", "first", "x" * 4_000, "last")) == ["first"]
