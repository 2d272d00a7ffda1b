"""The data of runs that were downloaded."""

import pytest
import yaml
from builders import job_tree

from mlcl.config import dump_job, load_job
from mlcl.errors import UserError
from mlcl.plugins import only_reading
from mlcl.results.knn_scores import JobDataCache
from mlcl.training.run_files import JOB

PLUGIN = """
from mlcl.evaluation import Metric

MISSES = Metric(name="misses", summary="s", source="s", mode="min", classes=lambda prediction: 0.25)
"""


@pytest.mark.usefixtures("forgotten_plugin_files")
def test_a_job_with_plugin_files_is_not_opened_by_what_only_reads(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PLUGIN)
    tree = job_tree(tiny) | {"plugins": ["mine.py"]}
    (tmp_path / JOB).write_text(yaml.safe_dump(dump_job(load_job(tree, ["evaluation.metric=val/misses"]))))
    cache = JobDataCache(tmp_path)
    with only_reading(), pytest.raises(UserError, match="its job has plugin files, which are not run here"):
        cache(tmp_path)
    assert cache(tmp_path).scoring.mode == "min"
