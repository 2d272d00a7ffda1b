"""Tests of mlcl.integrations.transformers with the Hugging Face Trainer: processes, accumulation, labels."""

import doctest

import pytest
import torch
from integrations.ranks import SPLITS, close, documented, gradients_of
from tiny_models import tiny_model, word_tokenizer

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate")

from integrations.trainer_ranks import LABELS, arguments, batch, bert, model_of, step, work
from torch import nn
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

import mlcl.integrations.transformers as adapter
from mlcl.integrations.transformers import Embedder, LabelCollator, TrainerLoss
from mlcl.losses import LearnedTemperature, build_loss
from mlcl.testing.ranks import run_ranks

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"),
]


def job(splits, inside=False, averaged=True, gather=True, name="mulsupcon", reduction="mean"):
    task = {"splits": splits, "inside": inside, "averaged": averaged}
    return {**task, "gather": gather, "name": name, "reduction": reduction}


SHORT = [(3, 5), (2, 3), (6, 0)]
"""The splits of batches of 8, 5 and 6 rows, whose gradients are accumulated."""
JOBS = [
    *(job([split], inside) for split in SPLITS for inside in (False, True)),
    *(job(SHORT, averaged=averaged) for averaged in (True, False)),
    job(SHORT, name="himulcon"),
    job([(3, 5)], reduction="mean_valid"),
    job(SPLITS, inside=True),
    job([(3, 5)], gather=False),
    job([(2, 6), (5, 3)], gather=False),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("bert"), "bert")


@pytest.fixture(scope="module")
def ranks(folder):
    return run_ranks(work, (JOBS, folder), 2)


def one_pass(task, folder):
    """Returns the gradients and the loss of one process in plain PyTorch, weighted as the job asks."""
    model, loss = model_of(task, folder)
    parts = [[slice(0, sum(split))] for split in task["splits"]]
    if not task["gather"]:
        parts = [[slice(0, first), slice(first, first + second)] for first, second in task["splits"]]
    total, value = sum(map(sum, task["splits"])), 0.0
    for rows in (rows for part in parts for rows in part):
        inputs = batch(task["name"], rows)
        weight = 1 / len(parts) if task["inside"] else len(inputs["labels"]) / total
        value = value + weight * loss(
            Embedder.forward(model, **{**inputs, "labels": None})["embeddings"], inputs["labels"]
        )
    value.backward()
    return gradients_of(model), float(value)


def test_gradients_of_two_processes_are_those_of_one(folder, ranks):
    for number, task in enumerate(JOBS):
        expected, value = one_pass(task, folder)
        assert expected["encoder.embeddings.word_embeddings.weight"].abs().sum() > 0
        for answers in ranks:
            gradients, logged_loss = answers[number]
            close(gradients, expected)
            assert logged_loss == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("inside", [False, True])
def test_one_process_accumulates_as_several_do(folder, inside):
    task = job([(8,), (5,)], inside=inside)
    batches = [batch("mulsupcon", slice(0, rows)) for rows in (8, 5)]
    expected, value = one_pass(task, folder)
    gradients, logged_loss = step(task, batches, folder)
    close(gradients, expected)
    assert logged_loss == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("inside", [False, True])
def test_the_trainer_trains_on_label_lists_and_evaluates_the_loss(folder, inside, tmp_path):
    lists = [["a"], ["a", "b"], ["b"], [], ["c", "a"], ["c"]] * 4
    rows = [
        {"input_ids": [2, 4 + n % 9, 3], "attention_mask": [1] * 3, "labels": labels}
        for n, labels in enumerate(lists)
    ]
    args = arguments(
        tmp_path, num_train_epochs=8, per_device_train_batch_size=12, learning_rate=3e-3, logging_steps=1,
        per_device_eval_batch_size=24, seed=1,
    )  # fmt: skip
    loss = build_loss("mulsupcon", temperature=LearnedTemperature(0.2) if inside else 0.2, normalize=True)
    trainer = Trainer(
        Embedder(bert(folder).float(), loss if inside else None), args, train_dataset=rows, eval_dataset=rows,
        data_collator=LabelCollator(word_tokenizer("bert"), classes=["a", "b", "c"]),
        compute_loss_func=None if inside else TrainerLoss(loss, args),
    )  # fmt: skip
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before
    trainer.save_model(tmp_path / "saved")
    assert (tmp_path / "saved" / "model.safetensors").exists()
    if inside:
        assert loss.temperature.number() != pytest.approx(0.2)


def test_the_encoder_gets_the_segments_of_pairs_and_may_checkpoint_gradients(folder, tmp_path):
    rows = [
        {
            "input_ids": [2, 5, 6, 3],
            "attention_mask": [1] * 4,
            "token_type_ids": [0, 0, 1, 1],
            "labels": ["a"],
        }
    ] * 4
    encoder, argument_names = bert(folder).float(), []
    encoder.register_forward_pre_hook(
        lambda _, _args, kwargs: argument_names.append(set(kwargs)), with_kwargs=True
    )
    args = arguments(tmp_path, num_train_epochs=1, per_device_train_batch_size=4, gradient_checkpointing=True)
    collator = LabelCollator(word_tokenizer("bert"), classes=["a", "b"])
    loss = TrainerLoss(build_loss("mulsupcon", normalize=True), args)
    Trainer(
        Embedder(encoder), args, train_dataset=rows, data_collator=collator, compute_loss_func=loss
    ).train()
    assert argument_names[0] >= {"input_ids", "attention_mask", "token_type_ids"}
    assert encoder.is_gradient_checkpointing


