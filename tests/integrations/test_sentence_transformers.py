"""Tests of mlcl.integrations.sentence_transformers with the real package: losses, labels, batches, ranks."""

import doctest
import warnings

import pytest
import torch
from integrations.ranks import SPLITS, close, documented, gradients_of
from tiny_models import tiny_model

pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
pytest.importorskip("datasets", reason="sentence-transformers trains with the package datasets")

from integrations.sentence_ranks import (
    DATA,
    LISTS,
    arguments,
    batch,
    bert,
    label_loss,
    static,
    step,
    work,
)
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss

import mlcl.integrations.sentence_transformers.batches as batches_module
import mlcl.integrations.sentence_transformers.loss as loss_module
from mlcl.integrations.sentence_transformers import (
    LabelBatches,
    LabelCollator,
    LabelLoss,
    label_batches,
)
from mlcl.losses import build_loss
from mlcl.samplers import LabelBatchSampler
from mlcl.testing.ranks import run_ranks

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore::UserWarning")]
JOBS = [
    *(
        {"name": "mulsupcon", "columns": 1, "mini_batch_size": size, "splits": [s]}
        for s in SPLITS
        for size in (None, 3)
    ),
    *({"name": "simclr", "columns": 2, "mini_batch_size": size, "splits": [(3, 5)]} for size in (None, 3)),
    *({"name": "mulsupcon", "columns": 2, "mini_batch_size": size, "splits": SPLITS} for size in (None, 3)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("bert"), "bert")


def features(found):
    """Returns what the trainer passes to a loss: a dictionary for each column, and the labels."""
    columns = sorted({name.split("_")[0] for name in found if name != "label"})
    names = ("input_ids", "attention_mask")
    return [{name: found[f"{column}_{name}"] for name in names} for column in columns], found.get("label")


def one_pass(folder, job):
    """Returns the gradients of the accumulated batches' mean loss, in one process without the trainer."""
    loss = label_loss(bert(folder), name=job["name"])
    for _ in job["splits"]:
        inputs = features(batch(columns=job["columns"], labels=job["name"] != "simclr"))
        (loss(*inputs) / len(job["splits"])).backward()
    return gradients_of(loss)


@pytest.fixture(scope="module")
def ranks(folder):
    return run_ranks(work, (JOBS, folder), 2)


def test_gradients_of_two_processes_are_those_of_one(folder, ranks):
    for number, job in enumerate(JOBS):
        expected = one_pass(folder, job)
        assert expected["loss.temperature.log_tau"] != 0
        for answers, _ in ranks:
            close(answers[number], expected)


def test_the_batches_of_all_processes_are_those_of_the_sampler(ranks):
    sampler = LabelBatchSampler(LISTS, 8, order="pk", k=2, seed=5, drop_last=True)
    for epoch in range(2):
        rank_batches = [epoch_batches[epoch] for _, epoch_batches in ranks]
        assert [rows for pair in zip(*rank_batches, strict=True) for rows in pair] == list(sampler)


@pytest.mark.parametrize("size", [1, 3, 8, 20])
def test_mini_batches_have_the_gradients_of_one_pass_also_scaled(folder, size):
    expected = one_pass(folder, {"name": "mulsupcon", "columns": 2, "splits": [(8,)] * 2})
    close(step(label_loss(bert(folder), size), [batch(), batch()], folder / "out"), expected)


def test_dropout_is_the_same_in_both_passes_of_a_mini_batch(folder):
    loss, embeddings = label_loss(bert(folder, dropout=0.5), 8), []
    loss.model.register_forward_hook(
        lambda _m, _i, output: embeddings.append(output["sentence_embedding"].detach())
    )
    loss(*features(batch(columns=1))).backward()
    first, second = embeddings
    assert torch.equal(first, second)


def test_without_gradients_mini_batches_give_the_value_alone(folder):
    inputs = features(batch())
    with torch.no_grad():
        values = [label_loss(bert(folder), size)(*inputs) for size in (None, 3)]
    torch.testing.assert_close(*values)
    assert not values[1].requires_grad


def test_a_static_embedding_is_trained_in_one_pass_and_refused_in_mini_batches():
    model = static()
    tokens = model.preprocess(["ball run", "vote", "law law law", "run"])
    label_loss(model)([dict(tokens)], torch.tensor([[1, 0], [0, 1], [0, 1], [1, 0]])).backward()
    assert gradients_of(model)["0.embedding.weight"].abs().sum() > 0
    with pytest.raises(
        ValueError, match=r"one row a text; found: input_ids \(7,\), offsets \(4,\); allowed: None"
    ):
        label_loss(model, 2)([dict(tokens)], None)


def test_a_wrapper_of_sentence_transformers_takes_the_loss(folder):
    loss = label_loss(bert(folder))
    value = MatryoshkaLoss(loss.model, loss, [16, 8])(*features(batch()))
    assert value.isfinite()
    value.backward()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"loss": torch.nn.Identity()},
            r"loss; found: Identity; allowed: build_loss\(\.\.\.\), reduction mean, mean_valid, sum",
        ),
        ({"loss": "supcon"}, "loss; found: str"),
        ({"loss": build_loss("supcon", reduction="none")}, "loss; found: reduction none"),
        ({"mini_batch_size": 0}, "mini_batch_size; found: 0; allowed: 1 or more, None"),
    ],
)
def test_a_loss_refuses_what_it_cannot_use(options, message):
    with pytest.raises(ValueError, match=message):
        LabelLoss(torch.nn.Identity(), **{"loss": build_loss("supcon"), **options})


