"""A sweep's report: every figure in it is computed again from the store, by SQL and not by our code."""

import re
import sqlite3
import statistics
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mlcl.errors import UserError
from mlcl.report.document import Code, Document, Section
from mlcl.report.plain import as_markdown
from mlcl.report.report import make_report
from mlcl.report.runs import Runs
from mlcl.report.write import report_folder, write_report


class Page(HTMLParser):
    """A page's figures, links, and everything that it would fetch."""

    def __init__(self, text):
        super().__init__()
        self.figures, self.links, self.fetched, self.text = [], [], [], ""
        self._figure = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        its = dict(attributes)
        if tag == "data":
            self._figure = its | {"text": "", "link": None}
            self.figures.append(self._figure)
        if tag == "a":
            self.links.append(its["href"])
            if self._figure is not None:
                self._figure["link"] = its["href"]
        self.fetched += [its[name] for name in ("src", "srcset", "data-src") if name in its]
        self.fetched += [its["href"]] if tag == "link" else []

    def handle_endtag(self, tag):
        if tag == "data":
            self._figure = None

    def handle_data(self, data):
        self.text += f"{data} "
        if self._figure is not None:
            self._figure["text"] += data


@pytest.fixture(scope="module")
def made(store, searched, tmp_path_factory):
    home, _ = searched
    folder = tmp_path_factory.mktemp("report") / "it"
    return make_report(Runs(store.tracker), "searched <b>", home, folder=folder, quick=True)


@pytest.fixture(scope="module")
def page(made):
    return Page(made.page.read_text())


@pytest.fixture(scope="module")
def database(store):
    return sqlite3.connect(store.tracker.uri.removeprefix("sqlite:///"))


def last(database, run, metric):
    query = "SELECT value FROM latest_metrics WHERE run_uuid = ? AND key = ?"
    ((value,),) = database.execute(query, (run, metric)).fetchall()
    return value


def test_every_figure_is_what_the_store_says(page, database):
    statistic = {"mean": statistics.fmean, "sd": statistics.stdev}
    checked = []
    for figure in page.figures:
        values = [last(database, run, figure["data-metric"]) for run in figure["data-runs"].split()]
        what = figure["data-statistic"]
        if what == "difference":
            half = len(values) // 2
            expected = statistics.fmean(values[half:]) - statistics.fmean(values[:half])
        elif what in statistic:
            expected = statistic[what](values)
        else:
            (expected,) = values
        assert float(figure["value"]) == pytest.approx(expected, abs=1e-12)
        assert abs(float(figure["text"]) - expected) <= 0.00005 + 1e-12
        checked.append(what)
    assert {"", "mean", "sd", "difference"} <= set(checked)
    assert len(checked) > 40


def test_a_run_s_figure_leads_to_its_run(page, store):
    alone = [figure for figure in page.figures if len(figure["data-runs"].split()) == 1]
    for figure in alone:
        id = figure["data-runs"]
        experiment = store.client.get_run(id).info.experiment_id
        assert figure["link"] == f"http://127.0.0.1:5000/#/experiments/{experiment}/runs/{id}"
    assert len(alone) > 20


def test_search_seeds_and_fresh_seeds_never_mix(page, database):
    kinds = dict(database.execute("SELECT run_uuid, value FROM tags WHERE key = 'mlcl.kind'"))
    for figure in page.figures:
        assert len({kinds[run] for run in figure["data-runs"].split()}) == 1


def test_the_best_is_the_commands_and_falls_on_fresh_seeds(page, searched):
    _, report = searched
    flat = " ".join(page.text.split())
    assert f"{report.best.label} has the highest knn_best/val/accuracy of" in flat
    change = re.search(r"change ([\d.]+) ([\d.]+) ([+-][\d.]+)", flat)
    assert float(change[1]) == pytest.approx(report.best.score, abs=5e-5)
    fresh = statistics.fmean(report.confirmations[-1].values("knn_best/val/accuracy"))
    assert float(change[3]) == pytest.approx(fresh - report.best.score, abs=5e-5)


def test_the_budget_and_where_it_comes_from(page, searched):
    flat = " ".join(page.text.split())
    _, report = searched
    assert "Asked: 2h. Spent: " in flat
    assert f"all {len(report.trials) + 9} " in flat
    for told in (report.id, "data fingerprint", "Python 3", report.run_id):
        assert told in flat


def test_states_are_counted(page, searched):
    _, report = searched
    flat = " ".join(page.text.split())
    for state in {trial.state for trial in report.trials}:
        number = sum(trial.state == state for trial in report.trials)
        assert f"{number} {state}" in flat


