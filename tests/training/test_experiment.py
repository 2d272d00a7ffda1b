"""Tests of a run: its metrics and files, the data it reads, and stops and resumptions at any step."""

import itertools
import json
import math
import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from builders import text_dataset, tiny_job
from stored_runs import same, weights

from mlcl.data import Dataset
from mlcl.training.checkpoint import CHECKPOINT, PREVIOUS
from mlcl.training.context import Context
from mlcl.training.events import Diverged, Stopped
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData
from mlcl.training.objective import Objective


def run(job, home, folder, events=None, **how):
    listener = (events if events is not None else []).append
    context = Context.current(job.train.device)
    return run_experiment(JobData.of(job, home), folder=folder, context=context, listener=listener, **how)


def stop_at(job, home, folder, step, events=None):
    """Runs a job and stops it after `step` steps."""
    steps = itertools.count(1)
    with pytest.raises(Stopped):
        run(job, home, folder, events, should_stop=lambda: next(steps) == step)


def without_times(metrics):
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


def test_a_run_learns_and_leaves_its_figures_and_files(tiny, tmp_path):
    events = []
    # A killed process left these files.
    for name in (".result.json.12.partial", "model/.job.yaml.12.partial"):
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text("{")
    outcome = run(tiny_job(tiny, epochs=12), tmp_path, tmp_path / "run", events)
    for name in ("val/accuracy", "test/accuracy", "knn/test/accuracy", "knn_best/val/accuracy"):
        assert outcome.metrics[name] > 0.9, name
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == without_times(outcome.metrics)
    table = pq.read_table(tmp_path / "run" / "embeddings.parquet")
    assert table.num_rows == 96
    assert table["split"].to_pylist().count("test") == 24
    assert events[0].kind == "start"
    assert events[-1].kind == "end"
    assert outcome.metrics["test/accuracy_topic"] >= outcome.metrics["test/accuracy"]
    assert not list((tmp_path / "run").rglob("*.partial"))


def test_an_ensemble_is_evaluated_beside_its_classifier_and_can_be_stopped_while_it_is_fitted(tiny, tmp_path):
    job = tiny_job(tiny, "evaluation.ensemble=tfidf_svm")
    plain_metrics = run(tiny_job(tiny), tmp_path, tmp_path / "alone").metrics
    events, calls = [], itertools.count()

    def in_the_fit():
        return events[-1].note == "baseline" and next(calls) == 2

    with pytest.raises(Stopped):
        run(job, tmp_path, tmp_path / "run", events, should_stop=in_the_fit)
    assert next(calls) == 3
    assert not (tmp_path / "run" / "result.json").exists()
    assert not list((tmp_path / "cache" / "baselines").glob("*.npz"))
    metrics = run(job, tmp_path, tmp_path / "run").metrics
    classifier_names = [name for name in without_times(plain_metrics) if not name.startswith("knn")]
    assert {name: metrics[name] for name in classifier_names} == {
        name: plain_metrics[name] for name in classifier_names
    }
    assert metrics["ensemble/val/accuracy"] >= metrics["val/accuracy"]
    assert {"ensemble/weight", "ensemble/scale", "ensemble/shift", "ensemble/test/accuracy"} <= metrics.keys()
    assert 0 <= metrics["ensemble/weight"] <= 1


def test_a_search_trial_fits_no_baseline(tiny, tmp_path):
    """Tests that only a training of a race, which has a grid of neighbours, fits the ensemble's baseline."""
    job = tiny_job(tiny, "evaluation.ensemble=tfidf_svm", "evaluation.knn.grid=null")
    trial_metrics = run(job, tmp_path, tmp_path / "trial", test=False).metrics
    assert not any(name.startswith("ensemble/") for name in trial_metrics)
    assert not (tmp_path / "cache" / "baselines").exists()
    grid = "evaluation.knn.grid={k: [1, 3], lambda: [0, 0.5], temperature: [1.0]}"
    race_job = tiny_job(tiny, "evaluation.ensemble=tfidf_svm", grid)
    race_metrics = run(race_job, tmp_path, tmp_path / "race", test=False).metrics
    assert race_metrics["ensemble/val/accuracy"] >= race_metrics["val/accuracy"]
    assert race_metrics["knn_best/val/accuracy"] >= race_metrics["ensemble/val/accuracy"]
    assert not any("test/" in name for name in race_metrics)


