"""What an evaluation finds, and what its steps hand on.

Shapes: n training rows of this rank, M rows of another split, D embedding, O columns of the encoder's output
(D, or D + L).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from mlcl.data import Split
from mlcl.evaluation import Decision, Neighbours, ProbeResult, Setting
from mlcl.training.neighbours import Datastore, RankRows

Predictor = Callable[[Tensor], Tensor]
"""From outputs of the encoder (M, O) to probabilities."""


@dataclass
class Evaluation:
    """The figures of a run, and by split the embeddings and probabilities that they were computed from.

    `train` are the embeddings (n, D) of this rank's training rows; `embeddings` (M, D) and `probabilities`,
    the classifier's or the probe's, are those of validation and test. `decisions` are by the prefix of the
    metrics that they were used for; `notes` are messages to the user.
    """

    train: RankRows
    metrics: dict[str, float] = field(default_factory=dict)
    embeddings: dict[str, Tensor] = field(default_factory=dict)
    probabilities: dict[str, Tensor] = field(default_factory=dict)
    probe: ProbeResult | None = None
    decisions: dict[str, Decision] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Selection:
    """What is measured, by the prefix of its metrics: once validation has chosen, the test split, too.

    `models` give probabilities from outputs (M, O). Those of the model with the empty prefix are blended with
    the neighbours in `store` under each of the `settings`.
    """

    models: dict[str, Predictor]
    store: Datastore | None = None
    settings: dict[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True)
class Queries:
    """A split to be predicted: the encoder's outputs (M, O), and the neighbours if there is a datastore."""

    split: Split
    output_MO: Tensor
    neighbours: Neighbours | None
