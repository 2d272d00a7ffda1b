"""Runs a sweep from Python: mlcl is called as on the command line and prints a JSON document.

    python examples/sweep.py [HOME]

The sweep searches a temperature and a weight in four trials, and trains the best setting and the job without
heads on two fresh seeds. Job and space are files; overrides of the job's keys follow them on the command
line.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
SPACE = """\
space:
  objective.heads.section.temperature: {log_float: [0.05, 1.0]}
  objective.heads.section.weight: {log_float: [0.01, 1.0]}
"""
SMALL = "data.subset.per_class=1 encoder.out=64 train.epochs=4 evaluation.every=4"
OPTIONS = "--name example --trials 4 --searches 1 --seeds 2 --no-baselines --json"


def sweep(home: Path) -> dict[str, Any]:
    """Runs the sweep `example` under a home and returns its JSON document."""
    with tempfile.TemporaryDirectory() as folder:
        space = Path(folder) / "space.yaml"
        space.write_text(SPACE)
        words = ["sweep", REPOSITORY / "jobs/icd10cm_features.yaml", space, *SMALL.split(), *OPTIONS.split()]
        command = [sys.executable, "-m", "mlcl", *words, "--home", home]
        process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    document: dict[str, Any] = json.loads(process.stdout)
    return document


def main() -> None:
    """Prints each trial's score, the scores on fresh seeds, and the verdicts."""
    document = sweep(Path(sys.argv[1] if len(sys.argv) > 1 else "outputs"))
    for trial in document["trials"]:
        print(trial["label"], trial["score"], trial["settings"])
    for setting in document["confirmations"]:
        print(setting["label"], [seed["score"] for seed in setting["seeds"]])
    for verdict in document["verdicts"]:
        print(verdict["sentence"])


if __name__ == "__main__":
    main()
