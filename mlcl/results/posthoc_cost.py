"""Measures what the neighbours of a finished run cost: the size of the datastore, and time.

Source: kNN-MLTC Tables 7 and 8.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, cast

from mlcl.config.job import KnnConfig
from mlcl.results.compared_setting import ComparedSetting
from mlcl.results.knn_scores import JobDataCache
from mlcl.results.runs import Runs
from mlcl.training.context import pick_device
from mlcl.training.embeddings import setting_of
from mlcl.training.export import load_model, write_export
from mlcl.training.export.model_index import DATASTORE
from mlcl.training.export.prediction_files import Item, batches, split_items
from mlcl.training.input_reader import Content
from mlcl.training.run_files import EMBEDDINGS, MODEL, RESULT

ROWS = 1000
"""The largest number of validation rows whose prediction is timed."""


class NeighbourCost(NamedTuple):
    """The cost of the neighbours of a setting's first seed.

    `rows` and `bytes` are the datastore's, as an export has it on disk. `model_ms` and `knn_ms` are the
    milliseconds a row of a prediction without and with neighbours, over `timed` rows in the job's batches of
    evaluation, with everything from the raw row on; `k` is the number of neighbours, on `device`.
    """

    setting: str
    rows: int
    bytes: int
    timed: int
    k: int
    model_ms: float
    knn_ms: float
    device: str


def measure_costs(runs: Runs, settings: Sequence[ComparedSetting], home: Path) -> list[NeighbourCost]:
    """Measures each setting; fitted baselines, which have no neighbours, are left out.

    Raises UserError where a run left no model or its data set cannot be loaded.
    """
    cache = JobDataCache(home)
    return [_measure(runs, each, cache) for each in settings if not each.is_fitted]


def _measure(runs: Runs, setting: ComparedSetting, cache: JobDataCache) -> NeighbourCost:
    run = next(iter(setting.runs.values()))
    with TemporaryDirectory(prefix="mlcl-") as scratch:
        left, export = Path(scratch), Path(scratch) / "export"
        found = runs.get(run.run_id)
        assert found is not None
        for name in (RESULT, EMBEDDINGS, MODEL):
            runs.artifact(found, name, left)
        job_data = cache(left / MODEL)
        write_export(export, left, job_data, {})
        size, device = (export / DATASTORE).stat().st_size, pick_device(job_data.job.train.device)
        model = load_model(export, device.type)
    items = list(islice(split_items(job_data.dataset.split("validation")), ROWS))
    knn = setting_of(job_data.job.evaluation.knn or KnnConfig())
    first, store = next(iter(model.index.predictors)), model.store
    assert store is not None

    def seconds(part: Sequence[Item]) -> tuple[float, float]:
        started = time.perf_counter()
        output_MO = model.outputs([cast(Content, item.content) for item in part])
        alone = model.probabilities(output_MO, first)
        predicted = time.perf_counter()
        store.blended(store.retrieve(output_MO, knn.k), alone, knn)
        return predicted - started, time.perf_counter() - predicted

    parts = list(batches(items, job_data.job.evaluation.batch_size))
    seconds(parts[0])  # what starts slowly is not counted
    model_ms, knn_ms = (1000 * sum(each) / len(items) for each in zip(*map(seconds, parts), strict=True))
    return NeighbourCost(
        setting.label, len(store.labels), size, len(items), knn.k, model_ms, model_ms + knn_ms, device.type
    )
