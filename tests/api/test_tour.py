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
    streams = [output["text"] for output in cell.outputs if output.get("name") == "stdout"]
    return "\n".join(
        streams + [output["data"][kind] for output in cell.outputs if kind in output.get("data", {})]
    )


@pytest.mark.slow
def test_the_tour_gives_verdicts_a_frame_a_model_and_a_report(client, tmp_path):
    code = [index for index, cell in enumerate(client.nb.cells) if cell.cell_type == "code"]
    compare_index = next(index for index in code if "mlcl.compare" in client.nb.cells[index].source)
    for index in code:
        if index == compare_index:
            _interrupted(client, index, tmp_path)
        run(client, index)
    assert all(cell.outputs for cell in client.nb.cells if cell.cell_type == "code")
    assert "tfidf_svm" in _of(client, "mlcl.baseline")
    assert "tour: COMPLETE" in shown(client.nb.cells[compare_index])
    assert "<svg" in shown(client.nb.cells[compare_index], "text/html")
    assert "supcon" in _of(client, "answer.verdict").splitlines()[0]
    assert "supcon, tour" in _of(client, "answer.frame")
    assert re.search(r"\['[A-Z]\w+-[A-Z]\w+', '[A-Z]\w+-[A-Z]\w+'\]", _of(client, ".predict("))
    assert list(tmp_path.glob("outputs/reports/*/report.html"))


def _of(client, text):
    """Returns the output of the only cell with a text in its source."""
    (cell,) = (cell for cell in client.nb.cells if cell.cell_type == "code" and text in cell.source)
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
