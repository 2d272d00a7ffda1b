"""Progress of a sweep in a notebook."""

import sys
from types import SimpleNamespace

import pytest

from mlcl.api.common import print_line
from mlcl.api.progress import KERNEL, NotebookBar, listener_of
from mlcl.service.engine.progress import Progress, ProgressEvent


@pytest.fixture
def drawn(monkeypatch):
    """The texts of the bar, in the kernel of a notebook."""
    texts = []
    bar = SimpleNamespace(update=texts.append)
    display = SimpleNamespace(HTML=str, display=lambda _text, display_id: bar)
    shell = type(KERNEL, (), {})()
    ipython = SimpleNamespace(get_ipython=lambda: shell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    return texts


def test_a_notebook_has_a_bar_that_is_redrawn(drawn):
    listener = listener_of(print_line)
    assert isinstance(listener, NotebookBar)
    listener(ProgressEvent("note", "no bar"))
    listener(ProgressEvent("close", progress=Progress("search", 3, 16, "val/f1", (), best=("<b>", 0.5))))
    assert drawn == ['<progress max="16" value="3"></progress> search: 3 of 16  best 0.5000 (&lt;b&gt;)']


@pytest.mark.parametrize("asked", [True, False])
def test_lines_are_written_elsewhere_and_where_they_are_asked_for(drawn, monkeypatch, capsys, asked):
    lines = []
    if not asked:
        monkeypatch.delitem(sys.modules, "IPython")
    listener_of(lines.append if asked else print_line)(ProgressEvent("note", "a note"))
    assert drawn == []
    assert (lines, capsys.readouterr().err) == ((["a note"], "") if asked else ([], "a note\n"))
