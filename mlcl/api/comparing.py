"""`mlcl.compare`: tunes contrastive losses on a user's data, and tests which of them help the classifier.

The comparison is a table of tuned cells, written to `HOME/comparisons`; `mlcl reproduce` runs it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcl.api.common import (
    Overrides,
    Say,
    check_name,
    checked_overrides,
    home_of,
    print_line,
    say_of,
)
from mlcl.config.safe_yaml import dump_yaml
from mlcl.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from mlcl.api.answer import Answer
    from mlcl.config.table.schema import Table
    from mlcl.service.starter.first_job import FirstJob, UserData

FOLDER = "comparisons"
SEARCHES = 3
POS_WEIGHT = "objective.classifier.pos_weight"
HOLD = (POS_WEIGHT, "train.epochs")
"""The keys that are not searched for each loss, but take the values that the control's search picked."""
BY_DISTANCE = 20.0
"""The factor by which temperatures and weights are larger for losses of the Euclidean distance.

Embeddings are not scaled to unit length for these losses."""
HEAD = "objective.heads."


def prepare(data: Any, *, home: str | Path | None = None, **columns: Any) -> Path:
    """Prepares a data set, and returns its folder, the `data.path` of a job.

    Args:
        data: A path, a DataFrame, a Dataset of Hugging Face, a mapping of column names to values, or a list
            of texts, images of Pillow or vectors, whose `labels` are values. A column may have images, too.
        home: The folder of results. Default: MLCL_HOME, else `outputs`.
        columns: The roles of the columns: `text` or `image` (a column), `labels` (one or several), `kind`
            (`single`, `multi_label`, `path`), `id`, `split`, `group`, `separator`; others are recognised.
            For a list, `labels` has a value (a label, a set of labels, a row of 0 and 1) for each entry, or
            is a mapping or frame of such columns; `id`, `split` and `group` may have values, too.

    Raises:
        UserError: The data cannot be read, or the role of a column is ambiguous.

    Example:
        >>> folder = mlcl.prepare(frame, text="text", labels="topics")
        >>> mlcl.run("job.yaml", {"data.path": folder})
    """
    return prepare_user_data(data, columns, home_of(home)).folder


def compare(
    data: Any,
    *,
    losses: str | Sequence[str],
    trials: int = 24,
    seeds: int = 6,
    name: str | None = None,
    baselines: bool = True,
    overrides: Overrides = None,
    encoder: Any = None,
    tokenizer: Any = None,
    collate: Any = None,
    home: str | Path | None = None,
    progress: Say = print_line,
    **columns: Any,
) -> Answer:
    """Tests for each contrastive loss whether it improves on the classifier alone, and by how much.

    The control is the classifier without heads; each loss is computed on a head beside it. All are tuned with
    the same budget: `trials` are divided among three searches, and `seeds` among the settings that they pick.
    All losses use the epochs and the weight of positive labels that the control's search picked. A call with
    the same data, trials and seeds continues a comparison that was stopped.

    Args:
        data: A path, a frame, a mapping of columns, or a list of contents, as for `mlcl.prepare`.
        losses: One or several of `mlcl losses`; `asl` replaces the classifier's loss.
        trials: Search trials of each loss, 3 or more. With 3 no race runs: each seed picks its k-NN setting.
        seeds: Fresh seeds of each loss, 3 or more.
        name: The name of the comparison; default: the name of the data.
        baselines: Whether baselines of scikit-learn are fitted, too.
        overrides: Dotted keys of the job with their values.
        encoder: A `torch.nn.Module`, from whose weights all trainings start, that maps `pixels`, vectors, or
            `input_ids` and `attention_mask` to embeddings (B, D); or a class, or a `functools.partial` of
            one, which each training calls with its own seed. Default: an encoder that suits the data.
        tokenizer: A fast tokenizer of Hugging Face, or a `tokenizers.Tokenizer`. Default: the training words.
        collate: A function of a list of texts or images of Pillow that returns `forward`'s tensors by name.
        home: The folder of results. Default: MLCL_HOME, else `outputs`.
        progress: A function called with each line; None prints nothing. Default: a bar in a notebook.
        columns: The roles of the columns, see `prepare`.

    Raises:
        UserError: The data, a loss or a column cannot be used; raised before anything is trained.

    Example:
        >>> answer = mlcl.compare(frame, text="text", labels="topics", losses=["mulsupcon", "simdis"])
        >>> print(answer.verdict)
        Cannot tell whether mulsupcon is better than bce: ...
    """
    from mlcl.api.answer import Answer
    from mlcl.api.progress import listener_of
    from mlcl.service.tables.plan import TablePlan
    from mlcl.service.tables.table import run_table

    check_name(name, "name")
    say, root, overrides = say_of(progress), home_of(home), checked_overrides(overrides)
    inputs, modules = prepare_user_data(data, columns, root), (encoder, tokenizer, collate)
    start = _make_first_job(inputs, columns.get("labels"), modules, overrides, root, say, name)
    table = comparison_table(start.job, start.space, losses, inputs, trials, seeds, baselines=baselines)
    plan = TablePlan(*_write_table(root, start.job, table), overrides=overrides)
    return Answer(run_table(plan, home=root, watch=listener_of(progress)), root)


