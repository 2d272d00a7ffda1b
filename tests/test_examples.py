"""Tests that every script of examples/ runs as it is and prints its result."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
pytestmark = pytest.mark.usefixtures("one_thread")
SCRIPTS = sorted([*EXAMPLES.glob("*.py"), *EXAMPLES.glob("plugin/*.py")])


def printed(capsys, name):
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def command(name, *words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, EXAMPLES / name, *words], capture_output=True, text=True, env=environment
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


TRAINERS = {
    "sentence_transformers_multilabel.py": ("sentence_transformers", "datasets"),
    "lightning_contrastive.py": ("lightning",),
    "hf_trainer_contrastive.py": ("transformers", "accelerate"),
}
"""The examples in trainers, and the packages that they need."""


def test_there_are_eight_and_each_is_short():
    names = {str(path.relative_to(EXAMPLES)) for path in SCRIPTS}
    loops = {"loss_in_a_loop.py", "several_heads.py"}
    assert names == {*loops, *TRAINERS, "plugin/train.py", "sweep.py", "results_in_pandas.py"}
    assert all(len(path.read_text().splitlines()) <= 80 for path in SCRIPTS)


def test_a_loss_in_a_loop_brings_equal_digits_together(capsys):
    output = printed(capsys, "loss_in_a_loop.py")
    ((first, last),) = re.findall(r"^loss: (.+) at the first step, (.+) at the last$", output, re.MULTILINE)
    ((before, after),) = re.findall(r"of neighbours: (.+) before, (.+) after", output)
    assert float(last) < float(first)
    assert float(after) > max(float(before), 0.9)


def test_several_heads_and_a_classifier_learn_the_sections(capsys):
    (accuracy,) = re.findall(r"sections: (.+)", printed(capsys, "several_heads.py"))
    assert float(accuracy) > 0.7


@pytest.mark.parametrize("name", TRAINERS)
def test_in_a_trainer_the_loss_goes_down_and_neighbours_are_better_than_before(name, capsys, monkeypatch):
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")  # Lightning sets it
    for package in TRAINERS[name]:
        pytest.importorskip(package, reason=f"{package} is not installed")
    output = printed(capsys, name)
    first, *_, last = map(
        float, re.findall(r"(?:^loss:|in the first epoch,) (\d+\.\d+)", output, re.MULTILINE)
    )
    assert last < first
    ((before, after),) = re.findall(r"of neighbours: (.+) before, (.+) after", output)
    assert float(after) > float(before) + 0.04


@pytest.mark.slow
def test_a_sweep_and_its_results_in_pandas(tmp_path):
    output = command("sweep.py", str(tmp_path))
    assert len(re.findall(r"^trial \d+ 0\.\d+ {'objective", output, re.MULTILINE)) == 4
    assert re.search(r"^control \[0\.\d+, 0\.\d+\]$", output, re.MULTILINE)
    assert re.search(r"^(The heads|Cannot tell whether the heads) ", output, re.MULTILINE)
    results = command("results_in_pandas.py", "example", str(tmp_path))
    assert re.search(r"^search +COMPLETE +4$", results, re.MULTILINE)
    assert re.search(r"objective\.heads\.section\.temperature", results)
    assert re.search(r"^control.* 2$", results, re.MULTILINE)


def test_the_plugin_trains_without_being_installed(tmp_path):
    overrides = ("train.epochs=1", "data.subset.per_class=1", "encoder.width=8", "--home", str(tmp_path))
    assert "macro_f1" in command("plugin/train.py", *overrides)