def test_losses_fall_and_every_head_is_watched(tiny, tmp_path):
    temperatures = (
        "objective.heads.detail.temperature={learned: 0.2}",
        "objective.heads.topic.temperature={schedule: linear, start: 0.5, end: 0.1}",
    )
    events = []
    run(tiny_job(tiny, *temperatures, epochs=8), tmp_path, tmp_path / "run", events, test=False)
    windows = [event.metrics for event in events if "train/loss" in event.metrics]
    assert windows[-1]["train/loss"] < 0.7 * windows[0]["train/loss"]
    assert {
        "train/heads/detail/loss",
        "train/heads/topic/positives_per_anchor",
        "train/heads/topic/without_positive",
        "train/heads/topic/effective_negatives",
        "train/heads/topic/alignment",
        "train/heads/topic/uniformity",
        "train/heads/topic/temperature",
        "train/classifier/loss",
        "train/lr",
        "train/data_wait",
        "train/rows_per_second",
    } <= windows[0].keys()
    assert windows[0]["train/heads/detail/temperature"] != windows[-1]["train/heads/detail/temperature"]
    temperature_values = [metrics["train/heads/topic/temperature"] for metrics in windows]
    assert temperature_values == sorted(temperature_values, reverse=True)
    steps = [event.step for event in events if event.metrics]
    assert steps == sorted(steps)


DRAWN_ANEW = ("data.validation_seed=3",)
QUEUES = ("objective.heads.topic.queue=30", "objective.heads.detail.queue=7")


@pytest.mark.parametrize(
    ("step", "sampler", "overrides"),
    [
        (1, "uniform", QUEUES),
        (3, "balanced", ()),
        (5, "uniform", QUEUES),
        (5, "pk", DRAWN_ANEW),
        (11, "hierarchical", DRAWN_ANEW),
    ],
)
def test_a_stopped_and_resumed_run_ends_with_the_same_bits(tiny, tmp_path, step, sampler, overrides):
    job = tiny_job(tiny, *overrides, checkpoint_every=2, sampler=sampler)
    full_events, events = [], []
    full_run = run(job, tmp_path, tmp_path / "whole", full_events)
    stop_at(job, tmp_path, tmp_path / "parts", step, events)
    assert not (tmp_path / "parts" / "result.json").exists()
    validations = {event.epoch: event.metrics for event in events if event.kind == "validation"}
    resumed_run = run(job, tmp_path, tmp_path / "parts", events)
    assert resumed_run.resumed
    assert not full_run.resumed
    start_validations = [event.validations for event in events if event.kind == "start"]
    assert start_validations == [{}, validations]
    assert bool(validations) == (step > 3)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    assert without_times(resumed_run.metrics) == without_times(full_run.metrics)
    assert train_curve(events) == train_curve(full_events)


def test_the_seconds_of_training_are_those_of_all_sessions(tiny, tmp_path):
    job, events = tiny_job(tiny), []
    stop_at(job, tmp_path, tmp_path / "run", 5)
    position = torch.load(tmp_path / "run" / CHECKPOINT, weights_only=True)["position"]
    assert position["seconds"] > 0
    with pytest.raises(Stopped):  # stopped during the evaluation
        run(job, tmp_path, tmp_path / "run", events, should_stop=lambda: events[-1].kind == "phase")
    train_seconds = torch.load(tmp_path / "run" / CHECKPOINT, weights_only=True)["position"]["seconds"]
    resumed_run = run(job, tmp_path, tmp_path / "run")
    assert train_seconds > position["seconds"]
    assert resumed_run.metrics["time/train_seconds"] >= train_seconds


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_deterministic_run_ends_with_the_same_bits_and_leaves_the_process_as_it_was(tiny, tmp_path, device):
    job = tiny_job(tiny, "train.deterministic=true", checkpoint_every=2, device=device)
    initial_flags, steps = flags(), []
    full_run = run(job, tmp_path, tmp_path / "whole")

    def stop():
        assert flags() == (True, True, False)
        steps.append(1)
        return len(steps) == 3

    with pytest.raises(Stopped):
        run(job, tmp_path, tmp_path / "parts", should_stop=stop)
    assert run(job, tmp_path, tmp_path / "parts").metrics.keys() == full_run.metrics.keys()
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    assert "CUBLAS_WORKSPACE_CONFIG" in os.environ
    assert flags() == initial_flags != (True, True, False)


