"""Tests how job files and overrides are read, which mistakes are found, and the hashes of jobs."""

import pytest
import yaml
from builders import job_tree

from mlcl.config import (
    apply_overrides,
    dump_job,
    flatten,
    job_hash,
    load_job,
    parse_override,
    parse_setting,
    read_job,
)
from mlcl.config.reference import reference
from mlcl.config.section import validation_metric
from mlcl.config.space.search import SearchConfig
from mlcl.errors import UserError

JOB = yaml.safe_load("""
experiment: test
data: {source: icd10cm}
encoder: {name: cnn_text}
objective:
  heads:
    section: {loss: supcon, labels: section, weight: 0.1}
    chapter: {loss: supcon, labels: chapter, weight: 0.3}
  classifier: {loss: cross_entropy, labels: section}
train: {epochs: 2, batch_size: 8}
""")


def test_a_job_file_is_read_with_its_overrides(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB).replace("batch_size: 8", "batch_size: 8\n  lr: 1e-3"))
    job = load_job(path, ["train.epochs=5", "data.subset={n: 10}"])
    assert (job.train.epochs, job.data.subset.n, job.train.lr) == (5, 10, 0.001)


# Each line has an override, a key and a part of the message; `@` stands for the head `section`.
WRONG = """
train.epoch=2 | train.epoch | did you mean epochs
train.epochs=two | train.epochs | valid integer
@.los=x | @.los | did you mean loss
objective.heads.sectoin.temperature=0.3 | objective.heads.sectoin.temperature | \
the override names no such head; did you mean section?
@.temperature=0 | @.temperature | greater than 0
@.temperature=.nan | @.temperature | finite
@.weight=0.9 | objective | nothing remains for the classifier
@.labels=null | @ | supcon needs labels
@.temperature={learnt: 1} | @.temperature.learnt | learned
@.temperature={schedule: cosin, start: 1, end: 1} | @.temperature.schedule | cosine
@.temperature={schedule: cosine} | @.temperature.start | missing key (and 1 more)
encoder.widht=3 | encoder.widht | did you mean width
encoder.name=cnn | encoder.name | cnn_text
evaluation.metric=test/accuracy | evaluation.metric | selection uses validation only
data.path=x | data | exactly one of source and path
data.subset={} | data.subset | exactly one of per_class and n
evaluation.knn.lamda=1 | evaluation.knn.lamda | did you mean lambda
train=null | train | should be a section with keys
data.subset=many | data.subset | should be a section with keys; found: many
data.options=many | data.options | should be a section with keys; found: many
evaluation.metrics=bands | evaluation.metrics | should be a list; found: bands
train.sampler=pq | train.sampler | 'pk' or 'hierarchical'
evaluation.threshold=globl | evaluation.threshold | valid number, or 'global', 'per_label' or
evaluation.threshold=1.5 | evaluation.threshold | less than 1, or 'global', 'per_label' or
train.patience=autoo | train.patience | valid integer, or 'auto'; found: autoo
train.sampler={name: uniform, k: 3} | train.sampler | k goes with pk and hierarchical
train.sampler={name: pk, K: 3} | train.sampler.K | unknown key
train.epochs.x=1 | train.epochs | no keys below
"""


@pytest.mark.parametrize("line", WRONG.replace("@", "objective.heads.section").strip().splitlines())
def test_a_wrong_key_is_one_error_that_names_it(line):
    override, key, text = line.split(" | ")
    with pytest.raises(UserError) as error:
        load_job(JOB, [override])
    assert error.value.key == key
    assert text in error.value.line()
    assert "\n" not in error.value.line()


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "no such file"), (b"\xff\xfe\x00", "cannot be read"), (b"", "must be a mapping"),
     (b"- a\n- b\n", "must be a mapping"), (b"a: [1\n", "not valid YAML"), (b"a: 1\na: 2\n", "stands twice"),
     (b"a: !!python/object/apply:os.system ['true']\n", "not valid YAML")],
)  # fmt: skip
def test_a_file_that_is_no_job_is_named(tmp_path, content, text):
    path = tmp_path / "job.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as error:
        load_job(path)
    assert error.value.file == str(path)
    assert text in error.value.line()


