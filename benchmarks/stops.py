"""Measures what `search.stop: evidence` saves and loses, by simulated searches with mlcl's sampler.

    python benchmarks/stops.py [--experiments 20] [--trials 48]

A corner is a combination of the number of keys (2, 5, 8), the standard deviation of random settings (.5, 2, 6
points) and that of a training's noise (.1, .4, 1.2 points). Half of the noise's variance comes from the
validation rows, which stay the same during a search, and half from the seed. The quality of a setting falls
with its squared distance from an optimum. TPE draws the trials; the best four race on two fresh seeds. The
peer runs to the end. The figures of a rule are the share of the trials that it leaves out, and the quality
that the race's pick loses, in margins of .5 points: the mean, the worst corner, and the share of searches
that lose more than a margin. The other rules stop when there was no better score for a given number of
trials.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import optuna
from numpy.typing import NDArray

from mlcl.config import SearchConfig
from mlcl.service.search.pruner import least_trials, stop_reason
from mlcl.service.search.study import SeededSampler

Array = NDArray[np.float64]
KEYS, SPREADS, NOISES = (2, 5, 8), (0.005, 0.02, 0.06), (0.001, 0.004, 0.012)
MARGIN, RACE, RACE_SEEDS, RACES = 0.005, 4, 2, 20
SHARES = 0.5, 1.0, 2.0
PATIENCE = 8, 16, 24
SETTINGS = 2000
"""The number of random settings by which a response surface is scaled."""
Rule = Callable[[Sequence[float], int], bool]
"""A function that tells whether a search stops, given its scores so far and the number of trials left."""


class Searched(NamedTuple):
    """The trials of a search in order: true quality, quality with the noise of validation rows, and score."""

    quality: Array
    validation: Array
    score: Array
    noise: float


def searched(seed: int, keys: int, spread: float, noise: float, trials: int) -> Searched:
    """Runs one search with mlcl's default sampler."""
    random = np.random.default_rng(seed)
    optimum, weight = random.uniform(0.1, 0.9, keys), random.dirichlet(np.ones(keys))
    scale = spread / ((random.random((SETTINGS, keys)) - optimum) ** 2 @ weight).std()
    study = optuna.create_study(direction="maximize", sampler=SeededSampler(SearchConfig(seed=seed)))
    rows = []
    for _ in range(trials):
        trial = study.ask()
        point = np.array([trial.suggest_float(f"x{key}", 0, 1) for key in range(keys)])
        quality = -scale * float((point - optimum) ** 2 @ weight)
        validation, score = quality + random.normal(0, noise, 2).cumsum() / np.sqrt(2)
        rows.append((quality, validation, score))
        study.tell(trial, score)
    return Searched(*np.array(rows).T, noise)


def picked(search: Searched, count: int, seed: int) -> float:
    """Returns the mean quality of the race's picks after `count` trials."""
    best = np.argsort(-search.score[:count])[:RACE]
    noise = search.noise / np.sqrt(2 * RACE_SEEDS)
    race_scores = search.validation[best] + np.random.default_rng(seed).normal(0, noise, (RACES, len(best)))
    return float(search.quality[best][race_scores.argmax(1)].mean())


def rules() -> Iterator[tuple[str, Rule]]:
    """Yields the rules by name; each waits for as many trials as mlcl's own rule."""
    startup = SearchConfig().startup

    def evidence(share: float) -> Rule:
        def stops(scores: Sequence[float], n_left: int) -> bool:
            options = {"startup": startup, "margin": share * MARGIN, "mode": "max"}
            return bool(stop_reason(scores, len(scores), n_left, **options))

        return stops

    def patience(count: int) -> Rule:
        return lambda scores, _: (
            len(scores) >= least_trials(startup) and len(scores) - 1 - int(np.argmax(scores)) >= count
        )

    for share in SHARES:
        yield f"evidence, {share:g} margins" + (" (the product's)" if share == 1 else ""), evidence(share)
    for count in PATIENCE:
        yield f"no better score in {count} trials", patience(count)


def length(rule: Rule, search: Searched) -> int:
    """Returns the number of trials after which a rule stops a search."""
    scores = search.score.tolist()
    return next((n for n in range(1, len(scores)) if rule(scores[:n], len(scores) - n)), len(scores))


def main() -> None:
    parser = argparse.ArgumentParser(description="What an early end of a search saves and loses.")
    parser.add_argument("--experiments", type=int, default=20, help="searches of each corner")
    parser.add_argument("--trials", type=int, default=48, help="trials of a search")
    args = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    corners = [
        [searched(seed, *corner, args.trials) for seed in range(args.experiments)]
        for corner in itertools.product(KEYS, SPREADS, NOISES)
    ]
    print(f"{len(corners)} corners of {args.experiments} searches, {args.trials} trials each")
    print("rule | trials left out | loss | worst corner | lose more than a margin")
    full_quality = [
        [picked(search, args.trials, k) for k, search in enumerate(searches)] for searches in corners
    ]
    for name, rule in rules():
        counts = np.array([[length(rule, search) for search in searches] for searches in corners])
        stop_quality = [
            [picked(search, n, k) for k, (search, n) in enumerate(zip(searches, row.tolist(), strict=True))]
            for searches, row in zip(corners, counts, strict=True)
        ]
        loss = (np.array(full_quality) - np.array(stop_quality)) / MARGIN
        figures = (1 - counts.mean() / args.trials, loss.mean(), loss.mean(1).max(), (loss > 1).mean())
        print(" | ".join((name, *(f"{figure:.3f}" for figure in figures))))


if __name__ == "__main__":
    main()