def flags():
    cudnn = torch.backends.cudnn
    return torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_checkpoint_costs_steps_and_no_bits(tiny, tmp_path, damaged):
    job = tiny_job(tiny, checkpoint_every=1)
    full_run = run(job, tmp_path, tmp_path / "whole")
    events = []
    stop_at(job, tmp_path, tmp_path / "parts", 8)
    for name in (CHECKPOINT, PREVIOUS)[:damaged]:
        path = tmp_path / "parts" / name
        path.write_bytes(path.read_bytes()[:-1000])
    resumed_run = run(job, tmp_path, tmp_path / "parts", events)
    (note,) = [event.note for event in events if event.kind == "damage"]
    assert note.count("is damaged") == damaged
    (start,) = [event for event in events if event.kind == "start"]
    assert list(start.validations) == list(range(1, start.epoch + 1))
    assert bool(start.epoch) == resumed_run.resumed
    assert resumed_run.resumed == (damaged == 1)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    assert without_times(resumed_run.metrics) == without_times(full_run.metrics)


def train_curve(events):
    timing = ("train/rows_per_second", "train/data_wait")
    return [
        (event.step, {k: v for k, v in event.metrics.items() if k not in timing})
        for event in events
        if event.kind in ("step", "validation") and event.metrics
    ]