def test_a_pooler_output_is_taken_without_a_wrapper(folder, tmp_path):
    loss = TrainerLoss(build_loss("mulsupcon"), arguments(tmp_path), embeddings="pooler_output")
    inputs = batch("mulsupcon")
    value = loss(
        bert(folder)(inputs["input_ids"], inputs["attention_mask"]), inputs["labels"], torch.tensor(48)
    )
    torch.testing.assert_close(
        value, loss(bert(folder)(inputs["input_ids"], inputs["attention_mask"]), inputs["labels"]) / 2
    )


def test_padding_does_not_change_the_embeddings(folder):
    inputs = batch("mulsupcon", slice(0, 1))
    short_inputs = {name: inputs[name][:, :3] for name in ("input_ids", "attention_mask")}
    model = Embedder(bert(folder))
    torch.testing.assert_close(model(**short_inputs), model(**{name: inputs[name] for name in short_inputs}))
    unmasked_embeddings = model(input_ids=short_inputs["input_ids"])
    torch.testing.assert_close(model(**short_inputs), unmasked_embeddings)


def test_the_collator_pads_tokens_and_numbers_labels():
    rows = [{"input_ids": [4], "labels": ["b"]}, {"input_ids": [4, 5], "labels": ["a", "b"]}]
    for pad in (word_tokenizer("bert"), DataCollatorWithPadding(word_tokenizer("bert"))):
        collated_batch = LabelCollator(pad, classes=["a", "b"])(rows)
        assert collated_batch["labels"].tolist() == [[False, True], [True, True]]
        assert collated_batch["input_ids"].tolist() == [[4, 0], [4, 5]]
    paths = [{**rows[0], "labels": ["x", None]}, {**rows[1], "labels": ["x", "y"]}]
    collated_batch = LabelCollator(word_tokenizer("bert"), levels=[["x"], ["y"]])(paths)
    assert collated_batch["labels"].tolist() == [[0, -1], [0, 0]]
    with pytest.raises(ValueError, match="columns of a row; found: input_ids; allowed: labels among them"):
        LabelCollator(word_tokenizer("bert"), classes=["a"])([{"input_ids": [4]}])
    with pytest.raises(ValueError, match=r"of one length; found: \[\['b'\], \['a', 'b'\]\]"):
        LabelCollator(word_tokenizer("bert"))(rows)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.Identity(), "loss; found: Identity; allowed: build_loss"),
        (
            build_loss("supcon", reduction="sum"),
            "found: reduction sum; allowed: .*, reduction mean, mean_valid",
        ),
        (
            build_loss("supcon", temperature=LearnedTemperature(0.1)),
            "found: temperature.log_tau; allowed: none",
        ),
    ],
)
def test_a_loss_refuses_what_the_trainer_cannot_use(loss, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        TrainerLoss(loss, arguments(tmp_path))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (build_loss("supcon", reduction="none"), "found: reduction none; allowed: .*mean, mean_valid, sum"),
        (build_loss("supcon", queue=8), "found: a queue of 8 rows"),
    ],
)
def test_a_model_refuses_a_loss_that_the_trainer_cannot_use(loss, message):
    with pytest.raises(ValueError, match=message):
        Embedder(nn.Identity(), loss)


def test_an_output_without_embeddings_is_named(tmp_path):
    with pytest.raises(ValueError, match="output of the model; found: logits; allowed: embeddings"):
        TrainerLoss(build_loss("mulsupcon"), arguments(tmp_path))(
            {"logits": torch.eye(8)}, LABELS["mulsupcon"]
        )


def test_several_gpus_of_one_process_are_refused(tmp_path):
    args = arguments(tmp_path)
    args._n_gpu = 2
    with pytest.raises(ValueError, match=r"GPUs of one process; found: 2; allowed: 1"):
        TrainerLoss(build_loss("supcon"), args)


def test_the_documented_code_trains(folder, tmp_path):
    rows = [{"input_ids": [2, 4 + n, 3], "labels": [["music"], ["sport", "music"]][n % 2]} for n in range(8)]
    names = {
        "Trainer": Trainer, "build_loss": build_loss, "arguments": arguments(tmp_path), "data": rows,
        "encoder": bert(folder).float(), "tokenizer": word_tokenizer("bert"),
    }  # fmt: skip
    before = [parameter.clone() for parameter in names["encoder"].parameters()]
    exec(documented("transformers"), names)
    assert not all(map(torch.equal, before, names["encoder"].parameters()))


def test_the_examples_of_the_docstrings_run(tmp_path):
    names = {
        "torch": torch,
        "TrainingArguments": lambda _folder: TrainingArguments(str(tmp_path), use_cpu=True),
    }
    result = doctest.testmod(adapter, extraglobs=names)
    assert result.attempted > 3
    assert result.failed == 0