def test_the_page_needs_nothing_and_names_are_text(page, made):
    assert page.fetched
    assert all(address.startswith("data:") for address in page.fetched)
    source = made.page.read_text()
    assert "<b>" not in source.split("<script")[0]
    assert "Sweep searched &lt;b&gt;" in source
    assert not re.search(r"@import|url\(", source.split("</style>")[0])


def test_every_plot_has_its_files_and_its_table(made):
    assert made.plots
    for name in made.plots:
        assert (made.folder / "plots" / f"{name}.svg").read_text().startswith("<?xml")
        assert (made.folder / "plots" / f"{name}.csv").read_text().count("\n") > 1
    source = made.page.read_text()
    assert source.count("The figures of this plot") == len(made.plots)
    text = (made.folder / "report.md").read_text()
    assert all(f"](plots/{name}.svg)" in text for name in made.plots)


def test_markdown_has_the_figures_of_the_page(made, page):
    text = (made.folder / "report.md").read_text()
    for figure in page.figures:
        assert figure["text"].strip() in text


def test_code_in_markdown_ends_where_it_ends():
    document = Document("it", "", (Section("Code", (Code("a: 1 # ```` and ```"),)),))
    assert "`````yaml\na: 1 # ```` and ```\n`````\n" in as_markdown(document, str)


def test_it_is_an_artifact_of_the_sweep_and_a_second_one_takes_its_place(store, searched, made):
    client = store.client
    assert made.logged
    listed = {each.path for each in client.list_artifacts(made.run_id, "report")}
    assert {"report/report.html", "report/report.md", "report/plots"} <= listed
    again = make_report(
        Runs(store.tracker), searched[1].id, searched[0], folder=made.folder, quick=True, log=False
    )
    assert again.folder == made.folder
    assert [each.name for each in made.folder.parent.iterdir()] == [made.folder.name]


def test_links_lead_where_they_are_told_to(store, searched, tmp_path):
    made = make_report(
        Runs(store.tracker),
        "searched <b>",
        searched[0],
        folder=tmp_path / "it",
        server="https://lab.example/mlflow/",
        quick=True,
        log=False,
    )
    assert "https://lab.example/mlflow/#/experiments/" in made.page.read_text()


@pytest.mark.parametrize(
    ("name", "found"),
    [("thesis.tex", "thesis.tex"), ("plots/mine.py", "plots/mine.py"), ("data/a.csv", "data")],
)
def test_a_folder_with_other_files_is_left_alone(store, searched, tmp_path, name, found):
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("years of work")
    with pytest.raises(
        UserError, match=f"holds files that the report would take the place of; found: {found};"
    ):
        make_report(Runs(store.tracker), "searched <b>", searched[0], folder=tmp_path, quick=True, log=False)
    assert mine.read_text() == "years of work"


def test_a_report_that_cannot_be_written_leaves_the_earlier_one(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "no space left on the device")

    document, folder = Document("it", "", ()), tmp_path / "it"
    write_report(document, folder, str, "today")
    before = (folder / "report.md").read_text()
    monkeypatch.setattr("mlcl.report.write.as_markdown", full)
    with pytest.raises(OSError, match="no space left"):
        write_report(document, folder, str, "tomorrow")
    assert [each.name for each in tmp_path.iterdir()] == ["it"]
    assert (folder / "report.md").read_text() == before


def test_a_folder_may_be_empty_or_hold_a_report_or_be_the_present_one(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert report_folder(Path()) == tmp_path.resolve()
    assert report_folder(made.folder) == made.folder.resolve()
    (tmp_path / "file").touch()
    for name, problem in (("file", "is no folder"), ("file/below", "cannot be written")):
        with pytest.raises(UserError, match=problem):
            report_folder(tmp_path / name)


def test_a_name_that_is_no_sweep(store, tmp_path):
    with pytest.raises(
        UserError, match=r"key SWEEP: names no sweep and no table; did you mean searched <b>\?"
    ):
        make_report(Runs(store.tracker), "searched b", tmp_path)


def test_the_sweeps_page_in_mlflow_says_the_result(store, searched, made, page):
    note = store.client.get_run(made.run_id).data.tags["mlflow.note.content"]
    assert f"/runs/{made.run_id}/artifacts/report/report.html)" in note
    assert f"{searched[1].best.label} has the highest" in note
    assert note.endswith("Written by `mlcl report`.")
    assert len(note) < 5000


def test_a_persons_note_stays(store, searched, tmp_path):
    run_id = searched[1].run_id
    store.client.set_tag(run_id, "mlflow.note.content", "Mine.")
    make_report(Runs(store.tracker), run_id, searched[0], folder=tmp_path / "it", quick=True)
    assert store.client.get_run(run_id).data.tags["mlflow.note.content"] == "Mine."