def test_a_star_in_an_override_stands_for_each_key_there():
    tree = {"a": {"x": {"n": 1}, "y": {"n": 2}}, "none": {}}
    assert apply_overrides(tree, {"a.*.n": 3}) == {"a": {"x": {"n": 3}, "y": {"n": 3}}, "none": {}}
    assert apply_overrides(tree, {"none.*.n": 3}) == tree
    heads = load_job(JOB, ["objective.heads.*.reduction=sum"]).objective.heads
    assert [head.reduction for head in heads.values()] == ["sum", "sum"]
    with pytest.raises(UserError, match=r"heads\.\*\.weight: its \* matches no key of the job; found: 2"):
        read_job({"objective": {"heads": {}}}).with_overrides({"objective.heads.*.weight": 2})
    for key in ("b.*.n", "a.x.n.*.m"):
        with pytest.raises(UserError, match=r"has no keys that \* could stand for"):
            apply_overrides(tree, {key: 3})


def test_overrides_leave_the_original_alone_and_make_what_is_missing():
    tree = {"a": {"b": 1}}
    assert apply_overrides(tree, {"a.b": 2, "c.d": 3}) == {"a": {"b": 2}, "c": {"d": 3}}
    assert tree == {"a": {"b": 1}}
    for text in ("novalue", "=1", "a..b=1", ".a=1"):
        with pytest.raises(UserError, match="not an override"):
            parse_override(text)


def test_paths_of_callers_are_texts(tmp_path):
    tree = job_tree(tmp_path / "data")
    job = load_job({**tree, "data": {"path": tmp_path / "data"}})
    assert job == load_job(tree, {"data.path": tmp_path / "data"}) == load_job(tree)
    files = {"source": "csv", "options": {"path": [tmp_path / "a.csv"]}}
    assert load_job(tree, {"data": files}).data.options["path"] == [str(tmp_path / "a.csv")]


def test_an_override_below_another_one_leaves_the_other_s_value_alone():
    heads = {"one": {"n": 1, "options": {"m": 1}}}
    result = apply_overrides({"heads": {}}, {"heads": heads, "heads.one.n": 2, "heads.one.options.m": 2})
    assert result == {"heads": {"one": {"n": 2, "options": {"m": 2}}}}
    assert heads == {"one": {"n": 1, "options": {"m": 1}}}
    star_result = apply_overrides({"a": {"x": {}, "y": {}}}, {"a.*.o": {"m": 1}, "a.x.o.m": 2})
    assert star_result == {"a": {"x": {"o": {"m": 2}}, "y": {"o": {"m": 1}}}}


def test_a_star_may_stand_in_any_key_of_a_setting():
    setting = parse_setting("train.lr=0.1, heads.*.weight=2,heads.*.options={a: 1, b: [1, 2]},seed=3")
    options = {"a": 1, "b": [1, 2]}
    assert setting == {"train.lr": 0.1, "heads.*.weight": 2, "heads.*.options": options, "seed": 3}


def test_the_hash_names_the_resolved_job_without_what_is_logged_besides():
    short_job, full_job = (load_job(JOB, {"train.sampler": sampler}) for sampler in ("pk", {"name": "pk"}))
    assert short_job == full_job == load_job(dump_job(short_job))
    assert job_hash(short_job) == job_hash(full_job) != job_hash(load_job(JOB))
    job, tracked_job = load_job(JOB), load_job(JOB, ["tracking.system_metrics=true"])
    assert job_hash(job) == job_hash(load_job(dump_job(job)))
    assert job_hash(job) != job_hash(load_job(JOB, ["train.seed=1"]))
    assert job_hash(tracked_job) == job_hash(job)
    assert dump_job(job)["tracking"]["system_metrics"] is False
    assert load_job(dump_job(tracked_job)) == tracked_job != job


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("train", "products", "tf32"), ("train", "compile", True), ("train", "compile", "graphs"),
     ("train", "deterministic", True), ("data", "validation_seed", 0)],
)  # fmt: skip
def test_a_dumped_job_has_its_defaults_and_writing_one_out_changes_no_hash(section, key, value):
    job, changed_job = load_job(JOB), load_job(JOB, {f"{section}.{key}": value})
    assert dump_job(job)[section][key] == getattr(getattr(job, section), key)
    assert dump_job(changed_job)[section][key] == value
    assert job_hash(changed_job) != job_hash(job)
    explicit_job = load_job(JOB, {f"{section}.{key}": getattr(getattr(job, section), key)})
    assert job_hash(explicit_job) == job_hash(job)


