"""Tests that a job that does not fit the data gives one error with the job's key, before anything starts."""

import pytest
import torch
from builders import dataset, job_tree, tiny_job, tree_dataset

from mlcl.config import HeadConfig, load_job
from mlcl.data import Dataset, LabelSpace
from mlcl.errors import UserError
from mlcl.losses import LOSSES
from mlcl.service.doctor.servers import find_unusable_gpu
from mlcl.training import context
from mlcl.training.batches import build_sampler, sampler_labels
from mlcl.training.checks import check_job
from mlcl.training.context import pick_device
from mlcl.training.job_data import MOST_SHORT, JobData, job_plan

# Each line has overrides, the error's key and a part of its text; `@` stands for the heads, =tiny for data.
UNFIT = """
@.detail.labels=detial | @.detail.labels | did you mean detail
@.detail.labels=tags | @.detail.labels | does not take this kind
@.detail.labels=path | @.detail.labels | does not take this kind
@.detail.options={penalty: x} | @.detail.options | penalty
@.detail.loss=hicone | @.detail.labels | allowed: hierarchy
@.topic.loss=hicone | @.topic.labels | path.topic (single)
objective.heads={one: {loss: himulcon, labels: path, options: {level_weights: [1, 2, 3]}}} | \
@.one.options.level_weights | needs 2 numbers, one for each level of path, coarse first; found: 1, 2, 3
objective.classifier.labels=tags | objective.classifier | does not fit
objective.classifier.loss=bce | objective.classifier | does not fit
objective.classifier.labels=none | objective.classifier.labels | no such label space
encoder={name: cnn_image} | encoder.name | reads images
evaluation.metric=val/acuracy | evaluation.metric | did you mean accuracy
evaluation.metric=val/micro_f1 | evaluation.metric | no such metric
evaluation.metric=val/tail_accuracy | evaluation.metric | metrics does not name its group
evaluation.metric=knn/val/accuracy ; evaluation.knn=null | evaluation.metric | needs evaluation.knn
evaluation.ensemble=tfidf_smv | evaluation.ensemble | did you mean tfidf_svm
evaluation.ensemble=majority | evaluation.ensemble | no such baseline that a model can contain
evaluation.ensemble=pixels_logreg | evaluation.ensemble | reads images, the data set tiny holds texts
evaluation.ensemble=encoder_knn | evaluation.ensemble | the job's encoder, cnn_text, is not a pretrained one
evaluation.ensemble=tfidf_svm ; baseline=majority | evaluation.ensemble | allowed: null
evaluation.ensemble=tfidf_svm ; evaluation.metric=knn/val/accuracy | evaluation.metric | allowed: val/...
data.subset={n: 3, labels: nope} | data.subset.labels | no such label space
train.views=1 ; @.detail={loss: simclr, weight: 0.2} | train.views | one view
train.sampler={name: pk, labels: tag} | train.sampler.labels | did you mean tags
train.sampler={name: hierarchical, labels: tags} | train.sampler.labels | tags (multi_label)
train.sampler={name: pk, k: 9} | train.batch_size | found: 16; allowed: 18 or more
train.sampler={name: hierarchical, k: 3, branches: 3} | train.batch_size | \
two classes of path for the sampler hierarchical; found: 16; allowed: 18 or more
objective.heads={} ; objective.classifier={loss: bce, labels: tags} ; evaluation.metric=val/map ; \
train.sampler=hierarchical | train.sampler.labels | no head has a hierarchy; allowed: path
objective.heads={} ; data.label_noise={rate: 0.1} ; train.sampler={name: pk, labels: tags} | \
train.sampler.labels | stays clean
evaluation.metrics=[band] | evaluation.metrics | did you mean bands
evaluation.metrics=[ranking] | evaluation.metrics | labels detail (single)
evaluation.metrics=[hierarchy] ; objective.classifier.labels=topic | evaluation.metrics | \
allowed: averages, bands, calibration, clustering, retrieval
evaluation.metric=val/tail_accuracy | evaluation.metric | no such metric
train.workers=20 | train.batch_size | fewer samples in a batch than workers
data.subset={n: 1000} | data.subset.n | more
train.drop_last=true ; train.batch_size=100 | train.batch_size | 100
objective.classifier={loss: bce, labels: tags, gamma_neg: 2} | objective.classifier | gamma_neg is for asl
objective.classifier={loss: cross_entropy, labels: topic, distortion: 2} | objective.classifier | \
distortion is for
objective.classifier={loss: asl, labels: tags, pos_weight: sqrt} | objective.classifier | pos_weight is for
objective.classifier={loss: cross_entropy, labels: tags, pos_weight: sqrt} | objective.classifier | \
pos_weight is for
objective.classifier={loss: bce, labels: tags, class_weight: sqrt} | objective.classifier | \
class_weight is for
objective.heads={} ; objective.classifier={loss: bce, labels: tags} ; evaluation.metric=val/micro_f1 ; \
evaluation.threshold=0 | evaluation.threshold | 0
objective.heads={} ; objective.classifier={loss: bce, labels: tags} ; evaluation.metric=val/micro_f1 ; \
evaluation.threshold=1.0 | evaluation.threshold | 1.0
objective.heads={} ; objective.classifier={loss: bce, labels: tags} ; evaluation.metric=val/micro_f1 ; \
evaluation.threshold=best | evaluation.threshold | best
encoder={name: ldgn, max_length: 8} ; objective.heads={} ; objective.classifier.loss=guided | \
objective.classifier.labels | ldgn classifies
evaluation.bands=[12, 10] | evaluation.bands | first number is too large
data.hold_out={labels: path, share: 0.5} ; data.label_noise={rate: 0.1} | data | hold_out excludes label_noise
evaluation.transfer_to={path: =tiny, labels: nowhere, metric: accuracy} | evaluation.transfer_to.labels | \
tiny has no such label space
evaluation.transfer_to={path: =tiny, labels: path, metric: accuracy} | evaluation.transfer_to.labels | \
cannot be predicted; found: path
evaluation.transfer_to={path: =tiny, labels: tags, metric: accuracy} | evaluation.transfer_to.metric | \
no such metric for this task
@.detail={loss: hicone, labels: path, weight: 0.2, queue: 8} | @.detail.queue | takes no queue; found: 8
encoder={name: features, inputs: [column]} | encoder.name | reads vectors, the data set tiny holds texts
"""


