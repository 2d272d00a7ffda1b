"""Counts the verdicts of real sweeps in which no head can help, and of some in which one must help.

    python benchmarks/null_sweeps.py --minutes 60 [--out benchmarks/null_sweeps.jsonl] [--summary]

The data sets are scikit-learn's digits, sums of two digits (`scenes`, several labels), and the texts of
examples/diagnoses.csv. Every sweep draws train, validation and test anew. In `shuffled`, a head reads labels
in another order. In `twice`, a head has weight 1e-6, so that both arms train alike. In `helps`, 60 % of the
classifier's training labels are random, and the head reads the right ones; digits also have 200 columns of
noise. The verdict of heads against the control is appended to the file as soon as it is known; a later call
continues with the sweeps that the file lacks.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from sklearn.datasets import load_digits

ROOT = Path(__file__).parents[1]
SETS, NULL, EACH = ("digits", "scenes", "diagnoses"), ("shuffled", "twice"), 10
HELPED, HELPING = ("digits", "diagnoses"), 10
ROWS = {"train": 200, "val": 150, "test": 300}
WRONG = 0.6
NOISE = 0.6, 200
"""The standard deviation and the number of the columns of noise."""
# A search has three trials: with a wide space, its error would be larger than any effect.
OPTIONS = ("--trials", "9", "--searches", "3", "--seeds", "6", "--confirm", "2", "--no-baselines", "--json")


def cases() -> list[tuple[str, str, int]]:
    """Returns set, kind and number of each sweep: 60 in which no head can help, 20 in which one must."""
    null_cases = [(*pair, number) for number in range(EACH) for pair in itertools.product(SETS, NULL)]
    helping_cases = [(name, "helps", number) for number in range(HELPING) for name in HELPED]
    groups = itertools.zip_longest(*[iter(null_cases)] * 3, helping_cases)
    return [case for group in groups for case in group if case is not None]


def pool(name: str, random: np.random.Generator) -> pd.DataFrame:
    """Returns as many rows as are needed, drawn from a set, with the columns `content` and `label`."""
    count = sum(ROWS.values())
    if name == "diagnoses":
        frame = pd.read_csv(ROOT / "examples/diagnoses.csv")
        rows = frame.iloc[random.permutation(len(frame))[:count]]
        return pd.DataFrame({"content": rows["diagnosis"].to_numpy(), "label": rows["area"].to_numpy()})
    digits = load_digits()
    names = np.array([f"digit {digit}" for digit in range(10)])
    indices = random.permutation(len(digits.data))[:count]
    if name == "digits":
        return pd.DataFrame(
            {"content": list(digits.data[indices] / 16), "label": names[digits.target[indices]]}
        )
    other_indices = random.permutation(len(digits.data))[:count]
    label_sets = [
        sorted({*names[digits.target[[i, j]]]}) for i, j in zip(indices, other_indices, strict=True)
    ]
    return pd.DataFrame(
        {"content": list((digits.data[indices] + digits.data[other_indices]) / 32), "label": label_sets}
    )


def table(name: str, kind: str, random: np.random.Generator) -> pd.DataFrame:
    """Returns the rows with their splits, the classifier's labels and the head's labels."""
    frame = pool(name, random)
    frame["split"] = np.repeat(list(ROWS), list(ROWS.values()))
    true_labels = frame["label"].to_numpy()
    order = random.permutation(len(frame)) if kind == "shuffled" else np.arange(len(frame))
    frame["head"] = true_labels[order]
    if kind == "helps":
        is_wrong = (frame["split"] == "train").to_numpy() & (random.random(len(frame)) < WRONG)
        labels = true_labels.copy()
        labels[is_wrong] = true_labels[random.integers(len(true_labels), size=int(is_wrong.sum()))]
        frame["label"] = labels
        if name != "diagnoses":
            deviation, columns = NOISE
            frame["content"] = [
                np.append(vector, random.normal(0, deviation, columns)) for vector in frame["content"]
            ]
    return frame


def files(name: str, kind: str, number: int, folder: Path) -> tuple[Path, Path]:
    """Writes the job and the space, with the data beside them, and returns their paths."""
    random = np.random.default_rng(zlib.crc32(f"{name} {kind} {number}".encode()))
    table(name, kind, random).to_parquet(folder / "table.parquet")
    multi_label, is_text = name == "scenes", name == "diagnoses"
    column = {"kind": "multi_label" if multi_label else "single"}
    head = {
        "loss": "mulsupcon" if multi_label else "supcon",
        "labels": "head",
        "temperature": 0.2,
        "weight": 0.1,
    }
    if kind == "twice":
        head["weight"] = 1e-6
    job: dict[str, Any] = {
        "experiment": "null",
        "data": {
            "source": "parquet",
            "options": {
                "path": str(folder / "table.parquet"),
                "text" if is_text else "vectors": "content",
                "split": "split",
                "labels": {label_name: column | {"column": label_name} for label_name in ("label", "head")},
            },
        },
        "encoder": {
            "name": "features",
            "inputs": ["tfidf" if is_text else "column"],
            "out": 128,
            "dropout": 0.3,
        },
        "objective": {
            "heads": {"extra": head},
            "classifier": {
                "loss": "bce" if multi_label else "cross_entropy",
                "labels": "label",
                "weight": 1.0,
            },
        },
        "train": {"epochs": 60, "batch_size": 50, "lr": 0.01, "threads": 1},
        "evaluation": {"metric": "val/micro_f1" if multi_label else "val/accuracy", "every": 60},
    }
    keys: dict[str, Any] = {
        "train.lr": {"log_float": [5e-3, 4e-2]},
        "encoder.dropout": {"float": [0.1, 0.5]},
    }
    if kind == "helps":  # with more epochs the classifier would memorise the random labels
        job["encoder"]["wide"], head["weight"] = False, 10.0
        job["train"]["epochs"] = job["evaluation"]["every"] = 15
    if kind != "twice":
        keys["objective.heads.*.temperature"] = {"log_float": [0.05, 1.0]}
        keys["objective.heads.*.weight"] = {"log_float": [3.0, 50.0] if kind == "helps" else [0.003, 10.0]}
    space = {"space": keys, "search": {"sampler": "tpe", "scheduler": "none", "seed": number}}
    paths = folder / "job.yaml", folder / "space.yaml"
    for path, tree in zip(paths, (job, space), strict=True):
        path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return paths


def verdict_of(name: str, kind: str, number: int, options: tuple[str, ...] = OPTIONS) -> dict[str, Any]:
    """Runs a sweep in its own folder and returns its verdict on heads against the control, and seconds."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        job, space = files(name, kind, number, folder)
        command = [sys.executable, "-m", "mlcl", "sweep", str(job), str(space), *options]
        process = subprocess.run(
            [*command, "--home", str(folder / "home")], capture_output=True, text=True, check=False
        )
        shutil.rmtree(folder / "home", ignore_errors=True)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}\n{process.stderr[-3000:]}")
    verdict = next(
        verdict for verdict in json.loads(process.stdout)["verdicts"] if verdict["question"] == "heads"
    )
    seconds = time.monotonic() - start
    return {"set": name, "kind": kind, "number": number, "commit": commit(), "seconds": seconds} | verdict