def test_inputs_that_the_loss_refuses_keep_its_line(folder):
    columns, labels = features(batch())
    with pytest.raises(ValueError, match="mulsupcon needs multi_label labels; found: None"):
        label_loss(bert(folder))(columns, None)
    with pytest.raises(ValueError, match="multi-hot labels must be 0 or 1"):
        label_loss(bert(folder))(columns, labels + 1)
    with pytest.raises(ValueError, match="simclr needs sample_ids"):
        label_loss(bert(folder), name="simclr")(columns[:1], labels)


def test_label_lists_paths_and_names_become_tensors():
    preprocess = static().preprocess
    rows = [{"text": "ball", "label": ["b"]}, {"text": "run", "label": ["a", "b"]}]
    collated_batch = LabelCollator(preprocess, classes=["a", "b"])(rows)
    assert collated_batch["label"].tolist() == [[False, True], [True, True]]
    assert collated_batch["text_input_ids"].tolist() == [4, 5]
    rows = [{"text": "ball", "labels": ["x", None]}, {"text": "run", "labels": ["x", "z"]}]
    collated_batch = LabelCollator(preprocess, levels=[["x"], ["y", "z"]])(rows)
    assert collated_batch["label"].tolist() == [[0, -1], [0, 1]]
    assert "label" not in LabelCollator(preprocess)([{"text": "ball"}])
    assert LabelCollator(preprocess)([]) == {}
    with pytest.raises(ValueError, match=r"unknown label in row 1; found: 'sprot'; .* did you mean sport\?"):
        LabelCollator(preprocess, classes=["sport"])(
            [{"text": "ball", "label": ["sport"]}, {"text": "run", "label": ["sprot"]}]
        )


def test_the_sampler_reads_each_kind_of_label_column():
    def rows(column, **options):
        data = DATA.remove_columns("label").add_column("label", column)
        return list(LabelBatches(data, 8, False, ["label"], seed=3, order="pk", k=2, **options))

    def expected(labels):
        return list(LabelBatchSampler(labels, 8, order="pk", k=2, seed=3))

    assert rows(LISTS) == expected(LISTS)
    multi_hot = [[int(name in row) for name in "abc"] for row in LISTS]
    assert rows(multi_hot, labels="multi_hot") == expected(torch.tensor(multi_hot))
    paths = [["x", "xy"[n % 2]] for n in range(48)]
    assert rows(paths, labels="paths") == expected([tuple(path) for path in paths])
    assert rows(["xyz"[n % 3] for n in range(48)]) == expected(["xyz"[n % 3] for n in range(48)])
    with pytest.raises(ValueError, match="a multi-hot row; allowed: a list of labels"):
        rows(multi_hot)


def test_a_batch_sampler_refuses_typos_and_data_without_labels():
    with pytest.raises(ValueError, match="found: 'pj'; allowed: random, balanced, pk"):
        label_batches("pj")
    with pytest.raises(ValueError, match="found: 'list'; allowed: lists, paths, multi_hot"):
        label_batches(labels="list")
    with pytest.raises(ValueError, match=r"label column; found: \['text'\]; allowed: label, score"):
        LabelBatches(DATA.remove_columns("label"), 8, False, ["label", "score"])


@pytest.mark.parametrize("mini_batch_size", [None, 4])
def test_the_trainer_trains_on_label_lists_and_goes_down(folder, mini_batch_size, tmp_path):
    model = bert(folder).float()
    args = arguments(
        tmp_path, per_device_train_batch_size=16, num_train_epochs=4, learning_rate=1e-2, logging_steps=1,
        batch_sampler=label_batches("balanced"), gradient_accumulation_steps=1,
    )  # fmt: skip
    loss = LabelLoss(model, build_loss("mulsupcon", normalize=True), mini_batch_size)
    collator = LabelCollator(model.preprocess, classes=["a", "b", "c"])
    trainer = SentenceTransformerTrainer(
        model, args, train_dataset=DATA, eval_dataset=DATA, loss=loss, data_collator=collator
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before
    trainer.create_model_card()
    assert "mulsupcon, reduction=mean" in (tmp_path / "README.md").read_text()


def test_the_documented_code_trains(folder, tmp_path):
    lists = [["music"], ["sport", "music"], []] * 16
    names = {
        "model": bert(folder).float(), "build_loss": build_loss,
        "SentenceTransformerTrainer": SentenceTransformerTrainer,
        "SentenceTransformerTrainingArguments": lambda _, **options: arguments(tmp_path, **options),
        "data": DATA.remove_columns("label").add_column("label", lists),
    }  # fmt: skip
    before = [parameter.clone() for parameter in names["model"].parameters()]
    exec(documented("sentence_transformers"), names)
    assert not all(map(torch.equal, before, names["model"].parameters()))


@pytest.mark.parametrize("module", [loss_module, batches_module])
def test_the_examples_of_the_docstrings_run(module):
    names = {"model": static(), "SentenceTransformerTrainingArguments": arguments}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = doctest.testmod(module, extraglobs=names)
    assert result.attempted > 1
    assert result.failed == 0