def test_the_seed_decides_the_bits(tiny, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run(tiny_job(tiny, seed=seed, epochs=1), tmp_path, tmp_path / name, test=False)
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_the_test_split_is_read_once_and_only_where_asked(tiny, tmp_path, monkeypatch):
    opened_names, target_names = [], []
    split, targets = Dataset.split, JobData.targets
    monkeypatch.setattr(Dataset, "split", lambda self, name: opened_names.append(name) or split(self, name))
    monkeypatch.setattr(JobData, "targets", lambda self, s: target_names.append(s.name) or targets(self, s))
    transfer = f"evaluation.transfer_to={{path: {text_dataset(tmp_path / 'other')}, labels: detail}}"
    outcome = run(tiny_job(tiny, transfer, epochs=1), tmp_path, tmp_path / "search", test=False)
    assert "test" not in opened_names
    assert not any("test/" in name or name.startswith("transfer/") for name in outcome.metrics)
    target_names.clear()
    run(tiny_job(tiny, epochs=1), tmp_path, tmp_path / "final")
    # Other reads may only fetch targets; the last four are the test measurement, after all of validation.
    assert target_names[-4:] == ["test"] * 4
    assert target_names.count("test") == 4


TWO_PHASE = (
    "objective.heads.detail.weight=1",
    "objective.heads.topic.weight=0",
    "objective.classifier.weight=0",
)


def test_two_phases_train_the_encoder_then_probe(tiny, tmp_path):
    events = []
    job = tiny_job(tiny, *TWO_PHASE, epochs=10)
    outcome = run(job, tmp_path, tmp_path / "run", events)
    assert outcome.metrics["test/accuracy"] > 0.9
    assert not any(name.startswith("objective.classifier") for name in weights(tmp_path / "run"))
    assert "linear probe" in [event.note for event in events]
    validation = next(event for event in events if event.kind == "validation")
    assert "knn/val/accuracy" in validation.metrics
    assert "val/accuracy" not in validation.metrics


DETAIL, TOPIC, CLASSIFIER = "objective.heads.detail", "objective.heads.topic", "objective.classifier"


@pytest.mark.parametrize(
    ("overrides", "metric"),
    [((f"{CLASSIFIER}={{loss: bce, labels: tags}}", "evaluation.metric=val/micro_f1",
       f"{DETAIL}={{loss: simdis, labels: tags, weight: 0.3}}"), "test/micro_f1"),
     ((f"{CLASSIFIER}={{loss: cross_entropy, labels: ratings}}",
       f"{DETAIL}={{loss: jaccard, labels: ratings, weight: 0.3, options: {{threshold: 0.3}}}}",
       f"{TOPIC}={{loss: supcon, labels: ratings.word, weight: 0.1}}"), "test/accuracy_word"),
     ((f"{CLASSIFIER}={{loss: bce, labels: tags, weight: 1}}", "evaluation.metric=knn/val/micro_f1",
       "objective.heads={n: {loss: knn, labels: tags, temperature: 10, projection: {kind: identity}}}"),
      "knn/test/micro_f1"),
     ((f"{DETAIL}={{loss: simclr, weight: 0.1, temperature: {{learned: 0.2}}}}",
       f"{TOPIC}={{loss: mulsupcon, labels: detail, weight: 0.1, "
       "temperature: {schedule: cosine, start: 1, end: 0.1}}"), "test/accuracy"),
     (("train.precision=bf16",), "val/accuracy"),
     (("objective.heads={}", f"{CLASSIFIER}.loss=guided", "train.lr=0.05"), "test/accuracy"),
     (("evaluation.transfer_to={path: =other, labels: detail}",), "transfer/test/accuracy"),
     pytest.param(("train.device=cuda",), "test/accuracy", marks=pytest.mark.gpu),
     pytest.param(("train.device=cuda", "train.precision=bf16"), "test/accuracy", marks=pytest.mark.gpu)],
)  # fmt: skip
def test_every_kind_of_task_and_head_learns(tiny, tmp_path, overrides, metric):
    transfer_folder, events = text_dataset(tmp_path / "other", seed=7), []
    job = tiny_job(
        tiny, *(override.replace("=other", str(transfer_folder)) for override in overrides), epochs=12
    )
    outcome = run(job, tmp_path, tmp_path / "run", events)
    assert outcome.metrics[metric] > 0.7
    losses = [event.metrics["train/loss"] for event in events if "train/loss" in event.metrics]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("stopped", [False, True], ids=["runs on", "is stopped"])
def test_no_checkpoint_is_written_after_a_loss_that_is_not_finite(tiny, tmp_path, monkeypatch, stopped):
    """Tests that the end of a window, or a checkpoint inside of it, reports the step of the loss."""
    outputs, events, forward = [], [], Objective.forward

    def broken(*arguments):
        value = forward(*arguments)
        outputs.append(value)
        return replace(value, total=value.total * math.nan) if len(outputs) == 6 else value

    monkeypatch.setattr(Objective, "forward", broken)
    job = tiny_job(tiny, "train.checkpoint_every=1", "train.batch_size=12", epochs=3)
    with pytest.raises(Diverged, match=r"loss is not finite at step 5 \(epoch 1\), in "):
        run(job, tmp_path, tmp_path / "run", events, should_stop=lambda: stopped and len(outputs) == 7)
    assert len(outputs) == (7 if stopped else 8)
    state = torch.load(tmp_path / "run" / CHECKPOINT)
    assert state["position"]["step"] == 4
    assert all(weight.isfinite().all() for weight in state["model"].values())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_weight_that_breaks_in_the_last_step_is_named(tiny, tmp_path, monkeypatch, value):
    step = torch.optim.AdamW.step

    def breaking(self, *arguments):
        step(self, *arguments)
        with torch.no_grad():
            self.param_groups[0]["params"][0].view(-1)[3] = value

    monkeypatch.setattr(torch.optim.AdamW, "step", breaking)
    job = tiny_job(tiny, "train.batch_size=48", epochs=1)
    with pytest.raises(Diverged, match=r"weights are not finite after step 1: encoder\.\S+$"):
        run(job, tmp_path, tmp_path / "run")


def test_a_stop_during_the_evaluation_costs_the_evaluation_alone(tiny, tmp_path):
    events = []
    job = tiny_job(tiny, epochs=2)

    def stop():
        return any(event.kind == "phase" for event in events)

    with pytest.raises(Stopped):
        run(job, tmp_path, tmp_path / "run", events, should_stop=stop)
    n_steps = sum(event.kind == "step" for event in events)
    outcome = run(job, tmp_path, tmp_path / "run", events)
    assert outcome.resumed
    assert sum(event.kind == "step" for event in events) == n_steps
    assert list(next(e for e in reversed(events) if e.kind == "start").validations) == [1, 2]


def test_a_head_may_be_called_as_it_likes_and_the_rates_of_encoder_and_heads_are_logged(tiny, tmp_path):
    kind, events = "{loss: supcon, labels: topic, weight: 0.1}", []
    rates = {"encoder_lr": 1e-6, "schedule": "constant", "warmup": 0.0}
    job = tiny_job(tiny, f"objective.heads={{type: {kind}, keys: {kind}}}", epochs=1, **rates)
    run(job, tmp_path, tmp_path / "run", events, test=False)
    metrics = next(event.metrics for event in events if "train/lr" in event.metrics)
    assert "train/heads/type/loss" in metrics
    assert (metrics["train/lr"], metrics["train/encoder_lr"]) == (0.01, 1e-6)


@pytest.mark.parametrize(("loss", "size", "said"), [("all", 4, 1), ("any", 16, 0), ("simclr", 4, 0)])
def test_a_loss_that_hardly_sees_labels_is_named_once(tiny, tmp_path, loss, size, said):
    labels = "" if loss == "simclr" else ", labels: tags"
    events, head = [], f"objective.heads={{one: {{loss: {loss}{labels}, weight: 0.5}}}}"
    run(tiny_job(tiny, head, epochs=2, batch_size=size), tmp_path, tmp_path / "run", events, test=False)
    notes = [event.note for event in events if "other views of its own sample" in event.note]
    assert len(notes) == said
    assert all(note.startswith("head one: ") and "all mostly" in note for note in notes)
    assert any(event.metrics.get("train/heads/one/own_view_weight", 0) > 0 for event in events)


def test_noisy_labels_are_trained_on_and_clean_ones_tested(tiny, tmp_path):
    noise = ("data.label_noise.rate=1.0", "data.label_noise.seed=3")
    job_data = JobData.of(tiny_job(tiny, *noise), tmp_path)
    clean = JobData.of(tiny_job(tiny), tmp_path)
    assert not torch.equal(job_data.targets(job_data.train), clean.targets(clean.train))
    assert torch.equal(
        job_data.encode(job_data.train).labels["topic"], job_data.encode(job_data.train).labels["detail"] // 2
    )
    for split in ("validation", "test"):
        assert torch.equal(
            job_data.targets(job_data.dataset.split(split)), clean.targets(clean.dataset.split(split))
        )
    outcome = run(tiny_job(tiny, *noise, epochs=8), tmp_path, tmp_path / "run")
    assert outcome.metrics["test/accuracy"] < 0.7


def test_a_run_leaves_the_callers_random_numbers_and_threads(tiny, tmp_path):
    def drawn():
        return random.random(), np.random.rand(), torch.rand(()).item(), torch.get_num_threads()

    def drawn_with_a_run(seed):
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        if seed:
            run(tiny_job(tiny, epochs=1, seed=seed, threads=3), tmp_path, tmp_path / f"run{seed}")
        return drawn()

    assert drawn_with_a_run(seed=7) == drawn_with_a_run(seed=None)


def test_runs_in_threads_of_one_process_give_the_weights_that_they_give_alone(tiny, tmp_path):
    def trained(name, seed):
        folder = tmp_path / name / str(seed)
        run(tiny_job(tiny, epochs=2, seed=seed), tmp_path / name, folder)
        return weights(folder)

    expected = [trained("alone", seed) for seed in (1, 2)]
    with ThreadPoolExecutor(2) as pool:
        actual = list(pool.map(lambda seed: trained("together", seed), (1, 2)))
    assert all(same(first, second) for first, second in zip(expected, actual, strict=True))
