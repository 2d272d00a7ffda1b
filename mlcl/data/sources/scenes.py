"""Scenes of handwritten digits whose label sets are disjoint, equal, overlapping or nested as often as asked.

All digits are equally frequent in every mix, so that mixes differ only in which digits occur together. As in
the source `digits`, the images of digits are divided into splits first.

`fit_probabilities` finds the frequencies of label sets, of 1 to MOST of L labels, that give the asked shares.
A rotation adds the same number to all labels of a set, modulo L; the sets that rotations turn into each other
are an orbit. All sets of an orbit are equally probable, so that all labels are equally frequent. Shapes: O
orbits, K relations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from typing_extensions import Self

from mlcl.config.section import Fraction, Section
from mlcl.data.format import SPLITS, LabelSpace
from mlcl.data.source import NewDataset, Source, Workspace
from mlcl.data.sources.digits import assign_splits, draw, load
from mlcl.data.split_assignment import FRACTIONS
from mlcl.errors import UserError

RELATIONS = ("disjoint", "equal", "overlap", "nested")
"""R1, R2, R3, and R4 or R5 of Similarity-Dissimilarity, Eq. 8-12; R4 is R5 of the exchanged pair."""
MOST = 4
STARTS = 8
SIZE, ENTROPY = 0.1, 1e-5
"""The weights, in the loss of `fit_probabilities`, of the squared error of the mean size and of the entropy,
which favours many sets. The squared errors of the shares have the weight 1."""

Array = NDArray[np.float64]
LabelSet = frozenset[int]
MIXES = {
    "equal": (0.72, 0.18, 0.05, 0.05),
    "nested": (0.68, 0.08, 0.05, 0.19),
    "overlap": (0.60, 0.05, 0.30, 0.05),
}
"""The shares of RELATIONS. Each mix is named after the relation of most pairs that share a label."""
FAR = 0.02
"""A mix is impossible if the nearest one has a share that differs by more than this."""
Drawn = list[tuple[int, ...]]


class Shares(Section):
    """The shares of the relations R1 to R5 among pairs of scenes, which add up to 1."""

    disjoint: Fraction = Field(description="R1: no digit in common")
    equal: Fraction = Field(description="R2: the same digits")
    overlap: Fraction = Field(description="R3: digits in common, and each has one of its own")
    nested: Fraction = Field(description="R4 and R5: one has all digits of the other, and more")

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        total = self.disjoint + self.equal + self.overlap + self.nested
        if abs(total - 1) > 1e-6:
            raise ValueError(f"the shares of a mix add up to {total:g}: they must add up to 1")
        return self


class Options(Section):
    """The options of the source `scenes`: how many scenes, which digits, and the mix of relations."""

    mix: Literal["equal", "nested", "overlap"] | Shares = Field(
        "nested", description="shares of disjoint, equal, overlap and nested pairs, or a name"
    )
    digits: int = Field(8, ge=3, le=10, description="digits that occur: 0 and the next ones")
    digits_a_scene: float = Field(
        2.0, ge=1, le=4, description="mean of the digits of a scene, which has 1 to 4"
    )
    missing: float = Field(
        0.0, ge=0, lt=1, description="share of the labels of train and validation that are left out"
    )
    scenes: int = Field(10_000, ge=100, le=1_000_000, description="scenes in all, 80/10/10")
    size: int = Field(32, ge=16, le=256, description="side of a scene in pixels")

    @property
    def shares(self) -> dict[str, float]:
        """The asked share of each relation, by name."""
        values = self.mix.model_dump().values() if isinstance(self.mix, Shares) else MIXES[self.mix]
        return dict(zip(RELATIONS, values, strict=True))


def read(options: Options, split_seed: int, _work: Workspace) -> NewDataset:
    """Returns the data set with the multi-label space `digits`. Raises UserError for an impossible mix."""
    p = fit_probabilities(options.shares, options.digits, options.digits_a_scene)
    _check_mix(p, options)
    rng = np.random.default_rng([split_seed, len(SPLITS)])
    label_sets: dict[str, Drawn] = {
        split: _draw_sets(p, round(options.scenes * share), rng)
        for split, share in zip(SPLITS, FRACTIONS, strict=True)
    }
    mix = _format_shares(shares_of(map(frozenset, label_sets["train"])))
    size = np.mean([len(label_set) for label_set in label_sets["train"]])
    notes = [f"pairs of training scenes: {mix}; {size:.2f} digits a scene"]
    spaces = {"digits": LabelSpace(kind="multi_label", classes=tuple(map(str, range(options.digits))))}
    return NewDataset("image", spaces, _batches(options, split_seed, label_sets), notes)


def _check_mix(p: Mapping[LabelSet, float], options: Options) -> None:
    """Raises UserError if label sets of the probabilities `p` are far from what is asked."""
    shares = dict.fromkeys(RELATIONS, 0.0)
    for one, share in p.items():
        for other, other_share in p.items():
            shares[RELATIONS[relation(one, other)]] += share * other_share
    size = sum(len(label_set) * share for label_set, share in p.items())
    deviation = max(abs(shares[name] - share) for name, share in options.shares.items())
    if deviation > FAR or abs(size - options.digits_a_scene) > 5 * FAR:
        raise UserError(
            f"no scenes of 1 to 4 of {options.digits} equally frequent digits, {options.digits_a_scene:g} on "
            "average, have this mix",
            key="data.options.mix",
            found=_format_shares(options.shares),
            allowed=f"such as {_format_shares(shares)}, with {size:.2f} digits a scene",
        )


def _format_shares(shares: Mapping[str, float]) -> str:
    codes = ("R1", "R2", "R3", "R4 or R5")
    parts = zip(shares.items(), codes, strict=True)
    return ", ".join(f"{name} ({code}) {100 * share:.1f} %" for (name, share), code in parts)


def _draw_sets(p: Mapping[LabelSet, float], rows: int, rng: np.random.Generator) -> Drawn:
    """Draws label sets systematically: each occurs as often as expected, up to one row."""
    sets = [tuple(sorted(label_set)) for label_set in p]
    upper = np.cumsum(list(p.values()))
    indices = np.searchsorted(upper / upper[-1], (np.arange(rows) + rng.random()) / rows, side="right")
    return [sets[i] for i in rng.permutation(indices)]


def _batches(options: Options, seed: int, label_sets: Mapping[str, Drawn]) -> Iterator[dict[str, list[Any]]]:
    pixels, target = load()
    digit_split = assign_splits(len(pixels), seed)
    for number, (split, sets) in enumerate(label_sets.items()):
        rng = np.random.default_rng([seed, number])
        digit_rows: list[NDArray[np.int64]] = [
            np.flatnonzero((digit_split == split) & (target == digit)) for digit in range(options.digits)
        ]
        missing = options.missing if split != "test" else 0.0
        yield {
            "id": [f"{split}-{i}" for i in range(len(sets))],
            "split": [split] * len(sets),
            "image": [
                draw(pixels[[rng.choice(digit_rows[digit]) for digit in label_set]], options.size, rng)
                for label_set in sets
            ],
            "digits": [[digit for digit in label_set if rng.random() >= missing] for label_set in sets],
        }


def relation(first: LabelSet, second: LabelSet) -> int:
    """Returns the index in RELATIONS of a pair of sets. An empty set is disjoint from every set."""
    if not first & second:
        return 0
    if first == second:
        return 1
    return 3 if first < second or second < first else 2


def shares_of(sets: Iterable[LabelSet]) -> dict[str, float]:
    """Returns the share of each relation among the pairs of two different rows with these sets."""
    counts = Counter(sets)
    pairs = dict.fromkeys(RELATIONS, 0)
    for one, count in counts.items():
        for other, other_count in counts.items():
            pairs[RELATIONS[relation(one, other)]] += count * (other_count - (one == other))
    total = sum(pairs.values())
    return {name: count / total for name, count in pairs.items()}


def fit_probabilities(shares: Mapping[str, float], labels: int, size: float) -> dict[LabelSet, float]:
    """Returns the probability of each label set, such that pairs of draws have about the asked relations.

    Args:
        shares: The share of each of RELATIONS among pairs of independent draws.
        labels: The number of labels, L.
        size: The mean number of labels of a set.
    """
    from scipy.optimize import minimize
    from scipy.special import softmax

    orbits = _orbits(labels)
    pairs_KOO = _relation_probabilities(orbits)
    target_K = np.array([shares[name] for name in RELATIONS])
    sizes_O = np.array([len(orbit[0]) for orbit in orbits], dtype=float)

    def loss(logit_O: Array) -> tuple[float, Array]:
        p_O: Array = softmax(logit_O)
        half_KO = pairs_KOO @ p_O
        error_K, excess = half_KO @ p_O - target_K, p_O @ sizes_O - size
        log_O = np.log(p_O + 1e-300)
        value = error_K @ error_K + SIZE * excess**2 + ENTROPY * p_O @ log_O
        slope_O = 4 * error_K @ half_KO + 2 * SIZE * excess * sizes_O + ENTROPY * (log_O + 1)
        return float(value), p_O * (slope_O - p_O @ slope_O)

    best, p_O = np.inf, np.ones(len(orbits))
    for seed in range(STARTS):
        start = np.random.default_rng(seed).normal(size=len(orbits))
        result = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300})
        if result.fun < best:
            best, p_O = result.fun, softmax(result.x)
    # Rounded, since the last digits may differ between machines.
    p_O = p_O.round(4)
    weighted_orbits = zip(orbits, p_O / p_O.sum(), strict=True)
    return {label_set: float(p) / len(orbit) for orbit, p in weighted_orbits if p > 0 for label_set in orbit}


def _orbits(labels: int) -> list[list[LabelSet]]:
    remaining_sets = dict.fromkeys(
        frozenset(combination)
        for size in range(1, min(MOST, labels) + 1)
        for combination in combinations(range(labels), size)
    )
    orbits = []
    while remaining_sets:
        first = next(iter(remaining_sets))
        rotations = (frozenset((label + turn) % labels for label in first) for turn in range(labels))
        orbits.append(list(dict.fromkeys(rotations)))
        for label_set in orbits[-1]:
            del remaining_sets[label_set]
    return orbits


def _relation_probabilities(orbits: list[list[LabelSet]]) -> Array:
    """Returns the probability (K, O, O) of each relation between random sets of one orbit and another."""
    pairs_KOO = np.zeros((len(RELATIONS), len(orbits), len(orbits)))
    for i, one in enumerate(orbits):
        for j, other in enumerate(orbits):
            for label_set in other:
                pairs_KOO[relation(one[0], label_set), i, j] += 1 / len(other)
    return pairs_KOO


SOURCE = Source(
    name="scenes",
    title="scenes of one to four handwritten digits, with a given mix of relations between label sets",
    origin="Optical Recognition of Handwritten Digits (UCI), through scikit-learn",
    licence="CC BY 4.0",
    version="1",
    options=Options,
    read=read,
    packages=("scikit-learn", "scipy", "pillow", "numpy"),
)
