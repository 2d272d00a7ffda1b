"""Copies of a search's study with the values of the job, for `optuna-dashboard`. mlcl never reads them.

A search draws the index of a choice, since a value may have any type, and stick-breaking fractions for
weights. In a copy a choice has its values, as JSON if they are lists or sections, and each weight is a
parameter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    distribution_to_json,
    json_to_distribution,
)
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from mlcl.config.space.domains import Simplex
from mlcl.errors import UserError
from mlcl.files import new_file
from mlcl.service.engine.entries import Entry, SpaceVersion, scope_key
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.study import build_study


def write_studies(ledger: Ledger, file: Path) -> None:
    """Writes copies of the studies of a sweep or table, one per search, to a new Optuna journal file.

    Raises UserError if the ledger has no search, or the file exists.
    """
    if not ledger.searches:
        raise UserError("has no search", key="--study", found=ledger.folder.name)
    if file.exists():
        raise UserError("already exists", key="--study", found=file, allowed="a new file")
    with new_file(file) as work:
        storage = JournalStorage(JournalFileBackend(str(work)))
        for scope in ledger.searches:
            version, name = ledger.versions(scope)[-1], scope_key(scope, ledger.head["id"])
            build_study(
                *_use_job_values(version, ledger.trials(version.number, scope)), name, storage=storage
            )


def _use_job_values(version: SpaceVersion, trials: Sequence[Entry]) -> tuple[SpaceVersion, list[Entry]]:
    """Returns a version and its trials with the values of the job in place of those that Optuna drew."""
    distributions = {name: json_to_distribution(text) for name, text in version.distributions.items()}
    copy_distributions = {
        key: distribution
        for parameter in version.parameters
        for key, distribution in _distributions(parameter, distributions)
    }

    def values(params: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: value for parameter in version.parameters for key, value in _job_values(parameter, params)
        }

    earlier_trials = {key: replace(trial, params=values(trial.params)) for key, trial in version.kept.items()}
    texts = {name: distribution_to_json(distribution) for name, distribution in copy_distributions.items()}
    entries = [replace(trial, params=values(trial.params)) for trial in trials]
    return replace(version, distributions=texts, kept=earlier_trials), entries


def _distributions(
    parameter: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]
) -> Iterator[tuple[str, BaseDistribution]]:
    name = parameter["name"]
    if parameter["kind"] == "choice":
        yield name, CategoricalDistribution([_to_category(value) for value in parameter["values"]])
    elif parameter["kind"] == "simplex":
        for key, _ in _flat_weights(_simplex(parameter).ends(name)[0]):
            yield key, FloatDistribution(0.0, parameter["high"])
    else:
        yield name, distributions[name]


def _job_values(parameter: Mapping[str, Any], params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the values of a parameter at a point; none if the parameter was not drawn."""
    name = parameter["name"]
    if parameter["kind"] == "simplex":
        simplex = _simplex(parameter)
        if simplex.dimensions(name).keys() <= params.keys():
            for key, weight in _flat_weights(simplex.settings_at(name, params)):
                yield key, min(weight, simplex.high)  # rounding may exceed the upper end of the distribution
    elif name in params:
        index = params[name]
        yield name, _to_category(parameter["values"][index]) if parameter["kind"] == "choice" else index


def _simplex(parameter: Mapping[str, Any]) -> Simplex:
    keys, count = tuple(parameter["keys"]), parameter["weights"]
    return Simplex(keys, parameter["low"], parameter["high"], count if count > len(keys) else None)


def _flat_weights(settings: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields the key and weight of each entry of a simplex; weights in a list get the key `key.index`."""
    for key, value in settings.items():
        if isinstance(value, list):
            yield from ((f"{key}.{index}", weight) for index, weight in enumerate(value))
        else:
            yield key, value


def _to_category(value: Any) -> str | float | bool | None:
    return value if isinstance(value, (str, int, float, bool, type(None))) else json.dumps(value)
