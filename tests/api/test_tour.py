"""Tests that examples/notebook.ipynb runs from top to bottom, and that a stopped cell continues."""

import os
import re
import shutil
import signal
import time
from pathlib import Path
from threading import Thread

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def client(tmp_path, monkeypatch):
    """Yields the client of a kernel in a folder with the notebook's data."""
    monkeypatch.delenv("MLCL_HOME", raising=False)
    shutil.copy(EXAMPLES / "diagnoses.csv", tmp_path)
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    with client.setup_kernel():
        yield client


def run(client, index):
    return client.execute_cell(client.nb.cells[index], index)


def shown(cell, kind="text/plain"):
    """Returns the texts that a cell has printed and returned."""
    streams = [its["text"] for its in cell.outputs if its.get("name") == "stdout"]
    return "\n".join(streams + [its["data"][kind] for its in cell.outputs if kind in its.get("data", {})])


@pytest.mark.slow
def test_the_tour_gives_verdicts_a_frame_a_model_and_a_report(client, tmp_path):
    code = [at for at, cell in enumerate(client.nb.cells) if cell.cell_type == "code"]
    compared = next(at for at in code if "mlcl.compare" in client.nb.cells[at].source)
    for at in code:
        if at == compared:
            _interrupted(client, at, tmp_path)
        run(client, at)
    assert all(cell.outputs for cell in client.nb.cells if cell.cell_type == "code")
    assert "tfidf_svm" in _of(client, "mlcl.baseline")
    assert "tour: COMPLETE" in shown(client.nb.cells[compared])
    assert "<svg" in shown(client.nb.cells[compared], "text/html")
    assert "supcon" in _of(client, "answer.verdict").splitlines()[0]
    assert "supcon, tour" in _of(client, "answer.frame")
    assert re.search(r"\['[A-Z]\w+-[A-Z]\w+', '[A-Z]\w+-[A-Z]\w+'\]", _of(client, ".predict("))
    assert list(tmp_path.glob("outputs/reports/*/report.html"))


def _of(client, text):
    """Returns the output of the only cell with a text in its source."""
    (cell,) = (its for its in client.nb.cells if its.cell_type == "code" and text in its.source)
    return shown(cell)


def _interrupted(client, at, folder):
    """Interrupts the kernel half way through the comparison, which ends STOPPED and keeps its results."""

    def interrupt():
        end = time.monotonic() + 300
        while not list(folder.glob("outputs/tables/*/trials/*/result.json")):
            if time.monotonic() > end:
                return  # the cell has failed and no longer runs
            time.sleep(0.2)
        os.kill(client.km.provisioner.pid, signal.SIGINT)

    thread = Thread(target=interrupt, daemon=True)
    thread.start()
    run(client, at)
    thread.join(300)
    assert "tour: STOPPED" in shown(client.nb.cells[at])