def commit() -> str:
    """Returns the commit of the code. Raises SystemExit if files have changed since."""
    status = ["status", "--porcelain", "--", "mlcl", "benchmarks/*.py"]
    outputs = [
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        for words in (["rev-parse", "--short", "HEAD"], status)
    ]
    if outputs[1]:
        raise SystemExit(f"commit first; changed:\n{outputs[1]}")
    return outputs[0]


def read(out: Path) -> list[dict[str, Any]]:
    """Returns the sweeps that the file has."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def summary(sweeps: list[dict[str, Any]]) -> str:
    """Returns the answers of each kind, and the number of decided sweeps in which no head can help."""
    lines = []
    for kind in (*NULL, "helps"):
        answers = Counter(sweep["answer"] for sweep in sweeps if sweep["kind"] == kind)
        lines.append(
            f"{kind:9} {sum(answers.values()):3}: " + ", ".join(f"{n} {a}" for a, n in answers.items())
        )
    null_sweeps = [sweep for sweep in sweeps if sweep["kind"] in NULL]
    n_decided = sum(sweep["answer"] in ("helps", "hurts") for sweep in null_sweeps)
    return "\n".join([*lines, f"decided without an effect: {n_decided} of {len(null_sweeps)}"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no sweep after so many")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/null_sweeps.jsonl")
    parser.add_argument("--summary", action="store_true", help="only print what the file has")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    done_cases = {(sweep["set"], sweep["kind"], sweep["number"]) for sweep in read(args.out)}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for case in cases():
        if args.summary or time.monotonic() > end:
            break
        if case in done_cases:
            continue
        sweep = verdict_of(*case)
        with args.out.open("a") as file:
            file.write(json.dumps(sweep) + "\n")
        print(*case, f"{sweep['seconds']:.0f} s", sweep["sentence"], flush=True)
    print(summary(read(args.out)))


if __name__ == "__main__":
    main()
