"""Exports the model of a run: writes a folder with everything that predicting needs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from mlcl._version import __version__
from mlcl.config import JobConfig, job_hash
from mlcl.config.space.search import default_mode
from mlcl.data import class_parents
from mlcl.data.images import MEAN, STD
from mlcl.errors import UserError
from mlcl.evaluation import Decision
from mlcl.files import new_folder
from mlcl.models import ENCODERS
from mlcl.models.encoder import SIZES, STRETCH
from mlcl.training.baseline_fits import logged_ensemble, member_data
from mlcl.training.builders import build_model
from mlcl.training.checkpoint import seeded, unshare_tensors
from mlcl.training.embeddings import Datastore, setting_of
from mlcl.training.export.baseline import BaselineContents
from mlcl.training.export.card import model_card
from mlcl.training.export.model_index import (
    DATASTORE,
    MEMBER,
    NETWORK,
    EnsembleSetting,
    GroupFacts,
    Index,
    KnnSetting,
    Level,
    PredictorName,
    checksums,
    write_index,
)
from mlcl.training.export.network import Network, load_trained_network, write_datastore
from mlcl.training.export.onnx_graph import check_onnx, write_onnx
from mlcl.training.export.sentence_transformer import check_sentence_transformers, write_sentence_transformers
from mlcl.training.features.inputs import save_inputs, sections
from mlcl.training.job_data import JobData
from mlcl.training.neighbour_grid import AXES
from mlcl.training.objective import ContrastiveModel
from mlcl.training.run_files import DATASET, DECISIONS, JOB, MODEL, RESULT, TOKENIZER
from mlcl.training.stored_run import StoredRun

README = "README.md"


def write_export(
    folder: Path,
    run: Path,
    job_data: JobData,
    provenance: Mapping[str, str],
    evidence: str = "",
    formats: Sequence[str] = (),
) -> Index:
    """Writes an exported model, completely or not at all, and returns its index.

    Args:
        folder: The folder to create.
        run: The folder of a run, or a folder with its artifacts.
        job_data: The run's job with its data.
        provenance: Further entries for the provenance in the index and the README, such as the run's name.
        evidence: What the run's sweep or table found on fresh seeds, as Markdown for the README.
        formats: Further formats to write, see `check_formats`.

    Raises:
        UserError: `folder` exists or cannot be written, the run left no model, it was trained on other data
            than that of `job_data`, or its encoder cannot be written exactly in a format.
    """
    if folder.exists():
        raise UserError("already exists", file=folder, key="--to")
    check_formats(formats, job_data.job)
    result = _read_json(run / RESULT)
    run_fingerprint, fingerprint = _read_json(run / MODEL / DATASET)["fingerprint"], job_data.fingerprint
    if run_fingerprint != fingerprint:
        problem, place = "not the data that the run was trained on", job_data.dataset.place
        raise UserError(problem, file=place, key="fingerprint", found=fingerprint, allowed=run_fingerprint)
    contents: NetworkContents | BaselineContents
    if job_data.job.baseline is not None:
        contents = BaselineContents.of(job_data)
    else:
        contents = NetworkContents.of(run, job_data, formats, result)
    decisions = {
        name: Decision.from_json(document) for name, document in _read_json(run / MODEL / DECISIONS).items()
    }
    try:
        with new_folder(folder) as work:
            shutil.copyfile(run / MODEL / JOB, work / JOB)
            sections = contents.write(work)
            for weights in work.rglob("*.safetensors"):
                shutil.copymode(work / JOB, weights)  # safetensors creates files with mode 0600
            index = _build_index(work, job_data, contents.predictors, decisions, result, provenance)
            card = model_card(index, folder.name, [evidence, *sections])
            (work / README).write_text(card, encoding="utf-8")
            write_index(work, index)
    except (OSError, SafetensorError) as error:  # SafetensorError: also for a full disk
        problem = "already exists" if folder.exists() else "cannot be written"
        raise UserError(problem, file=folder, key="--to", found=error) from None
    return index


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError("the run left no such file, or it is damaged", file=file, found=error) from None


@dataclass(frozen=True)
class NetworkContents:
    """A trained network with its predictors, neighbours and formats, which are written into an export."""

    run: Path
    job_data: JobData
    model: ContrastiveModel
    network: Network
    store: Datastore
    formats: Sequence[str]
    predictors: dict[PredictorName, KnnSetting | None]
    member: BaselineContents | None

    @classmethod
    def of(
        cls, run: Path, job_data: JobData, formats: Sequence[str], result: Mapping[str, float]
    ) -> NetworkContents:
        """Reads network and embeddings of a run. Raises UserError if they are missing or of another job."""
        with seeded(job_data.job.train.seed):  # the run left no frozen weights, which may be random
            model = build_model(job_data)
        network = load_trained_network(run / MODEL, model, job_data.space)
        store = StoredRun.read(run, job_data, test=False).datastore()
        predictors = _predictor_settings(job_data.job, network, result)
        member = BaselineContents.of(member_data(job_data)) if "ensemble" in predictors else None
        return cls(run, job_data, model, network, store, formats, predictors, member)

    def write(self, work: Path) -> list[str]:
        """Writes all files but job, index and README into `work`; returns sections of the README."""
        save_file(unshare_tensors(self.network.state_dict()), work / NETWORK)
        write_datastore(work / DATASTORE, self.store, self.job_data.train.ids)
        tokenizer = self.run / MODEL / TOKENIZER
        if tokenizer.exists():
            shutil.copyfile(tokenizer, work / TOKENIZER)
        features = self.job_data.features
        if features is not None:
            save_inputs(features.sections, features.cache, work)
        if self.member is not None:
            (work / MEMBER).mkdir()
            self.member.write(work / MEMBER, sections(self.job_data.job.encoder))
        export = ENCODERS[self.job_data.job.encoder.name].export
        if export is not None:
            export(self.network.encoder, work)
        return write_formats(self.formats, self.model, self.network.eval(), self.job_data, work)


def _predictor_settings(
    job: JobConfig, network: Network, result: Mapping[str, float]
) -> dict[PredictorName, KnnSetting | None]:
    """Returns the setting of the neighbours for each predictor; None for a predictor without neighbours."""
    layers: tuple[PredictorName, ...] = ("classifier", "probe")
    predictors: dict[PredictorName, KnnSetting | None] = {}
    predictors |= dict.fromkeys(layer for layer in layers if layer in network.layers)
    if logged_ensemble(result) is not None:
        predictors["ensemble"] = None
    if job.evaluation.knn is not None:
        setting = setting_of(job.evaluation.knn)
        predictors["knn"] = KnnSetting(k=setting.k, lambda_=setting.lambda_, temperature=setting.temperature)
    if "knn_best/k" in result:
        best = {name: result[f"knn_best/{name}"] for name in AXES}
        predictors["knn_best"] = KnnSetting.model_validate(best)
    return predictors


def _build_index(
    work: Path,
    job_data: JobData,
    predictors: dict[PredictorName, KnnSetting | None],
    decisions: Mapping[str, Decision],
    result: Mapping[str, float],
    provenance: Mapping[str, str],
) -> Index:
    job, info = job_data.job, job_data.dataset.info
    labels, metric = job.objective.classifier.labels, job.evaluation.metric.rpartition("/")[2]
    run_provenance = {"job_hash": job_hash(job), "data": info.name, "data_fingerprint": info.fingerprint}
    ensemble = logged_ensemble(result)
    run_provenance |= {"data_source": info.source, "data_licence": info.licence}
    index = Index(
        modality=info.modality,
        task=job_data.task,
        labels=labels,
        space=info.space(labels),
        levels={
            name: Level(classes=info.space(name).classes, parents=tuple(parent_C.tolist()))
            for name, parent_C in class_parents(job_data.dataset, labels).items()
        },
        baseline=job.baseline,
        predictors=predictors,
        ensemble=None if ensemble is None else EnsembleSetting(**asdict(ensemble)),
        best=next(iter(predictors)),
        metric=metric,
        decisions={predictor: decisions[predictor] for predictor in predictors},
        facts=_group_facts(job_data),
        preprocessing=_describe_preprocessing(job_data),
        metrics=dict(result),
        provenance={
            **provenance,
            **run_provenance,
            "exported_with": f"mlcl {__version__}, torch {torch.__version__}",
        },
        files=checksums(work),
    )
    return index.model_copy(update={"best": _best_predictor(index)})


def _group_facts(job_data: JobData) -> GroupFacts | None:
    """Returns what the job's groups of metrics read; None if the job has no groups."""
    if not job_data.job.evaluation.metrics:
        return None
    facts = {"band": job_data.facts.band, "path": job_data.facts.path}
    return GroupFacts.model_validate(
        {name: None if values is None else values.tolist() for name, values in facts.items()}
    )