def _drop_keys(parameters: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Returns a space's parameters, except those that vary one of `keys`. `*` matches any part of a key."""

    def overlap(key: str, other: str) -> bool:
        parts = zip(key.split("."), other.split("."), strict=False)
        return all(left == right or "*" in (left, right) for left, right in parts)

    return {key: value for key, value in parameters.items() if not any(overlap(key, name) for name in keys)}


def _make_first_job(
    data: UserData,
    labels: Any,
    module: tuple[Any, Any, Any],
    overrides: Overrides,
    home: Path,
    say: Callable[[str], None],
    name: str | None,
) -> FirstJob:
    """Returns the first job on the data, with a caller's module, tokenizer and collate function if given.

    The job's experiment is `name`, by default the name of the data.
    """
    from mlcl.api.caller_encoder import caller_encoder_of
    from mlcl.config import load_job

    caller_encoder = None
    if any(part is not None for part in module):
        encoder, tokenizer, collate = module
        caller_encoder = caller_encoder_of(
            encoder, tokenizer, home, modality=data.info.modality, collate=collate
        )
    section = None if caller_encoder is None else caller_encoder.section
    spec = data.first_job(named_space(data, labels), data.description(), section)
    spec.space["space"] = _drop_keys(spec.space["space"], overrides or {})
    spec.job["experiment"] = name or re.sub(r"[^A-Za-z0-9._-]+", "_", spec.job["experiment"])
    # Averaging each arm with the same baseline would make the losses' differences smaller.
    spec.job["evaluation"].pop("ensemble", None)
    if caller_encoder is not None:
        spec.job["plugins"] = [dict(caller_encoder.plugin)]
        if not caller_encoder.size:
            spec.job["encoder"] = dict(caller_encoder.section)
        caller_encoder.check(load_job(spec.job, overrides or {}), home, say)
    return spec


def prepare_user_data(data: Any, columns: Mapping[str, Any], home: Path) -> UserData:
    """Prepares data, and returns them with their columns' roles. Raises UserError for data or an option."""
    from mlcl.api.user_frames import data_paths, in_columns
    from mlcl.service.starter.first_job import prepare_user_data
    from mlcl.service.starter.table_options import UserOptions

    fields = UserOptions.__dataclass_fields__
    if (on := columns.get("on")) is not None:
        found = str(on) if isinstance(on, (str, Path)) else type(on).__name__
        problem, allowed = "data are prepared and compared on this machine", "on= of mlcl.sweep and mlcl.run"
        raise UserError(problem, key="on", found=found, allowed=allowed)
    for key in columns:
        if key not in fields:
            raise UserError(f"no such option{did_you_mean(key, fields)}", key=key, allowed=sorted(fields))
    data, options = in_columns(data, columns)
    lists = {key: options[key] for key in ("text", "labels", "classes") if key in options}
    options |= {key: _as_names(key, value) for key, value in lists.items()}
    user_options = UserOptions(**options)
    paths = [path.absolute() for path in data_paths(data, home)]
    return prepare_user_data(paths, home, user_options)


def named_space(data: UserData, labels: Any) -> str | None:
    """Returns the label space of a prepared data set that the option `labels` names; None for other data.

    Raises UserError for several names.
    """
    if labels is None or data.options:
        return None
    return data.named_space(_as_names("labels", labels))


def _as_names(key: str, value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) or not hasattr(value, "__iter__") else tuple(value)
    if bad_names := [name for name in names if not isinstance(name, str)]:
        raise UserError("no name", key=key, found=repr(bad_names[0]), allowed="a text, or a list of texts")
    return names


def comparison_table(
    job: Mapping[str, Any],
    space: Mapping[str, Any],
    losses: str | Sequence[str],
    data: UserData,
    trials: int,
    seeds: int,
    *,
    baselines: bool,
) -> dict[str, Any]:
    """Returns the content of the table file: a row for the control, each loss, and each fitted baseline."""
    from mlcl.config import load_job
    from mlcl.training.baselines.jobs import fitting_baselines

    title, control = str(job["experiment"]), str(job["objective"]["classifier"]["loss"])
    for key, number in (("trials", trials), ("seeds", seeds)):
        if isinstance(number, bool) or not isinstance(number, Integral):
            raise UserError("no whole number", key=key, found=repr(number))
    trials, seeds = int(trials), int(seeds)  # the table file has no NumPy integers
    if trials < SEARCHES or seeds < SEARCHES:
        problem, allowed = "each search needs one at least", f"{SEARCHES} or more of both"
        raise UserError(problem, key="trials, seeds", found=[trials, seeds], allowed=allowed)
    keys = {key: value for key, value in space["space"].items() if not key.startswith(HEAD)}
    searched_keys = [key for key in keys if not key.startswith("evaluation.")]
    search = space["search"]
    control_tune: dict[str, Any] = {"space": {"space": keys, "search": search}, "searches": SEARCHES}
    control_tune |= {"trials": trials, "seeds": seeds}
    races = trials > SEARCHES  # a search of one trial has nothing to compare
    if races:
        control_tune |= {"race_seeds": 1, "confirm": 2}
    tune = control_tune | {"control": control, "hold": [key for key in HOLD if key in searched_keys]}
    tune["start"] = [key for key in searched_keys if key not in HOLD]
    rows: dict[str, Any] = {control: {"set": {"objective.heads": {}, "train.views": 2}, "tune": control_tune}}
    loss_names = list(_as_names("losses", losses))
    for loss in dict.fromkeys(loss_names):
        if loss != control:
            rows[loss] = _loss_row(loss, job, data, space, tune)
    if len(rows) < 2:
        problem = f"nothing to compare with {control}"
        raise UserError(problem, key="losses", found=loss_names, allowed="see `mlcl losses`")
    names, _ = fitting_baselines(load_job(job), data.info, in_sweeps=True) if baselines else ([], {})
    metrics = _table_metrics("micro_f1" if control == "bce" else "accuracy", "knn" if races else "knn_best")
    baseline_metrics = {figure: metric[metric.index("test/") :] for figure, metric in metrics.items()}
    rows |= {name: {"tune": False, "set": {"baseline": name}, "metrics": baseline_metrics} for name in names}
    return {
        "title": f"{title}: {', '.join(rows)}",
        "experiment": title,
        "source": "a comparison from Python",
        "job": f"{title}-job.yaml",
        "metrics": metrics,
        "tolerance": 1.0,
        "rows": rows,
        "columns": {title: {}},
    }


def _loss_row(
    loss: str, job: Mapping[str, Any], data: UserData, space: Mapping[str, Any], tune: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the row of a loss in the table file: the heads with the loss, and the search."""
    from mlcl.losses import LOSSES

    if loss == "asl":
        settings = {"objective.heads": {}, "objective.classifier.loss": loss, "train.views": 2}
        if "pos_weight" not in job["objective"]["classifier"]:
            return {"set": settings, "tune": dict(tune)}
        keys = {key: domain for key, domain in tune["space"]["space"].items() if key != POS_WEIGHT}
        tune_keys = {name: [key for key in tune[name] if key != POS_WEIGHT] for name in ("hold", "start")}
        loss_tune = {**tune, **tune_keys, "space": {**tune["space"], "space": keys}}
        return {"set": {**settings, POS_WEIGHT: "none"}, "tune": loss_tune}
    if loss not in LOSSES:
        names = sorted([*LOSSES, "asl"])
        raise UserError(f"no such loss{did_you_mean(loss, names)}", key="losses", found=loss, allowed=names)
    spec = LOSSES[loss]
    heads = {name: {**head, "loss": loss} for name, head in job["objective"]["heads"].items()}
    first_head = next(iter(heads.values()))
    if spec.labels == "none":
        heads = {"views": {key: value for key, value in first_head.items() if key != "labels"}}
    elif spec.labels == "path":
        heads = {"path": {**first_head, "labels": _find_hierarchy(loss, data)}}
    ranges = {key: domain for key, domain in space["space"].items() if key.startswith(HEAD)}
    if spec.similarity != "dot":
        heads = {name: _scale_head(head) for name, head in heads.items()}
        ranges = {
            key: {kind: [BY_DISTANCE * end for end in ends] for kind, ends in domain.items()}
            for key, domain in ranges.items()
        }
    loss_space = {**tune["space"], "space": {**tune["space"]["space"], **ranges}}
    return {"set": {"objective.heads": heads}, "tune": {**tune, "space": loss_space}}


def _scale_head(head: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: BY_DISTANCE * head[key] for key in ("temperature", "weight")}
    return {**head, **values, "projection": {"kind": "identity"}}


def _find_hierarchy(loss: str, data: UserData) -> str:
    spaces = data.info.label_spaces
    hierarchy = next((name for name, space in spaces.items() if space.kind == "hierarchy"), None)
    if hierarchy is None:
        problem, allowed = f"{loss} needs a hierarchy", "labels of several levels"
        raise UserError(problem, key="losses", found=sorted(spaces), allowed=allowed)
    return hierarchy


def _table_metrics(main_metric: str, neighbours: str) -> dict[str, str]:
    """Returns the metrics of the table, with and without k-NN, by the name that the table shows.

    `neighbours` is `knn` for the k-NN settings that a race chose, or `knn_best` for the best of each seed.
    """
    names = {main_metric.replace("_f1", "-F1"): main_metric, "macro-F1": "macro_f1"}
    knn_metrics = {figure: f"{neighbours}/test/{name}" for figure, name in names.items()}
    return knn_metrics | {f"{figure} without neighbours": f"test/{name}" for figure, name in names.items()}


def _write_table(home: Path, job: Mapping[str, Any], table: Mapping[str, Any]) -> tuple[Table, Path]:
    from mlcl.config.section import validate
    from mlcl.config.table.schema import Table, load_table
    from mlcl.files import replace_text

    file = home / FOLDER / f"{job['experiment']}.yaml"
    validate(Table, dict(table), file)  # first, so that a wrong argument replaces no file
    file.parent.mkdir(parents=True, exist_ok=True)
    for target, tree in ((file.with_name(str(table["job"])), job), (file, table)):
        replace_text(target, dump_yaml(dict(tree), default_flow_style=None, width=110))
    return load_table(file), file