@pytest.mark.parametrize("row", UNFIT.replace("@", "objective.heads").strip().splitlines())
def test_a_job_that_does_not_fit_the_data(tiny, tmp_path, row):
    overrides, key, text = row.split(" | ")
    with pytest.raises(UserError) as error:
        JobData.of(tiny_job(tiny, *overrides.replace("=tiny", f" {tiny}").split(" ; ")), tmp_path)
    assert error.value.key == key
    assert text in error.value.line()


@pytest.mark.parametrize(
    ("keys", "key", "text"),
    [
        ({"max_length": 33}, "encoder.max_length", "found: 33; allowed: 32"),
        ({"freeze": 3}, "encoder.freeze", "found: 3; allowed: 2"),
        ({"lora": {"targets": ["q"]}}, "encoder.lora.targets", "allowed: dense, key, query, value"),
        ({"name": "plm_icd", "chunk_length": 40}, "encoder.chunk_length", "found: 40; allowed: 32"),
    ],
)
def test_a_pretrained_network_that_cannot_be_built(tiny, tmp_path, models, monkeypatch, keys, key, text):
    def refuse(*args, **options):
        raise AssertionError("weights are read")

    monkeypatch.setattr("mlcl.models.encoder.build_network", refuse)
    tree = job_tree(tiny) | {
        "encoder": {"name": "transformer", "model": str(models["bert"]), **keys},
        "objective": {"classifier": {"loss": "bce", "labels": "tags"}},
        "evaluation": {"metric": "val/micro_f1"},
    }
    with pytest.raises(UserError) as error:
        JobData.of(load_job(tree), tmp_path)
    assert error.value.key == key
    assert text in error.value.line()