def _best_predictor(index: Index) -> PredictorName:
    """Returns the predictor with the best validation metric, the first of equal ones."""
    sign = 1 if default_mode(index.metric) == "max" else -1
    scores = {
        predictor: sign * index.metrics.get(f"{index.prefix(predictor)}val/{index.metric}", float("nan"))
        for predictor in index.predictors
    }
    known_scores = {predictor: score for predictor, score in scores.items() if score == score}
    return max(known_scores, key=lambda predictor: known_scores[predictor]) if known_scores else index.best


def _describe_preprocessing(job_data: JobData) -> dict[str, int | list[float]]:
    """Describes the preprocessing for readers of the index; predicting uses job and tokenizer instead."""
    encoder, section = ENCODERS[job_data.job.encoder.name], job_data.job.encoder
    if encoder.modality is None or job_data.job.baseline is not None:
        return {} if job_data.dataset.info.dim is None else {"dim": job_data.dataset.info.dim}
    if encoder.collate is not None:
        return {}
    colours = {"mean": list(MEAN), "std": list(STD)} if encoder.modality == "image" else {}
    stretch = {STRETCH: 1} if encoder.stretches(section) else {}
    return {SIZES[encoder.modality]: encoder.size(section), **stretch, **colours}


ONNX, SENTENCES = "onnx", "sentence-transformers"
ALLOWED = (ONNX, SENTENCES, f"{SENTENCES}:HEAD")


