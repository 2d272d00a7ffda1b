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
        page, *paragraphs, end = text.split("\n\n")
        assert page.startswith(
            f"[The report](run/{id}/artifacts/report/report.html). [All runs, best first]("
        )
        assert end == END
        return text, paragraphs

    return write


def test_what_fits_is_kept_whole(note):
    _, paragraphs = note("Trial 3 is best.", "Its settings:", table(3, 10))
    assert paragraphs[:2] == ["Trial 3 is best.", "Its settings:"]
    assert paragraphs[2].count("vvv |") == 3


def test_a_table_that_is_too_long_goes_with_what_announces_it(note):
    text, paragraphs = note(
        "Trial 3 is best.", "On fresh seeds:", table(2, 10), "Its settings:", table(50, 100)
    )
    assert paragraphs[:2] == ["Trial 3 is best.", "On fresh seeds:"]
    assert len(paragraphs) == 3
    assert len(text) <= MOST


def test_the_whole_note_is_measured(note):
    shortest_length = len(note()[0])
    for length in (1, 2, 3):
        paragraph = "a" * (MOST - shortest_length - length)
        text, paragraphs = note(paragraph)
        assert (len(paragraphs), len(text) <= MOST) == (length >= 2, True)
