import pytest
from builders import job_tree

from mlcl.config import load_job
from mlcl.config.job import job_hash
from mlcl.config.section import validation_metric
from mlcl.config.space.search import SearchConfig
from mlcl.errors import UserError


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("val/micro_f1", "val/micro_f1"),
        ("micro-F1", "val/micro_f1"),
        ("f1_macro", "val/macro_f1"),
        ("Validation/F1 micro", "val/micro_f1"),
        ("knn/accuracy", "knn/val/accuracy"),
        ("acc", "val/accuracy"),
        ("val/precision_at_5", "val/precision_at_5"),
    ],
)
def test_a_metric_is_named_as_people_write_it(written, meant, tmp_path):
    assert validation_metric(written) == meant
    assert load_job(job_tree(tmp_path), {"evaluation.metric": written}).evaluation.metric == meant
    search = SearchConfig(metric=[written, "val/map"], prune_by=written)
    assert (search.metric, search.prune_by) == ((meant, "val/map"), meant)


def test_the_test_split_selects_nothing(tmp_path):
    with pytest.raises(UserError, match=r"key evaluation\.metric: selection uses validation only"):
        load_job(job_tree(tmp_path), {"evaluation.metric": "test/accuracy"})


def test_the_default_follows_the_task_and_leaves_the_hash_of_other_jobs(tmp_path):
    tree = job_tree(tmp_path)
    single = load_job(tree)
    assert single.evaluation.metric == "val/accuracy"
    assert job_hash(single) == job_hash(load_job(tree, {"evaluation.metric": "val/accuracy"}))
    several = {"objective.classifier": {"loss": "bce", "labels": "tags"}}
    assert load_job(tree, several).evaluation.metric == "val/micro_f1"
    assert load_job(tree, {**several, "evaluation": {}}).evaluation.metric == "val/micro_f1"
    assert (
        load_job(tree, {**several, "evaluation.metric": "val/accuracy"}).evaluation.metric == "val/accuracy"
    )
