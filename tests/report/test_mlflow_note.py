"""Tests of the note about a report on the page that MLflow has of a run."""

import pytest

from mlcl.report.document import Document, ReportSection, ReportTable, text_row
from mlcl.report.report import END, MOST, write_note
from mlcl.results.runs import Runs
from mlcl.tracking.names import Tag


def table(rows, width):
    return ReportTable(("key", "value"), tuple(text_row(f"key {row}", "v" * width) for row in range(rows)))


@pytest.fixture
def note(store):
    """Returns a function that writes the note on a report whose first section has these blocks."""

    def write(*blocks):
        runs = Runs(store.tracker)
        id = store.add("noted", "sweep", tags={Tag.ID: "sweep-1"})
        write_note(
            runs, runs.get(id), Document("it", "", (ReportSection("Result", blocks),)), "run/{}".format
        )
        text = runs.get(id).data.tags[Tag.NOTE]
        page, *said, end = text.split("\n\n")
        assert page.startswith(
            f"[The report](run/{id}/artifacts/report/report.html). [All runs, best first]("
        )
        assert end == END
        return text, said

    return write


def test_what_fits_is_kept_whole(note):
    _, said = note("Trial 3 is best.", "Its settings:", table(3, 10))
    assert said[:2] == ["Trial 3 is best.", "Its settings:"]
    assert said[2].count("vvv |") == 3


def test_a_table_that_is_too_long_goes_with_what_announces_it(note):
    text, said = note("Trial 3 is best.", "On fresh seeds:", table(2, 10), "Its settings:", table(50, 100))
    assert said[:2] == ["Trial 3 is best.", "On fresh seeds:"]
    assert len(said) == 3
    assert len(text) <= MOST


def test_the_whole_note_is_measured(note):
    shortest = len(note()[0])
    for length in (1, 2, 3):
        paragraph = "a" * (MOST - shortest - length)
        text, said = note(paragraph)
        assert (len(said), len(text) <= MOST) == (length >= 2, True)