def check_formats(formats: Sequence[str], job: JobConfig) -> None:
    """Raises UserError for an unknown or repeated format, or one in which the job's model would not be exact.

    No format fits a baseline. The formats are `onnx`, `sentence-transformers`, and
    `sentence-transformers:HEAD` with the projection of a head.
    """
    if formats and job.baseline is not None:
        raise UserError("a baseline has no network to write", key="--also", found=list(formats))
    for format_name in formats:
        name, _, head = format_name.partition(":")
        if format_name == ONNX:
            check_onnx(job)
        elif name == SENTENCES and not format_name.endswith(":"):
            check_sentence_transformers(job, head)
        else:
            raise UserError("no such format", key="--also", found=format_name, allowed=ALLOWED)
    names = [format_name.partition(":")[0] for format_name in formats]
    if len(set(names)) < len(names):
        raise UserError("names a format twice", key="--also", found=list(formats))


def write_formats(
    formats: Sequence[str], model: ContrastiveModel, network: Network, job_data: JobData, folder: Path
) -> list[str]:
    """Writes checked formats into the folder of an exported model, and returns sections of its README.

    `network` has the encoder of the trained `model`, with the layers of its predictors. Raises UserError if
    the encoder has no exact ONNX graph.
    """
    return [
        write_onnx(network, job_data, folder)
        if format_name == ONNX
        else write_sentence_transformers(model, job_data, folder, format_name.partition(":")[2])
        for format_name in formats
    ]