def test_two_views_are_for_contrastive_heads():
    """A resolved job has the number of views; a head of weight 0 does not count as contrastive."""
    assert dump_job(load_job(JOB))["train"]["views"] == 2
    overrides = [f"objective.heads.{name}.weight=0" for name in ("section", "chapter")]
    assert load_job(JOB, overrides).views == 1
    assert load_job(JOB, [*overrides, "train.views=3"]).views == 3


def test_the_classifier_keeps_what_the_heads_leave_and_a_job_is_frozen():
    values = flatten(dump_job(load_job(JOB, ["evaluation.knn={k: 3}"])))
    assert (values["evaluation.knn.lambda"], values["objective.heads.section.weight"]) == (0.5, 0.1)
    assert load_job(JOB).objective.classifier_weight == pytest.approx(0.6)
    full_job = load_job(JOB, ["objective.heads.section.weight=0.7"])
    assert full_job.objective.classifier_weight == 0.0
    with pytest.raises(ValueError, match="frozen"):
        load_job(JOB).train.epochs = 3


def test_the_job_reference_is_up_to_date(root):
    assert (root / "docs" / "job-reference.md").read_text() == reference()


METRICS = {
    "val/micro_f1": "val/micro_f1|micro-F1|Validation/F1 micro",
    "val/macro_f1": "f1_macro",
    "knn/val/accuracy": "knn/accuracy",
    "val/accuracy": "acc",
    "val/precision_at_5": "val/precision_at_5",
    "val/accuracy_größe_café": "Accuracy Größe Café",
}


@pytest.mark.parametrize(
    ("written", "meant"), [(w, m) for m, names in METRICS.items() for w in names.split("|")]
)
def test_a_metric_is_named_as_people_write_it(written, meant):
    assert validation_metric(written) == meant
    assert load_job(JOB, {"evaluation.metric": written}).evaluation.metric == meant
    transfer = {"path": "data", "labels": "tags", "metric": meant.rpartition("/")[2]}
    assert (
        load_job(JOB, {"evaluation.transfer_to": transfer}).evaluation.transfer_to.metric
        == transfer["metric"]
    )
    search = SearchConfig(metric=[written, "val/map"], prune_by=written)
    assert (search.metric, search.prune_by) == ((meant, "val/map"), meant)


def test_the_default_metric_follows_the_task_and_leaves_the_hash_of_other_jobs(tmp_path):
    tree = job_tree(tmp_path)
    job = load_job(tree)
    assert job.evaluation.metric == "val/accuracy"
    assert job_hash(job) == job_hash(load_job(tree, {"evaluation.metric": "val/accuracy"}))
    multi_label = {"objective.classifier": {"loss": "bce", "labels": "tags"}}
    for overrides, metric in (
        ({}, "val/micro_f1"),
        ({"evaluation": {}}, "val/micro_f1"),
        ({"evaluation.metric": "val/accuracy"}, "val/accuracy"),
    ):
        assert load_job(tree, {**multi_label, **overrides}).evaluation.metric == metric


def test_a_mapping_takes_the_keys_of_an_anchor_and_may_overwrite_them(tmp_path):
    heads = "{section: &a {loss: supcon, labels: section, weight: 0.1}, chapter: {<<: *a, labels: chapter}}"
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(JOB | {"objective": None}).replace("null", f"{{heads: {heads}}}"))
    tree = dump_job(load_job(file, {"objective.classifier": JOB["objective"]["classifier"]}))
    head = tree["objective"]["heads"]["section"]
    assert tree["objective"]["heads"]["chapter"] == head | {"labels": "chapter"}
    assert head["weight"] == 0.1
