"""Tests of transfer: refusals before the start, and a test split that is read after the probe is chosen."""

import json

import pytest
import torch
from builders import dataset, text_dataset, tiny_job

from mlcl.data import Dataset, Split
from mlcl.errors import UserError
from mlcl.testing.datasets import small_dataset
from mlcl.training import transfer as module
from mlcl.training.embeddings import RankRows
from mlcl.training.transfer import Transfer

PROBE = "evaluation.probe={epochs: 20, lr: [0.01, 0.1], weight_decay: [0.0]}"


def transfer_to(place, home, labels="detail", metric="accuracy"):
    override = f"evaluation.transfer_to={{path: {place}, labels: {labels}, metric: {metric}}}"
    return Transfer.of(
        tiny_job(place, override, PROBE, "evaluation.threshold=0.5"), home, Dataset.open(place).info
    )


def measure(transfer, encode):
    return transfer.measure(lambda split: RankRows(encode(split)), encode)


def features_of(split):
    """Returns embeddings (N, 4) that encode the class with a little noise."""
    noise = torch.randn(len(split), 4, generator=torch.Generator().manual_seed(len(split)))
    return torch.eye(4)[split.labels("detail")] + 0.1 * noise


def test_the_test_split_is_read_when_the_probe_is_chosen(tiny, tmp_path, monkeypatch):
    calls, transfer = [], transfer_to(tiny, tmp_path)
    probe, labels = module.linear_probe, Split.labels

    def read(split, name):
        calls.append(f"labels of {split.name}")
        return labels(split, name)

    monkeypatch.setattr(Split, "labels", read)
    monkeypatch.setattr(module, "linear_probe", lambda *a, **k: (calls.append("probe"), probe(*a, **k))[1])

    def encode(split):
        calls.append(f"encode {split.name}")
        return torch.zeros(len(split), 4)

    metrics = measure(transfer, encode)
    assert calls == [
        *("encode train", "encode validation", "labels of train", "labels of validation", "probe"),
        *("encode test", "labels of test"),
    ]
    assert {name.rpartition("/")[0] for name in metrics} == {"transfer/val", "transfer/test"}


@pytest.mark.parametrize(
    ("labels", "metric"), [("detail", "accuracy"), ("tags", "micro_f1"), ("ratings", "accuracy")]
)
def test_every_task_is_probed(tiny, tmp_path, labels, metric):
    metrics = measure(transfer_to(tiny, tmp_path, labels, metric), features_of)
    assert metrics[f"transfer/test/{metric}"] > 0.5
    assert metrics == measure(transfer_to(tiny, tmp_path, labels, metric), features_of)


def test_a_split_that_is_missing_is_told_before_the_start(tmp_path):
    folder = text_dataset(tmp_path / "set")
    info = json.loads((folder / "dataset.json").read_text())
    test_shard = next(shard for shard in info["shards"] if shard["file"].startswith("test"))
    info["shards"].remove(test_shard)
    del info["rows"]["test"]
    (folder / "dataset.json").write_text(json.dumps(info))
    with pytest.raises(UserError, match=r"set, key evaluation.transfer_to: a split is missing.*found: train"):
        transfer_to(folder, tmp_path)


def test_vectors_of_another_length_are_refused(tmp_path):
    info = Dataset.open(small_dataset(tmp_path / "set", "vectors")).info
    override = f"evaluation.transfer_to={{path: {tmp_path / 'set'}, labels: tags, metric: micro_f1}}"
    job = tiny_job(tmp_path / "set", override, PROBE, "evaluation.threshold=0.5")
    assert Transfer.of(job, tmp_path, info).task == "multi_label"
    with pytest.raises(UserError, match="vectors of another length; found: 6; allowed: 7"):
        Transfer.of(job, tmp_path, info.model_copy(update={"dim": 7}))


def two_spaces(folder, unlabelled):
    """Writes texts with two label spaces; no row of the split `unlabelled` has a class of `other`."""
    splits = ["train"] * 8 + ["validation"] * 4 + ["test"] * 4
    other_labels = [-1 if split == unlabelled else i % 2 for i, split in enumerate(splits)]
    rows = {"text": [f"w{i % 2} v{i}" for i in range(16)], "split": splits}
    spaces = {"kind": ("a", "b"), "other": ("c", "d")}
    return dataset(folder, "two", spaces, rows | {"kind": [i % 2 for i in range(16)], "other": other_labels})


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_split_without_labels_is_refused_before_the_start(tmp_path, split):
    with pytest.raises(UserError, match=r"no (training|validation) row has a label of it; found: other"):
        transfer_to(two_spaces(tmp_path / "set", split), tmp_path, "other")


def test_test_rows_without_labels_give_no_metrics(tmp_path):
    transfer = transfer_to(two_spaces(tmp_path / "set", "test"), tmp_path, "other")
    metrics = measure(transfer, lambda split: torch.randn(len(split), 4))
    assert {name.rpartition("/")[0] for name in metrics} == {"transfer/val"}
