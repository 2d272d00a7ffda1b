"""The sources of a table's jobs: whether each has its files, told of all before the first is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcl.config import JobConfig
from mlcl.data import SOURCES
from mlcl.errors import UserError
from mlcl.training.job_data import JobData


def check_sources(jobs: Sequence[JobConfig], data: Mapping[str, str], file: Path) -> None:
    """Raises UserError where sources lack their files, and where one that takes none was given some."""
    for source, options in (each for job in jobs for each in _sources(job)):
        if source in data and "path" in options and not _takes_files(source):
            raise UserError(
                "this source comes with its package and takes no files",
                key="--data",
                found=f"{source}={data[source]}",
                allowed="a prepared folder",
            )
    lacking = [[source for source, options in _sources(job) if _lacks_files(source, options)] for job in jobs]
    missing = list(dict.fromkeys(source for sources in lacking for source in sources))
    if missing:
        others = "" if all(lacking) else ", or --only with cells of other data"
        raise UserError(
            f"needs files of {', '.join(missing)}: docs/data.md says what to get",
            file=file,
            key="--data",
            allowed=places(missing) + others,
        )


def check_prepared(job_data: JobData, data: Mapping[str, str]) -> None:
    """Raises UserError where a prepared folder that stands for a source says that it is of another one."""
    job, transfer = job_data.job, job_data.transfer
    opened = [(job.data.path, job_data.dataset.info.name)]
    if transfer is not None:
        opened.append((transfer.config.path, transfer.dataset.info.name))
    for path, name in opened:
        stood_for = [
            source for source, place in data.items() if path in (place, str(Path(place).expanduser()))
        ]
        if name in SOURCES and stood_for and name not in stood_for:
            raise UserError(
                "a prepared folder of another source",
                file=path,
                key="--data",
                found=name,
                allowed=", ".join(stood_for),
            )


def download_hint(job: JobConfig) -> str | None:
    """How to give the files of sources that are downloaded otherwise; None where there are none."""
    open_ = [source for source, options in _sources(job) if _takes_files(source) and "path" not in options]
    return places(open_) or None


def places(sources: Sequence[str]) -> str:
    """The options of the command line that say where sources lie."""
    return " ".join(f"--data {source}=PLACE" for source in sources)


def _sources(job: JobConfig) -> list[tuple[str, Mapping[str, object]]]:
    """The sources that a job names, with their options; unknown ones are told of where they are opened."""
    named = (job.data, job.evaluation.transfer_to)
    return [(its.source, its.options) for its in named if its and its.source and its.source in SOURCES]


def _takes_files(source: str) -> bool:
    return "path" in SOURCES[source].options.model_fields


def _lacks_files(source: str, options: Mapping[str, object]) -> bool:
    field = SOURCES[source].options.model_fields.get("path")
    return field is not None and field.is_required() and "path" not in options