def test_the_task_follows_the_classifier(tiny):
    info = Dataset.open(tiny).info
    assert check_job(tiny_job(tiny), info) == "single"
    bce = ("objective.classifier={loss: bce, labels: tags}", "evaluation.metric=val/map")
    assert check_job(tiny_job(tiny, *bce), info) == "multi_label"
    aspects = ("objective.classifier.labels=ratings", "evaluation.metric=val/accuracy_word")
    assert check_job(tiny_job(tiny, *aspects), info) == "aspects"


def test_a_head_of_weight_0_needs_no_second_view(tiny):
    head = "objective.heads.detail={loss: simclr, weight: 0}"
    job = tiny_job(tiny, "train.views=1", head)
    assert check_job(job, Dataset.open(tiny).info) == "single"


@pytest.mark.parametrize("name", list(LOSSES))
def test_a_job_can_name_every_loss(name):
    labels = None if LOSSES[name].labels == "none" else "tags"
    assert HeadConfig(loss=name, labels=labels).loss == name
    with pytest.raises(ValueError, match="takes no labels" if labels is None else "needs labels"):
        HeadConfig(loss=name, labels="tags" if labels is None else None)


def test_an_unknown_loss_is_one_line_with_the_nearest():
    message = r"key objective.heads.topic.loss: unknown loss; did you mean simdis\?; found: simdiss; "
    with pytest.raises(UserError, match=message + "allowed: all, any, .*, supcon"):
        tiny_job("data", "objective.heads.topic.loss=simdiss")


@pytest.mark.parametrize(("name", "options"), [("himulcone", "{level_weights: [0.5, 1]}"), ("hicone", "{}")])
def test_a_head_on_a_hierarchy_gets_its_levels_coarse_first(tiny, tmp_path, name, options):
    head = f"objective.heads={{path: {{loss: {name}, labels: path, weight: 0.2, options: {options}}}}}"
    job_data = JobData.of(tiny_job(tiny, head), tmp_path)
    assert job_data.encode(job_data.train).labels["path"].tolist() == [[i % 4 // 2, i % 4] for i in range(48)]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [(["objective.heads.tree.options={level_weights: [1]}"], "needs 2 numbers, one for each level of path"),
     (["objective.heads.tree.loss=mulsupcon"], "does not take this kind of label space; found: path"),
     (["objective.heads.tree.labels=tags"], "found: tags (multi_label); allowed: hierarchy"),
     (["data.label_noise={rate: 0.1, labels: group}"], "of a hierarchy to the finest level"),
     (["objective.classifier={loss: guided, labels: tags}"], "guided with tags (multi_label)")],
)  # fmt: skip
def test_a_head_on_several_paths_is_checked(tmp_path, overrides, message):
    head = "objective.heads={tree: {loss: himulcone, labels: path, weight: 0.2}}"
    bce = ("objective.classifier={loss: bce, labels: tags}", "evaluation.metric=val/map")
    info = Dataset.open(tree_dataset(tmp_path / "data")).info
    check_job(tiny_job(tmp_path / "data", head, *bce), info)
    with pytest.raises(UserError) as error:
        check_job(tiny_job(tmp_path / "data", head, *bce, *overrides), info)
    assert message in error.value.line()


def test_rows_of_one_class_make_no_pk_batches(tiny, tmp_path):
    job = tiny_job(tiny, "train.sampler=pk")
    split = Dataset.open(tiny).split("train")
    with pytest.raises(UserError, match=r"train\.sampler\.labels.*of one class"):
        build_sampler(job, split.take(torch.arange(0, 48, 4)), 0, 1)


