"""Makes the first sweep of a data set: the encoders that it compares, and the trials that fit into a budget.

Texts are read by a network on frozen inputs or, where they are short or have one label, and are not too few,
by an encoder that is fine-tuned. The time of their trainings is estimated from rows, tokens, and a timed step
of the encoder.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from mlcl.config import read_yaml
from mlcl.config.packaged import packaged_files
from mlcl.data.description import Description
from mlcl.data.format import DatasetInfo
from mlcl.markup import format_count
from mlcl.models.pretrained import load_pretrained, token_states
from mlcl.service.engine.budget import Budget, check_budget, parse_budget
from mlcl.service.process.limits import usable_cpus
from mlcl.service.search.confirmation import entrant_count
from mlcl.service.starter import first_job
from mlcl.service.starter.first_job import ROOT, SHORT, FirstJob
from mlcl.training.context import pick_device

FEWEST_TUNED, FEWEST_TUNED_OF_SEVERAL, FEWEST_TUNED_LONG = 1_000, 250, 800
"""The least numbers of training rows for fine-tuning on short texts, with one label a row and with several,
and on long texts of one label; fewer were not tried, and long texts of several labels gain nothing."""
LEAST_EPOCHS, MOST_EPOCHS, BATCH = 6, 24, 32
ROWS_READ = 12_000
"""The number of rows that fine-tuning reads in all epochs, as far as the least and most epochs allow."""
TUNED = {"batch_size": BATCH, "lr": 2e-3, "encoder_lr": 1e-4, "precision": "auto"}
"""The section `train` of a job that fine-tunes an encoder, but for its epochs."""
FORWARD = 1 / 3
"""The cost of a forward pass alone, as a share of a training step."""
PER_WORD = 1.4
"""The approximate number of tokens per word."""
TRAINING, PER_ROW = 2.0, 8e-3
"""Seconds of a training on frozen inputs: a constant, and a part for each training row (15 to 60 epochs)."""
CONFIRM, RACE_SEEDS = 2, 2
"""The default numbers of a search's best trials that race, and of the race's seeds."""


@dataclass(frozen=True)
class SweepSize:
    """The size of an arm (searched job) of a sweep: trials and fresh seeds, divided among its searches."""

    trials: int
    seeds: int
    searches: int = 3

    def trainings(self, race_seeds: int, *, neighbours: bool = True) -> int:
        """Returns the largest number of trainings of an arm, those of race and confirmation included.

        A search of one trial, the job as written, has a race only if races choose `neighbours` (k-NN keys).
        """
        trials = math.ceil(self.trials / self.searches)
        entrants = 1 + entrant_count(CONFIRM, trials) if trials > 1 else int(neighbours)
        return self.searches * (trials + entrants * race_seeds + math.ceil(self.seeds / self.searches))

    @property
    def options(self) -> str:
        """The options of `mlcl sweep` that set this size."""
        searches = "" if self.searches == 3 else f" --searches {self.searches}"
        return f"--trials {self.trials} --seeds {self.seeds}{searches}"


SIZES = tuple(
    SweepSize(*size) for size in ((24, 6), (12, 6), (6, 6), (4, 3, 1), (2, 3, 1), (1, 3, 1), (1, 2, 1))
)
"""Sizes of a sweep, the largest first; with one trial only the job as written is trained."""
WITH_HEADS = SIZES[2]
"""The least size of a sweep whose fine-tuned encoder has contrastive heads."""


@dataclass(frozen=True)
class FirstSweep:
    """A job, other jobs by name that are searched beside it, and the size of the sweep.

    Each other job has a space of its own, or None to be searched over that of the first.
    """

    made: FirstJob
    others: Mapping[str, tuple[dict[str, Any], dict[str, Any] | None]] = field(default_factory=dict)
    size: SweepSize = SIZES[0]


@dataclass(frozen=True)
class _Costs:
    """Estimated seconds on one processor: of a training on frozen inputs, a fine-tuning, and the encoding.

    A fine-tuning (`tuning`) has `epochs` epochs. The budget (`text`) allows `seconds` on all `processors`
    together.
    """

    training: float
    tuning: float
    epochs: int
    encoding: float
    text: str
    seconds: float
    processors: int

    def line(self, seconds: float, trainings: str) -> str:
        minutes = format_count(math.ceil((seconds + self.encoding) / self.processors / 60), "minute")
        devices = f"{self.processors} CPUs" if self.processors > 1 else "one device"
        remark = ", which is less" if seconds + self.encoding > self.seconds else ""
        return f"time: about {minutes} on {devices}, {trainings} (--budget {self.text}{remark})"


def first_sweep(first_job: FirstJob, info: DatasetInfo, description: Description, budget: str) -> FirstSweep:
    """Chooses the encoders and the size of the first sweep within a budget such as `20m`."""
    gpu = torch.cuda.is_available()
    limit = parse_budget(budget)
    check_budget(limit, float(gpu))
    encoder = first_job.job["encoder"]
    if encoder["name"] != "features":
        rule = f"time: not estimated for {encoder['name']}, so --budget changes nothing"
        return FirstSweep(replace(first_job, rules=(*first_job.rules, rule)))
    costs = _estimate_costs(first_job, info, description, limit, gpu=gpu)
    tunable = "transformer" in encoder["inputs"] and info.rows["train"] >= _fewest_tuned_rows(first_job.job)
    sweep = _tuned_sweep(first_job, costs) if tunable else None
    return sweep or _frozen_sweep(first_job, costs, tunable=tunable)


def _tuned_sweep(base: FirstJob, costs: _Costs) -> FirstSweep | None:
    """Returns a sweep of a fine-tuned encoder beside the job on frozen inputs; None if it does not fit.

    The encoder has contrastive heads if at least the size `WITH_HEADS` fits with them and their control.
    """
    seconds_left = costs.seconds - costs.encoding
    sizes = [(size, True) for size in SIZES[: SIZES.index(WITH_HEADS) + 1]]
    sizes += [(size, False) for size in SIZES]
    options = (option for option in sizes if _tuned_seconds(*option, costs) <= seconds_left)
    size, heads = next(options, (None, False))
    if size is None:
        return None
    job, space = tuned_job(base.job, costs.epochs, base.space if heads else None)
    number, target = _count_tunings(size), job["objective"]["classifier"]["labels"]
    views = 2 if heads else 1  # also the number of arms: the heads and their control
    names = ", ".join(job["objective"].get("heads", {}))
    encoder, *_, metric = base.rules
    length = job["encoder"]["max_length"]
    rules = (
        f"encoder: MiniLM, fine-tuned, which reads {length} tokens"
        + (", as texts are short" if length <= SHORT else ""),
        f"objective: a classifier of {target} beside contrastive heads ({names})"
        if heads
        else f"objective: a classifier of {target} alone; heads and their control take four times as long",
        f"optimiser: encoder at {TUNED['encoder_lr']}, classifier at {TUNED['lr']}, "
        f"{costs.epochs} epochs at most",
        *(rule for rule in base.rules if rule.startswith("ensemble: ")),
        metric,
        f"beside it features.yaml: {encoder.removeprefix('encoder: ')}",
        costs.line(
            _tuned_seconds(size, heads, costs),
            f"{number * views} fine-tunings of {costs.tuning * views:.0f} seconds, "
            f"{size.trainings(RACE_SEEDS)} trainings on frozen inputs of {costs.training:.0f}",
        ),
    )
    return FirstSweep(FirstJob(job, space, rules), {"features": (base.job, base.space)}, size)


def _frozen_sweep(base: FirstJob, costs: _Costs, *, tunable: bool) -> FirstSweep:
    """Returns a sweep of the job on frozen inputs, beside the job on static words if that fits, too."""
    encoded = "transformer" in base.job["encoder"]["inputs"]
    words = {"words": (_use_static_words(base.job), None)} if encoded and first_job.has_words() else {}

    def count_trainings(size: SweepSize, others: Mapping[str, Any]) -> int:
        return size.trainings(RACE_SEEDS) * (2 + len(others))  # the job and its control

    sweeps = [(size, others) for size in SIZES for others in (words, {})]
    seconds_left = costs.seconds - costs.encoding
    options = (sweep for sweep in sweeps if count_trainings(*sweep) * costs.training <= seconds_left)
    size, others = next(options, sweeps[-1])
    other_rules = (f"beside it {name}.yaml: static vectors of words, without MiniLM" for name in others)
    rules = [*base.rules, *other_rules]
    if tunable:
        least_seconds = _tuned_seconds(SIZES[-1], False, costs) + costs.encoding
        rules.append(f"fine-tuning MiniLM: with --budget {math.ceil(least_seconds / costs.processors / 60)}m")
    number = count_trainings(size, others)
    rules.append(costs.line(number * costs.training, f"{number} trainings of {costs.training:.0f} seconds"))
    return FirstSweep(replace(base, rules=tuple(rules)), others, size)


def _count_tunings(size: SweepSize) -> int:
    """Returns the number of fine-tunings of an arm, whose space has one race seed and no k-NN keys."""
    return size.trainings(1, neighbours=False)


def _tuned_seconds(size: SweepSize, heads: bool, costs: _Costs) -> float:
    """Returns the seconds of a sweep with a fine-tuned encoder; `heads` double its arms and their views."""
    setting_seconds = costs.tuning * (2 * 2 if heads else 1)
    return _count_tunings(size) * setting_seconds + size.trainings(RACE_SEEDS) * costs.training


def _fewest_tuned_rows(job: Mapping[str, Any]) -> float:
    """Returns the least number of training rows with which the frozen transformer of `job` is fine-tuned."""
    if job["encoder"]["transformer"]["max_length"] > SHORT:
        return math.inf if _is_multi_label(job) else FEWEST_TUNED_LONG
    return FEWEST_TUNED_OF_SEVERAL if _is_multi_label(job) else FEWEST_TUNED


def tuned_epochs(rows: int) -> int:
    """Returns the epochs that read `ROWS_READ` rows, within `LEAST_EPOCHS` and `MOST_EPOCHS`."""
    return min(MOST_EPOCHS, max(LEAST_EPOCHS, math.ceil(ROWS_READ / rows)))


def _is_multi_label(job: Mapping[str, Any]) -> bool:
    return "pos_weight" in job["objective"]["classifier"]


def tuned_job(
    job: Mapping[str, Any], epochs: int, heads: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a job that fine-tunes the frozen transformer of `job` for `epochs` epochs, and its space.

    `heads` is a space file, whose keys of heads the space takes; with None the job has no heads. The space
    also tries a half and two thirds of `epochs`. A multi-label job starts with `pos_weight: sqrt`, and its
    space also tries `none`.
    """
    section = job["encoder"]["transformer"]
    encoder = {"name": "transformer", "pooling": "mean"} | {k: section[k] for k in ("model", "max_length")}
    classifier, choices = dict(job["objective"]["classifier"]), dict[str, Any]()
    if _is_multi_label(job):
        classifier["pos_weight"] = ROOT
        choices = {"objective.classifier.pos_weight": {"choice": [ROOT, "none"]}}
    head_section = {} if heads is None else {"heads": job["objective"]["heads"]}
    result = {
        **job,
        "encoder": encoder,
        "objective": {**head_section, "classifier": classifier},
        "train": {"epochs": epochs, **TUNED},
        "evaluation": {k: v for k, v in job["evaluation"].items() if k in ("metric", "ensemble")},
    }
    space = dict(read_yaml(packaged_files("space")["transformer"].path))
    head_space = {} if heads is None else heads["space"]
    head_space = {key: range_ for key, range_ in head_space.items() if key.startswith("objective.heads.")}
    choices["train.epochs"] = {"choice": [epochs // 2, 2 * epochs // 3, epochs]}
    space["space"] = space["space"] | choices | head_space
    return result, space


def _use_static_words(job: Mapping[str, Any]) -> dict[str, Any]:
    inputs = ["words" if name == "transformer" else name for name in job["encoder"]["inputs"]]
    encoder = {k: v for k, v in job["encoder"].items() if k != "transformer"} | {"inputs": inputs}
    evaluation = dict(job["evaluation"])
    if "ensemble" in evaluation:
        evaluation["ensemble"] = "text_svm"
    objective = {"classifier": job["objective"]["classifier"]}
    return {**job, "encoder": encoder, "objective": objective, "evaluation": evaluation}


def _estimate_costs(
    base: FirstJob, info: DatasetInfo, description: Description, budget: Budget, *, gpu: bool
) -> _Costs:
    rows, content, encoder = info.rows, description.content, base.job["encoder"]
    step, epochs = 0.0, tuned_epochs(rows["train"])  # the step of one text
    if "transformer" in encoder["inputs"]:
        length = encoder["transformer"]["max_length"]
        epochs = epochs if length <= SHORT else LEAST_EPOCHS  # as measured on long texts
        max_tokens, median_tokens = (
            min(length, math.ceil(PER_WORD * content[f"words_q{q}"])) for q in ("95", "50")
        )
        timed_tokens = min(median_tokens, SHORT)
        step = _step_seconds(timed_tokens, min(max_tokens, SHORT)) / BATCH * median_tokens / timed_tokens
    n_rows, n_validation = sum(rows.values()), rows["validation"]
    tuning = step * (epochs * rows["train"] + FORWARD * (epochs * n_validation + n_rows))
    processors = 1 if gpu else usable_cpus()
    seconds = budget.amount * (processors if budget.unit == "clock" else 1)
    encoding = FORWARD * step * n_rows
    training = TRAINING + PER_ROW * rows["train"]
    return _Costs(training, tuning, epochs, encoding, budget.text, seconds, processors)


def _step_seconds(tokens: int, max_tokens: int) -> float:
    """Returns the seconds of a step on `BATCH` texts of about `tokens` tokens, `max_tokens` at most."""
    device, threads = pick_device("auto"), torch.get_num_threads()
    network = load_pretrained(first_job.MODEL).to(device).train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.0, fused=True)
    lengths = torch.linspace(max(1, 2 * tokens - max_tokens), max_tokens, BATCH).round()
    mask = (torch.arange(max_tokens) < lengths[:, None]).to(device)
    ids = torch.ones(BATCH, max_tokens, dtype=torch.int64, device=device)
    torch.set_num_threads(1)
    durations = []
    try:
        for _ in range(3):
            start = time.process_time()
            loss = token_states(network, ids, mask).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            float(loss.detach())  # waits for a GPU
            durations.append(time.process_time() - start)
        return min(durations)
    finally:
        torch.set_num_threads(threads)
