"""From what a run left to a folder that holds all that predicting needs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from mlcl import __version__
from mlcl.config import JobConfig, job_hash
from mlcl.config.space import default_mode
from mlcl.data import class_parents
from mlcl.data.images import MEAN, STD
from mlcl.errors import UserError
from mlcl.evaluation import Decision
from mlcl.files import new_folder
from mlcl.models import ENCODERS
from mlcl.models.encoder import SIZES
from mlcl.training.builders import build_model
from mlcl.training.embeddings import setting_of
from mlcl.training.export.model_index import (
    DATASTORE,
    NETWORK,
    Index,
    KnnSetting,
    Level,
    Way,
    checksums,
    write_index,
)
from mlcl.training.export.network import Network, trained_datastore, trained_network, write_datastore
from mlcl.training.export.readme import README, readme
from mlcl.training.job_data import JobData
from mlcl.training.run_files import DATASET, DECISIONS, EMBEDDINGS, JOB, MODEL, RESULT, TOKENIZER


def write_export(folder: Path, run: Path, job_data: JobData, provenance: Mapping[str, str]) -> Index:
    """Writes `folder`, whole or not at all, from the folder of a run or one that holds its artifacts.

    `provenance` is told in the index and the README. Raises UserError where `folder` is there already, where
    the run left no model, where `folder` cannot be written, and where the material's data are not those that
    it was trained on.
    """
    if folder.exists():
        raise UserError("is there already", file=folder, key="--to")
    result = _left(run / RESULT)
    _check_data(run / MODEL / DATASET, job_data)
    network = _network(run / MODEL, job_data)
    store = trained_datastore(run / EMBEDDINGS, job_data)
    ways = _ways(job_data.job, network, result)
    decisions = _decisions(run / MODEL / DECISIONS, job_data.job)
    try:
        with new_folder(folder) as work:
            weights = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
            save_file(weights, work / NETWORK)
            write_datastore(work / DATASTORE, store, job_data.train.ids)
            _copy_preprocessing(run / MODEL, work, network, job_data)
            shutil.copymode(work / JOB, work / NETWORK)  # safetensors keeps it from everybody else
            index = _index(work, job_data, ways, decisions, result, provenance)
            (work / README).write_text(readme(index, folder.name), encoding="utf-8")
            write_index(work, index)
    except (OSError, SafetensorError) as error:  # the second also for a full disk
        problem = "is there already" if folder.exists() else "cannot be written"
        raise UserError(problem, file=folder, key="--to", found=error) from None
    return index


def _left(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError("the run left no such file, or it is damaged", file=file, found=error) from None


def _check_data(file: Path, job_data: JobData) -> None:
    expected = _left(file)["fingerprint"]
    if expected != job_data.fingerprint:
        raise UserError(
            "not the data that the run was trained on",
            file=job_data.dataset.place,
            key="fingerprint",
            found=job_data.fingerprint,
            allowed=expected,
        )


def _network(run: Path, job_data: JobData) -> Network:
    info, labels = job_data.dataset.info, job_data.job.objective.classifier.labels
    model = build_model(
        job_data.job,
        info,
        job_data.vocabulary_size,
        job_data.label_graph(),
        job_data.class_distances(),
        input_columns=job_data.input_columns,
    )
    return trained_network(run, model, info.space(labels))


def _ways(job: JobConfig, network: Network, result: Mapping[str, float]) -> dict[Way, KnnSetting | None]:
    """The classifier first, or in two phases the probe: the others' blends begin with it."""
    ways: dict[Way, KnnSetting | None] = {}
    if "classifier" in network.layers:
        ways["classifier"] = None
    if "probe" in network.layers:
        ways["probe"] = None
    if job.evaluation.knn is not None:
        own = setting_of(job.evaluation.knn)
        ways["knn"] = KnnSetting(k=own.k, lambda_=own.lambda_, temperature=own.temperature)
    if "knn_best/k" in result:
        names = ("k", "lambda", "temperature")
        ways["knn_best"] = KnnSetting.model_validate({name: result[f"knn_best/{name}"] for name in names})
    return ways


def _decisions(file: Path, job: JobConfig) -> dict[str, Decision]:
    """By way; a run of an older mlcl left none, and predicted from its job's threshold on."""
    if file.exists():
        return {way: Decision.from_json(document) for way, document in _left(file).items()}
    given = job.evaluation.threshold
    return dict.fromkeys(get_args(Way), Decision.fixed(given if isinstance(given, float) else 0.5))


def _copy_preprocessing(run: Path, work: Path, network: Network, job_data: JobData) -> None:
    shutil.copyfile(run / JOB, work / JOB)
    if (run / TOKENIZER).exists():
        shutil.copyfile(run / TOKENIZER, work / TOKENIZER)
    if job_data.features is not None:
        job_data.features.save(work)
    export = ENCODERS[job_data.job.encoder.name].export
    if export is not None:
        export(network.encoder, work)


def _index(
    work: Path,
    job_data: JobData,
    ways: dict[Way, KnnSetting | None],
    decisions: Mapping[str, Decision],
    result: Mapping[str, float],
    provenance: Mapping[str, str],
) -> Index:
    job, info = job_data.job, job_data.dataset.info
    labels, metric = job.objective.classifier.labels, job.evaluation.metric.rpartition("/")[2]
    own = {"job_hash": job_hash(job), "data": info.name, "data_fingerprint": info.fingerprint}
    index = Index(
        modality=info.modality,
        task=job_data.task,
        labels=labels,
        space=info.space(labels),
        levels={
            name: Level(classes=info.space(name).classes, parents=tuple(parent_C.tolist()))
            for name, parent_C in class_parents(job_data.dataset, labels).items()
        },
        ways=ways,
        best=next(iter(ways)),
        metric=metric,
        decisions={way: decisions[way] for way in ways if way in decisions},
        preprocessing=_preprocessing(job_data),
        metrics=dict(result),
        provenance={**provenance, **own, "exported_with": f"mlcl {__version__}, torch {torch.__version__}"},
        files=checksums(work),
    )
    return index.model_copy(update={"best": _best(index)})


def _best(index: Index) -> Way:
    """The way with the best validation figure of the job's own metric; of equal ones the first."""
    sign = 1 if default_mode(index.metric) == "max" else -1
    scores = {
        way: sign * index.metrics.get(f"{index.prefix(way)}val/{index.metric}", float("nan"))
        for way in index.ways
    }
    known = {way: score for way, score in scores.items() if score == score}
    return max(known, key=lambda way: known[way]) if known else index.best


def _preprocessing(job_data: JobData) -> dict[str, int | list[float]]:
    """For readers of the index; the job and the tokenizer decide."""
    encoder, section = ENCODERS[job_data.job.encoder.name], job_data.job.encoder
    if encoder.modality is None:
        return {} if job_data.dataset.info.dim is None else {"dim": job_data.dataset.info.dim}
    colours = {"mean": list(MEAN), "std": list(STD)} if encoder.modality == "image" else {}
    return {SIZES[encoder.modality]: encoder.size(section), **colours}
