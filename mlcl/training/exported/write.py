"""From what a run left to a folder that holds all that predicting needs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from mlcl import __version__
from mlcl.config import JobConfig, job_hash
from mlcl.config.encoder import CnnImageConfig, PlmIcdConfig, ResNetConfig, TransformerConfig
from mlcl.config.space import default_mode
from mlcl.data.files import new_folder
from mlcl.data.views import MEAN, STD
from mlcl.errors import UserError
from mlcl.training.build import build_model
from mlcl.training.exported.datastore import trained_datastore, write_datastore
from mlcl.training.exported.index import (
    CONFIG,
    DATASTORE,
    NETWORK,
    Index,
    KnnSetting,
    Level,
    Way,
    checksums,
    write_index,
)
from mlcl.training.exported.network import Network, trained_network
from mlcl.training.exported.readme import README, readme
from mlcl.training.files import DATASET, EMBEDDINGS, JOB, MODEL, RESULT, TOKENIZER
from mlcl.training.hierarchy import parents
from mlcl.training.material import Material
from mlcl.training.neighbours import setting_of


def write_export(folder: Path, run: Path, material: Material, provenance: Mapping[str, str]) -> Index:
    """Writes `folder`, whole or not at all, from the folder of a run or one that holds its artifacts.

    `provenance` is told in the index and the README. Raises UserError where `folder` is there already, where
    the run left no model, where `folder` cannot be written, and where the material's data are not those that
    it was trained on.
    """
    if folder.exists():
        raise UserError("is there already", file=folder, key="--to")
    result = _left(run / RESULT)
    _check_data(run / MODEL / DATASET, material)
    network = _network(run / MODEL, material)
    store = trained_datastore(run / EMBEDDINGS, material)
    ways = _ways(material.job, network, result)
    try:
        with new_folder(folder) as work:
            weights = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
            save_file(weights, work / NETWORK)
            write_datastore(work / DATASTORE, store, material.train.ids)
            _copy_preprocessing(run / MODEL, work, network, material.job)
            shutil.copymode(work / JOB, work / NETWORK)  # safetensors keeps it from everybody else
            index = _index(work, material, ways, result, provenance)
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


def _check_data(file: Path, material: Material) -> None:
    expected = _left(file)["fingerprint"]
    if expected != material.fingerprint:
        raise UserError(
            "not the data that the run was trained on",
            file=material.dataset.place,
            key="fingerprint",
            found=material.fingerprint,
            allowed=expected,
        )


def _network(run: Path, material: Material) -> Network:
    info, labels = material.dataset.info, material.job.objective.classifier.labels
    model = build_model(
        material.job, info, material.vocabulary_size, material.label_graph(), material.class_distances()
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


def _copy_preprocessing(run: Path, work: Path, network: Network, job: JobConfig) -> None:
    shutil.copyfile(run / JOB, work / JOB)
    if (run / TOKENIZER).exists():
        shutil.copyfile(run / TOKENIZER, work / TOKENIZER)
    if isinstance(job.encoder, TransformerConfig | PlmIcdConfig):
        config: Any = network.encoder.network.config  # type: ignore[union-attr]
        config.to_json_file(work / CONFIG)


def _index(
    work: Path,
    material: Material,
    ways: dict[Way, KnnSetting | None],
    result: Mapping[str, float],
    provenance: Mapping[str, str],
) -> Index:
    job, info = material.job, material.dataset.info
    labels, metric = job.objective.classifier.labels, job.evaluation.metric.rpartition("/")[2]
    own = {"job_hash": job_hash(job), "data": info.name, "data_fingerprint": info.fingerprint}
    index = Index(
        modality=info.modality,
        task=material.task,
        labels=labels,
        space=info.space(labels),
        levels={
            name: Level(classes=info.space(name).classes, parents=tuple(parent_C.tolist()))
            for name, parent_C in parents(material.dataset, labels).items()
        },
        ways=ways,
        best=next(iter(ways)),
        metric=metric,
        threshold=job.evaluation.threshold,
        preprocessing=_preprocessing(job),
        metrics=dict(result),
        provenance={**provenance, **own, "exported_with": f"mlcl {__version__}, torch {torch.__version__}"},
        files=checksums(work, (file.name for file in work.iterdir())),
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


def _preprocessing(job: JobConfig) -> dict[str, int | list[float]]:
    """For readers of the index; the job and the tokenizer decide."""
    if isinstance(job.encoder, CnnImageConfig | ResNetConfig):
        return {"image_size": job.encoder.image_size, "mean": list(MEAN), "std": list(STD)}
    return {"max_length": job.encoder.max_length}
