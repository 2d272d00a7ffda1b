"""Writes the outputs of mlcl to text files, in which two versions of the code can be compared.

    python tools/surface.py OUT
    diff -r BEFORE AFTER

It runs the commands of tools/surface/commands.yaml in a new folder: help, JSON documents, MLflow's contents,
and the reports of small trainings, a sweep and a table. The sweep and the table run twice; in the second run
they are killed after some trainings and continued. The script fails if the two runs differ. Ids, times, paths
and the commit are replaced by placeholders. OUT must not exist. The script takes six minutes on one core.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import yaml
from mlflow import MlflowClient

REPOSITORY = Path(__file__).resolve().parent.parent
REPLACED = (
    (r"mlcl-\d{8}-\d{6}-[0-9a-f]{6}", "<id>"),
    (r"\b(m-)?[0-9a-f]{32}\b", "<run>"),
    (r"\b[0-9a-f]{40}\b", "<commit>"),
    (r"\d{8}-\d{6}-\d{6}|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+00:00| UTC)?", "<time>"),
    (r"\b\d+m(\d\ds)?(?= |$)|\b\d+(\.\d+)? (ms|s|m|min|h)\b", "<duration>"),
    (r"experiments/\d+", "experiments/<number>"),
    (r"(with uncommitted changes\W+)(true|false)", r"\1<state>"),
    (r"(?s)What it took.*?Where it comes from", lambda match: re.sub(r"\d+\.\d{4}", "<hours>", match[0])),
    (r"[─━]{2,}", "──"),
    (r"-{4,}", "----"),
    (r" {2,}", "  "),
)
"""The patterns that are replaced, each with its placeholder; runs of spaces and rules are shortened, too."""
TIMED = re.compile(r"(^|/|[._])(time/.*|.*seconds.*|.*_per_second|data_wait|.*memory.*|spent|age|hours)$")
"""A pattern of keys and metrics whose values differ between any two runs."""
FOREIGN = re.compile(r"mlflow\.(user|source\..*|loggedArtifacts)|mlcl\.(version\..*|git\..*|python|machine)")
"""A pattern of tags about the machine and the code, whose names are compared and whose values are not."""
INPUTS = Path(__file__).with_name("surface")
KILLED_AFTER = {"sweep.json": 9, "table.json": 5}
"""The commands that are killed, with the number of finished trainings at the kill."""


class Surface:
    """Runs commands in a folder of input files and writes their normalised outputs under `out`."""

    def __init__(self, folder: Path, out: Path) -> None:
        self.folder, self.out = folder, out
        shutil.copytree(INPUTS, folder, dirs_exist_ok=True)
        for name in ("jobs", "tables", "tune_spaces"):
            (folder / name).symlink_to(REPOSITORY / name)
        variables = {
            key: value for key, value in os.environ.items() if not key.startswith(("MLCL_", "MLFLOW_"))
        }
        paths = f"{REPOSITORY}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        self.environment = {
            **variables,
            "PYTHONPATH": paths,
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "TERM": "dumb",
        }

    def run(self, commands: dict[str, str], home: str, prefix: str, killed: bool = False) -> None:
        """Runs commands in turn; if `killed`, those of `KILLED_AFTER` are started, killed and run again."""
        self.environment["MLCL_HOME"] = home
        for name, words in commands.items():
            for placeholder, pattern in {"RUN": "runs/mlcl-*", "DATA": "data/icd10cm-*"}.items():
                if placeholder in words:
                    words = words.replace(placeholder, next((self.folder / home).glob(pattern)).name)
            words = words.replace("REPOSITORY", str(REPOSITORY))
            if killed and name in KILLED_AFTER:
                self.kill(words, KILLED_AFTER[name])
            if words.startswith("report"):
                self.report(words, f"{prefix}{name}")
            else:
                self.command(words, f"{prefix}{name}")

    def command(self, words: str, name: str) -> str:
        """Runs one command and writes its output, and its exit status and errors if it fails."""
        process = subprocess.run(**self._how(words), capture_output=True, text=True)
        errors = f"exit status {process.returncode}\n{process.stderr}" if process.returncode else ""
        if errors:
            print(f"mlcl {words}: {errors[-2000:]}", file=sys.stderr)
        self.write(name, process.stdout + errors)
        return process.stdout

    def kill(self, words: str, trainings: int) -> None:
        """Starts a command, and kills it and its processes once `trainings` of its trainings have ended."""
        log = self.folder / "killed.err"
        with log.open("wb") as errors:
            process = psutil.Popen(**self._how(words), stdout=subprocess.DEVNULL, stderr=errors)
        while log.read_text().count('{"kind": "close"') < trainings:
            if process.poll() is not None:
                sys.exit(f"mlcl {words}: it ended before it was killed\n{log.read_text()[-3000:]}")
            time.sleep(0.02)
        for child in [process, *process.children(recursive=True)]:
            child.kill()
        process.wait()

    def _how(self, words: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "mlcl", *words.split()]
        return {"args": command, "cwd": self.folder, "env": self.environment}

    def write(self, name: str, text: str) -> None:
        """Writes a text, or a JSON document with sorted keys, without parts that differ between runs."""
        if text.startswith(("{", "[")):
            text = json.dumps(_without_times(json.loads(text)), indent=1, sort_keys=True)
        text = text.replace(str(self.folder), "<folder>").replace(str(REPOSITORY), "<repository>")
        text = re.sub(r"home(-killed)?/", "home/", text)
        for pattern, placeholder in REPLACED:
            text = re.sub(pattern, placeholder, text)
        path = self.out / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")

    def help(self, words: str = "") -> None:
        """Writes the help of a command and of all commands below it."""
        text = self.command(f"{words} --help", f"help/{words.replace(' ', '_') or 'mlcl'}")
        for panel in re.findall(r"╭─ (?!Options|Arguments).*?╰", text, re.DOTALL):
            for name in re.findall(r"^│ ([a-z][\w-]*)", panel, re.MULTILINE):
                self.help(f"{words} {name}".strip())

    def report(self, words: str, name: str) -> None:
        """Writes the output of `mlcl report`, its Markdown, the text of its page and its file names."""
        shutil.rmtree(self.folder / "report", ignore_errors=True)
        self.command(f"{words} --json --to report", f"{name}.json")
        page = (self.folder / "report/report.html").read_text()
        page = re.sub(r"<(script|style|svg)\b.*?</\1>", "", page, flags=re.DOTALL)
        self.write(f"{name}.html", re.sub(r"\s*\n\s*", "\n", re.sub(r"<[^>]*>", "\n", page)))
        self.write(f"{name}.md", (self.folder / "report/report.md").read_text())
        self.write(f"{name}.files", "\n".join(_files(self.folder / "report")))

    def mlflow(self, home: str, name: str) -> None:
        """Writes the experiments, runs and models of a home's tracking store."""
        client = MlflowClient(f"sqlite:///{self.folder / home}/mlflow.db")
        blocks = []
        for experiment in client.search_experiments():
            runs = client.search_runs([experiment.experiment_id], max_results=1000)
            names = {run.info.run_id: run.info.run_name for run in runs}
            for run in runs:
                data = run.data
                lines = [f"{experiment.name} | {run.info.run_name} | {run.info.status}"]
                lines += [f"  param {key} = {value}" for key, value in sorted(data.params.items())]
                for key, value in sorted(data.metrics.items()):
                    steps = sorted(point.step for point in client.get_metric_history(run.info.run_id, key))
                    lines.append(f"  metric {key} = {'<time>' if TIMED.search(key) else value} {steps}")
                # An empty tag is one that was removed.
                for key, value in sorted((key, value) for key, value in data.tags.items() if value):
                    hidden = FOREIGN.match(key) or TIMED.search(key)
                    lines.append(f"  tag {key} = {'<value>' if hidden else names.get(value, value)}")
                inputs = [dataset_input.dataset for dataset_input in run.inputs.dataset_inputs]
                lines += [f"  input {dataset.name} {dataset.digest}" for dataset in inputs]
                root = Path(run.info.artifact_uri.removeprefix("file://"))
                lines += [f"  artifact {path}" for path in _files(root)]
                blocks.append("\n".join(lines))
        for version in client.search_model_versions():
            model = client.get_registered_model(version.name)
            blocks.append(
                f"model {version.name} | version {version.version} | {sorted(model.aliases.items())}"
            )
        self.write(name, "\n".join(sorted(blocks)))


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _without_times(tree: object) -> object:
    if isinstance(tree, dict):
        return {key: "<time>" if TIMED.search(key) else _without_times(value) for key, value in tree.items()}
    return [_without_times(item) for item in tree] if isinstance(tree, list) else tree


def main() -> None:
    """Writes all outputs to the folder of the command line."""
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True)  # the folder must be new, so that nothing of an earlier call is compared
    commands = yaml.safe_load((INPUTS / "commands.yaml").read_text())
    with tempfile.TemporaryDirectory() as folder:
        surface = Surface(Path(folder), out)
        surface.help()
        surface.run(commands["plans"], "home", "")
        for name in _files(surface.folder / "diagnoses"):
            surface.write(f"plans/init-{name}", (surface.folder / "diagnoses" / name).read_text())
        surface.run(commands["single"], "home-single", "single/")
        surface.write("single/export.files", "\n".join(_files(surface.folder / "model")))
        surface.mlflow("home-single", "single/mlflow")
        for home, prefix in {"home": "whole/", "home-killed": "killed/"}.items():
            surface.run(commands["many"], home, prefix, killed=prefix == "killed/")
            surface.mlflow(home, f"{prefix}mlflow")
    process = subprocess.run(["diff", "-r", out / "whole", out / "killed"], capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"a kill changes the results:\n{process.stdout}")


if __name__ == "__main__":
    main()
