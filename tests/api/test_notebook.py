"""Tests the progress of a sweep in a notebook."""

import sys
from types import SimpleNamespace

import pytest

from mlcl.api.common import print_line
from mlcl.api.progress import KERNEL, listener_of, training_listener
from mlcl.service.engine.progress import Progress, ProgressEvent
from mlcl.training.events import Event


@pytest.fixture
def drawn(monkeypatch):
    """Returns the texts that a progress bar has shown in the kernel of a notebook."""
    texts = []
    bar = SimpleNamespace(update=texts.append)
    display = SimpleNamespace(HTML=str, display=lambda _text, display_id: bar)
    shell = type(KERNEL, (), {})()
    ipython = SimpleNamespace(get_ipython=lambda: shell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    return texts


def test_a_notebook_has_a_bar_that_is_redrawn_and_notes_beside_it(drawn, capsys):
    listener = listener_of(print_line)
    listener(ProgressEvent("note", "tracking.notify: no answer"))
    listener(ProgressEvent("close", progress=Progress("search", 3, 16, "val/f1", (), best=("<b>", 0.5))))
    assert drawn == ['<progress max="16" value="3"></progress> search: 3 of 16  best 0.5000 (&lt;b&gt;)']
    assert capsys.readouterr().err == "tracking.notify: no answer\n"


def test_a_training_in_a_notebook_has_a_bar_too(drawn, capsys):
    listener = training_listener(print_line)
    listener(Event("phase", 0, 0, 0, 0, note="embedding"))
    listener(Event("validation", 1, 4, 5, 20, {"val/f1": 0.25}))
    assert drawn == [
        '<progress max="20" value="5"></progress> epoch 1/4  step 5/20  0m00s left  val/f1 0.2500'
    ]
    assert capsys.readouterr().err == "embedding\n"


@pytest.mark.parametrize("asked", [True, False])
def test_lines_are_written_elsewhere_and_where_they_are_asked_for(drawn, monkeypatch, capsys, asked):
    lines = []
    if not asked:
        monkeypatch.delitem(sys.modules, "IPython")
    listener_of(lines.append if asked else print_line)(ProgressEvent("note", "a note"))
    assert drawn == []
    assert (lines, capsys.readouterr().err) == ((["a note"], "") if asked else ([], "a note\n"))
