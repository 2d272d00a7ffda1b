"""Which split an admission of MIMIC goes to: by the published lists of admission ids, or by its patient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcl.data.format import SPLITS
from mlcl.data.sources.common.clinical import ClinicalOptions, Codes
from mlcl.data.sources.common.distribution import Distribution
from mlcl.data.split_assignment import assign
from mlcl.errors import UserError

FRACTIONS = (0.9, 1 / 30, 1 / 15)
"""Shares of the patients in the splits of MIMIC-IV-ICD, which `splits: seeded` takes over."""
LIST_SPLITS = dict(zip(("train", "dev", "test"), SPLITS, strict=True))
"""How the names of the lists call the splits."""


def list_names(options: ClinicalOptions, folder: str) -> dict[str, tuple[str, ...]]:
    """Split to the names of its list: in `folder` of what the project publishes, or just there."""
    names = {split: f"{prefix}_{options.codes}_hadm_ids.csv" for prefix, split in LIST_SPLITS.items()}
    return {split: (f"{folder}/{name}", name) for split, name in names.items()}


def open_lists(options: ClinicalOptions, title: str, names: Sequence[tuple[str, ...]]) -> Distribution:
    """The published lists. Raises UserError that says which are missing and who publishes them."""
    if isinstance(options.splits, Path):
        return Distribution(options.splits, title, names)
    raise UserError(
        f"the splits are lists of admission ids, published with {title}",
        key="data.options.splits",
        found=options.splits or "nothing",
        allowed=f"the folder that has {', '.join(choice[-1] for choice in names)}; or seeded",
    )


def read_splits(lists: Distribution, names: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Admission to split. Raises UserError for a line that is no id, and for an id of two lists."""
    splits: dict[str, str] = {}
    for split, choice in names.items():
        file = lists.file(*choice)
        for number, line in lists.lines(*choice):
            admission = line.strip()
            if not admission.isdecimal():
                raise UserError(f"line {number} is no admission id", file=file, found=admission or "nothing")
            if splits.setdefault(admission, split) != split:
                problem = f"the admission of line {number} is in the list of {splits[admission]} too"
                raise UserError(problem, file=file, found=admission)
    return splits


def seeded_splits(codes: Codes, seed: int) -> dict[str, str]:
    """Admission to split by a seeded hash of the patient, so that no patient is in two splits."""
    return {admission: assign(patient, seed, FRACTIONS) for admission, patient in codes.patient.items()}