@pytest.mark.parametrize(
    ("overrides", "labels"),
    [(["train.sampler=uniform"], None), (["train.sampler=pk"], "detail"),
     (["train.sampler={name: balanced, labels: ratings}"], "ratings"),
     (["train.sampler=hierarchical"], "path"),
     (["train.sampler=hierarchical", "objective.heads={one: {loss: hicone, labels: path}}"], "path")],
)  # fmt: skip
def test_the_labels_of_a_sampler(tiny, tmp_path, overrides, labels):
    job_data = JobData.of(tiny_job(tiny, *overrides), tmp_path)
    assert sampler_labels(job_data.job, job_data.dataset.info) == labels
    assert sum(map(len, build_sampler(job_data.job, job_data.train, 0, 1).batches(0))) == 48


def test_a_data_set_without_a_test_split(tmp_path):
    rows = {"text": ["x", "y"], "split": ["train", "validation"], "detail": [0, 1]}
    folder = dataset(tmp_path / "set", "toy", {"detail": ("a", "b")}, rows)
    job = tiny_job(folder, "objective.heads={}")
    with pytest.raises(UserError, match=r"has no such split.*test"):
        JobData.of(job, tmp_path)


def test_a_gpu_that_is_not_there_is_said_first(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="no GPU is visible"):
        pick_device("cuda")
    with pytest.raises(UserError, match=r"no GPU is visible.*--gpus 0"):
        pick_device("auto", gpu_booked=True)
    assert pick_device("auto").type == pick_device("cpu", gpu_booked=True).type == "cpu"


@pytest.fixture
def old_driver(monkeypatch, tmp_path):
    """Simulates a machine with a GPU whose driver is too old for PyTorch's CUDA."""
    (tmp_path / "version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct 27\n"
    )
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(context, "DRIVER", tmp_path / "version")
    monkeypatch.setattr(context, "DEVICES", tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_gpu_that_pytorch_cannot_use_is_refused_with_driver_and_wheel(old_driver, device):
    with pytest.raises(UserError, match=r"PyTorch cannot use the GPU.*driver 470\.82\.01.*CUDA 13\.2"):
        pick_device(device)
    assert pick_device("cpu").type == "cpu"


@pytest.mark.parametrize("why", ["hidden", "container", "no CUDA"])
def test_a_gpu_that_is_not_given_to_the_process_is_no_problem(old_driver, monkeypatch, why):
    if why == "hidden":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    elif why == "container":
        (old_driver / "nvidia0").unlink()
    else:
        monkeypatch.setattr(torch.version, "cuda", None)
    assert pick_device("auto").type == "cpu"


def test_the_doctor_finds_a_gpu_that_pytorch_cannot_use(old_driver):
    (problem,) = find_unusable_gpu(None)
    assert "470.82.01" in problem.what
    (old_driver / "nvidia0").unlink()
    assert list(find_unusable_gpu(None)) == []


def test_aspects_whose_metrics_would_have_one_name_are_refused(tmp_path):
    spaces = {"stars": LabelSpace(kind="aspects", aspects=("Food", "food"), scale=(1, 2))}
    rows = {"split": ["train", "train", "validation", "test"], "text": list("abcd"), "stars": [(1, 2)] * 4}
    data = dataset(tmp_path / "data", "rated", spaces, rows)
    job = tiny_job(data, "objective.heads={}", "objective.classifier.labels=stars")
    with pytest.raises(UserError, match="metrics of one name; found: Food, food"):
        check_job(job, Dataset.open(data).info)


def test_a_plan_names_classes_with_fewer_rows_than_the_subset_asks_for(tiny, tmp_path):
    plans = [
        job_plan(JobData.of(tiny_job(tiny, f"data.subset={{per_class: {n}}}"), tmp_path)) for n in (1, 999)
    ]
    assert "short_classes" not in plans[0]["data"]
    classes = Dataset.open(tiny).info.space(tiny_job(tiny).objective.classifier.labels).n_classes
    first_class, *other_classes = plans[1]["data"]["short_classes"]
    assert first_class.endswith(" of 999 rows")
    assert len(other_classes) + 1 == min(classes, MOST_SHORT) + (classes > MOST_SHORT)
