"""Tests of a sweep's report; its numbers are computed again from the store, by SQL instead of mlcl's code."""

import json
import re
import sqlite3
import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from urllib.parse import unquote

import pandas as pd
import pytest
from builders import tiny_job
from matplotlib.figure import Figure
from sweeps import World
from typer.testing import CliRunner

import mlcl.results
from mlcl.cli.main import app
from mlcl.errors import UserError
from mlcl.report.document import Code, Details, Document, Picture, ReportCell, ReportSection, ReportTable
from mlcl.report.embedding_plots import EmbeddingOptions
from mlcl.report.plots.charts import Plot
from mlcl.report.report import make_report
from mlcl.report.report_files import as_html, as_markdown, report_folder, write_report
from mlcl.report.sweep_tables import budget_table
from mlcl.results.provenance import provenance_of
from mlcl.results.runs import Runs

QUICK = EmbeddingOptions(quick=True)


class Page(HTMLParser):
    """A parser of a page that collects its figures, its links and everything that a browser would fetch."""

    def __init__(self, text):
        super().__init__()
        self.figures, self.links, self.fetched, self.text = [], [], [], ""
        self._figure = None
        self.feed(text)
        self.flat = " ".join(self.text.split())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "data":
            self._figure = values | {"text": "", "link": None}
            self.figures.append(self._figure)
        if tag == "a":
            self.links.append(values["href"])
            if self._figure is not None:
                self._figure["link"] = values["href"]
        self.fetched += [values[name] for name in ("src", "srcset", "data-src") if name in values]
        self.fetched += [values["href"]] if tag == "link" else []

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
    return make_report(Runs(store.tracker), "searched <b>", home, folder=folder, embeddings=QUICK)


@pytest.fixture(scope="module")
def page(made):
    return Page(made.page.read_text())


def test_every_figure_is_what_the_store_says_of_runs_of_one_kind_and_leads_to_its_run(page, store):
    database = sqlite3.connect(store.tracker.uri.removeprefix("sqlite:///"))
    kinds = dict(database.execute("SELECT run_uuid, value FROM tags WHERE key = 'mlcl.kind'"))
    query = "SELECT value FROM latest_metrics WHERE run_uuid = ? AND key = ?"
    statistic = {"mean": statistics.fmean, "sd": statistics.stdev}
    checked_statistics, single_run_count = [], 0
    for figure in page.figures:
        runs, statistic_name = figure["data-runs"].split(), figure["data-statistic"]
        values = [database.execute(query, (run, figure["data-metric"])).fetchone()[0] for run in runs]
        if statistic_name in statistic:
            expected = statistic[statistic_name](values)
        else:
            (expected,) = values
        assert float(figure["value"]) == pytest.approx(expected, abs=1e-12)
        assert abs(float(figure["text"]) - expected) <= 0.00005 + 1e-12
        checked_statistics.append(statistic_name)
        assert len({kinds[run] for run in runs}) == 1  # search seeds and fresh seeds are never mixed
        if len(runs) == 1:
            single_run_count += 1
            experiment = store.client.get_run(runs[0]).info.experiment_id
            run_url = f"http://127.0.0.1:5000/#/experiments/{experiment}/runs/{runs[0]}"
            assert figure["link"] == f"{run_url}?workflowType=machine_learning"
    assert {"", "mean", "sd"} <= set(checked_statistics)
    assert min(len(checked_statistics), single_run_count) > 10


def test_the_page_says_what_the_command_found(page, searched):
    _, report = searched
    assert f"{report.best.label} has the highest val/accuracy." in page.flat
    change = re.search(r"change ([\d.]+) ([\d.]+) ([+-][\d.]+)", page.flat)
    assert float(change[1]) == pytest.approx(report.best.score, abs=5e-5)
    mean = statistics.fmean(report.confirmations[-1].metric_values("val/accuracy"))
    assert float(change[3]) == pytest.approx(mean - report.best.score, abs=5e-5)
    position = page.flat.index("the best baseline, colder: ")
    figures = report.verdicts[-1].sentence.partition(": ")[2]
    assert page.flat[position:].partition(": ")[2].startswith(figures)
    assert position < page.flat.index("has the highest")
    counts = {state: sum(trial.state == state for trial in report.trials) for state in ("COMPLETE", "PRUNED")}
    fresh_count = sum(len(setting.seeds) for setting in report.settings) + len(report.race_trainings)
    trainings_text = f"all {len(report.trials) + len(report.baseline_trials) + fresh_count} "
    origin = (report.id, "data fingerprint", "Python 3", report.run_id)
    for text in (
        "Asked: 2h. Spent: ",
        trainings_text,
        *origin,
        *(f"{n} {state}" for state, n in counts.items() if n),
    ):
        assert text in page.flat


SPACE = """
space:
  train.lr: {choice: [0.001, 0.002, 5.0]}
FREE
search: {sampler: brute_force, scheduler: none, METRIC}
"""


@pytest.fixture(scope="module")
def told(store, tiny, tmp_path_factory):
    """Returns a function that runs a sweep of three trials, one of which fails, and returns its Markdown."""

    def tell(name, metric, free_keys=""):
        with pytest.MonkeyPatch.context() as patch:
            world = World(tmp_path_factory.mktemp(name), patch, store.tracker.uri)
            world.formula.fails = lambda job, epoch: job.train.lr > 1
            job = tiny_job(tiny, "train.epochs=2", f"experiment={name}", "train.lr=0.001")
            space = SPACE.replace("METRIC", metric).replace("FREE", free_keys)
            world.run(world.plan(job, space, trials=3, seeds=1, name=name))
            report = make_report(
                Runs(store.tracker), name, world.home, folder=world.home / "it", embeddings=QUICK
            )
            return (report.folder / "report.md").read_text()

    return tell


def test_the_best_is_told_with_free_keys_and_its_name_on_fresh_seeds(told):
    text = told("free", "metric: val/accuracy", "  evaluation.knn.k: {choice: [1, 3]}")
    result, _, rest = text.partition("## Found by the search")
    assert "trial 0 and as written are the same job: on fresh seeds it is called as written." in result
    assert re.search(r"\| train.lr \| 0.001 \|\n\| evaluation.knn.k \| [13] \|", result)
    assert "A pruned one's score is of its last validation." in rest


def test_trials_are_told_with_all_goals_the_front_and_why_they_failed(told):
    text = told("goals", "metric: [val/accuracy, val/macro_f1], prune_by: val/accuracy")
    result, _, rest = text.partition("## Found by the search")
    assert "On the Pareto front of val/accuracy (max) and val/macro_f1 (max): trial 0." in result
    assert "| trial | state | val/accuracy | val/macro_f1 | train.lr |" in rest
    assert "| 0.9800 | 0.002 |" in re.sub(r"\[([\d.]+)\]\([^)]*\)", r"\1", rest)
    pattern = r"### Why trainings failed.*\| \[trial \d, seed 0\]\(.*\) \| .*not finite"
    assert re.search(pattern, rest, re.DOTALL)


def test_the_page_needs_nothing_and_names_are_text(page, made):
    assert page.fetched
    assert all(address.startswith("data:") for address in page.fetched)
    source = made.page.read_text()
    assert "<b>" not in source.split("<script")[0]
    assert "Sweep searched &lt;b&gt;" in source
    assert not re.search(r"@import|url\(", source.split("</style>")[0])


def test_every_plot_has_its_files_and_its_table_and_markdown_all_figures_of_the_page(made, page):
    source, text = made.page.read_text(), (made.folder / "report.md").read_text()
    assert source.count("The figures of this plot") == len(made.plots) > 0
    for name in made.plots:
        assert (made.folder / "plots" / f"{name}.svg").read_text().startswith("<?xml")
        assert (made.folder / "plots" / f"{name}.csv").read_text().count("\n") > 1
        assert f"](plots/{name}.svg)" in text
    assert all(figure["text"].strip() in text for figure in page.figures)


def test_code_in_markdown_ends_where_it_ends():
    document = Document("it", "", (ReportSection("Code", (Code("a: 1 # ```` and ```"),)),))
    assert "`````yaml\na: 1 # ```` and ```\n`````\n" in as_markdown(document, str)


def test_it_is_an_artifact_and_the_note_of_the_sweep(store, searched, made):
    paths = {artifact.path for artifact in store.client.list_artifacts(made.run_id, "report")}
    assert made.logged
    assert {"report/report.html", "report/report.md", "report/plots"} <= paths
    note = store.client.get_run(made.run_id).data.tags["mlflow.note.content"]
    assert f"/runs/{made.run_id}/artifacts/report/report.html?workflowType=machine_learning)" in note
    assert searched[1].verdicts[-1].sentence.partition(": ")[2] in note
    assert "Use trial " in note
    assert note.endswith("Written by `mlcl report`.")
    assert len(note) < 5000


def test_a_second_one_takes_its_place_and_a_persons_note_stays(store, searched, made, tmp_path):
    store.client.set_tag(made.run_id, "mlflow.note.content", "Mine.")
    options = {"folder": copytree(made.folder, tmp_path / "it"), "server": "https://lab.example/mlflow/"}
    second_report = make_report(Runs(store.tracker), made.run_id, searched[0], embeddings=QUICK, **options)
    assert "https://lab.example/mlflow/#/experiments/" in second_report.page.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["it"]
    assert store.client.get_run(made.run_id).data.tags["mlflow.note.content"] == "Mine."


@pytest.mark.parametrize(
    "name", ["thesis.tex", "plots/mine.py", "data/a.csv", "report.md", "report.html", "plots/mine.svg"]
)
def test_a_folder_with_other_files_is_left_alone(tmp_path, name):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("years of work")
    shown_name = name.removesuffix("/a.csv")
    with pytest.raises(UserError, match=f"the report would take the place of; found: .*{shown_name}.*;"):
        report_folder(tmp_path)


def test_other_files_beside_an_earlier_report_are_left_alone(tmp_path):
    write_report(Document("it", "", ()), tmp_path / "it", str, "today")
    assert report_folder(tmp_path / "it") == tmp_path / "it"
    (tmp_path / "it" / "plots" / "mine.svg").write_text("drawn by hand")
    with pytest.raises(UserError, match=r"found: plots/mine\.svg;"):
        report_folder(tmp_path / "it")


def test_a_folder_may_be_empty_or_hold_a_report_or_be_the_present_one(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert report_folder(Path()) == tmp_path.resolve()
    assert report_folder(made.folder) == made.folder.resolve()
    (tmp_path / "file").touch()
    for name, problem in (("file", "is no folder"), ("file/below", "cannot be written")):
        with pytest.raises(UserError, match=problem):
            report_folder(tmp_path / name)


def test_a_report_that_cannot_be_written_leaves_the_earlier_one(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "no space left on the device")

    document, folder = Document("it", "", ()), tmp_path / "it"
    write_report(document, folder, str, "today")
    before = (folder / "report.md").read_text()
    monkeypatch.setattr("mlcl.report.report_files.as_markdown", full)
    with pytest.raises(OSError, match="no space left"):
        write_report(document, folder, str, "tomorrow")
    assert [path.name for path in tmp_path.iterdir()] == ["it"]
    assert (folder / "report.md").read_text() == before


def test_two_reports_at_once_leave_one_of_them(tmp_path):
    documents = [Document(name, "", ()) for name in ("one", "other")] * 8
    with ThreadPoolExecutor(4) as pool:
        futures = [
            pool.submit(write_report, document, tmp_path / "it", str, "today") for document in documents
        ]
    assert {type(future.exception()) for future in futures} <= {type(None), OSError}
    assert (tmp_path / "it" / "report.md").read_text().startswith(("# one", "# other"))
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


def test_what_a_killed_report_left_under_the_home_is_removed(store, searched):
    home, sweep = searched
    partial_folder = home / "reports" / f".{sweep.id}.ab.partial"
    partial_folder.mkdir(parents=True)
    make_report(Runs(store.tracker), sweep.id, home, embeddings=QUICK, log=False)
    assert sorted(path.name for path in partial_folder.parent.iterdir()) == [f".{sweep.id}.lock", sweep.id]


def test_a_name_that_is_no_sweep(store, tmp_path):
    problem = r"key SWEEP: names no sweep and no table; did you mean searched <b>\?"
    with pytest.raises(UserError, match=problem):
        make_report(Runs(store.tracker), "searched b", tmp_path)
    with pytest.raises(UserError, match=problem):
        mlcl.results.load("searched b", home=tmp_path, uri=store.tracker.uri)


def table_below(text, heading):
    """Returns the table of a section as a mapping from the first cell of each row to the row."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {row[0]: dict(zip(heads, row, strict=True)) for row in rows}


def test_the_hours_are_those_of_the_trainings():
    columns = ["state", "setting", "seconds", "cpu_seconds", "gpu_seconds"]
    search = [("COMPLETE", "trial 0", 3600, 7200, 0), ("FAILED", "trial 1", 1800, 1800, 900)]
    confirmation = [
        ("COMPLETE", "as written", 5400, 5400, 1800),
        ("COMPLETE", "as written", 1800, 3600, 1800),
    ]
    frames = {"search": search, "confirmation": confirmation, "baselines": [], "dropped": [], "races": []}
    data = SimpleNamespace(**{name: pd.DataFrame(rows, columns=columns) for name, rows in frames.items()})
    rows = {part.text: [cell.text for cell in cells] for part, *cells in budget_table(data).rows}
    assert rows == {
        "search, COMPLETE": ["1", "1.0000", "2.0000", "0.0000", "1.0000"],
        "search, FAILED": ["1", "0.5000", "0.5000", "0.2500", "0.5000"],
        "confirmation, as written": ["2", "2.0000", "2.5000", "1.0000", "1.0000"],
        "all": ["4", "3.5000", "5.0000", "1.2500", "0.8750"],
    }


def test_the_provenance_names_the_code_and_libraries_of_all_trainings():
    first = {"mlflow.source.git.commit": "first", "mlcl.libraries": "torch==9.0", "mlcl.python": "3"}
    later_tags = first | {
        "mlflow.source.git.commit": "later",
        "mlcl.libraries": "torch==9.1",
        "mlcl.job": "other",
    }
    sweep_tags = first | {"mlcl.id": "it", "mlcl.job": "own"}
    assert provenance_of(sweep_tags, [first, later_tags | {"mlcl.version.peft": "0.5"}]) == {
        "id": ("it",), "cluster job": ("own",), "commit": ("first", "later"), "Python": ("3",),
        "libraries": ("torch==9.0", "torch==9.1"), "peft": ("0.5",),
    }  # fmt: skip


def test_tables_tell_what_they_are_and_what_their_rows_are():
    score = ReportCell("0.5", value=0.5)
    best = ReportTable(("setting", "score"), ((ReportCell("<trial> 7"), score),))
    change = ReportTable(("before", "change"), ((score, ReportCell("+0.1")),), left=())
    document = Document("it", "", (ReportSection("Result", (best, Details('On "fresh" seeds', (change,)))),))
    source = as_html(document, {}, str, "today")
    tab_stops = re.findall(r"<\w+ [^>]*tabindex=[^>]*>", source)
    names = [re.search(r'role="region" aria-label="([^"]*)"', tab_stop)[1] for tab_stop in tab_stops]
    assert names == ["Result", "On &#34;fresh&#34; seeds"]
    assert re.search(r'<tr><th scope="row" class="left">&lt;trial&gt; 7</th><td><data.*</td></tr>', source)
    assert re.search(r"<tr><td><data.*</td><td>\+0.1</td></tr>", source)


def test_a_plot_in_the_page_is_its_svg(made, page):
    images = [unquote(address.partition(",")[2]) for address in page.fetched]
    files = [made.folder / "plots" / f"{name}.svg" for name in made.plots]
    assert images == [file.read_text().replace("\n", " ") for file in files]
    names = "5% of \"a\" & <b> 'c' #1"
    plot = Plot("it", names, "", pd.DataFrame(), Figure)
    image = f"<svg><text>{names.replace('&', '&amp;').replace('<', '&lt;')}</text></svg>"
    document = Document("it", "", (ReportSection("Result", (Picture(plot),)),))
    (data_url,) = Page(as_html(document, {"it": image}, str, "today")).fetched
    assert unquote(data_url.partition(",")[2]) == image


def test_of_a_cloud_of_points_the_page_has_the_first_and_the_csv_all(tmp_path):
    def page(rows):
        plot = Plot("cloud", "Points", "", pd.DataFrame({"x": range(rows)}), Figure)
        write_report(
            Document("it", "", (ReportSection("Plots", (Picture(plot),)),)), tmp_path / "it", str, "today"
        )
        assert (tmp_path / "it" / "plots" / "cloud.csv").read_text().count("\n") == rows + 1
        return (tmp_path / "it" / "report.html").read_text()

    small_page, large_page = page(250), page(1251)
    assert [source.count('<th scope="row"') for source in (small_page, large_page)] == [250, 250]
    assert "beside this page" not in small_page
    assert "These are 250 of 1,251 rows. All are in plots/cloud.csv beside this page." in large_page


def test_json_has_each_reason_why_a_plot_is_missing(store, made, tmp_path, monkeypatch):
    reasons = (("tsne", "no rows"), ("tsne", "no labels"))
    monkeypatch.setattr("mlcl.report.report.make_report", lambda *_, **__: replace(made, missing=reasons))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.tracker.uri)
    answer = CliRunner().invoke(app, ["report", "searched <b>", "--json", "--home", str(tmp_path)])
    tree = json.loads(answer.stdout)
    assert tree["missing"] == [{"plot": "tsne", "why": "no rows"}, {"plot": "tsne", "why": "no labels"}]
    assert (tree["run_id"], tree["logged"], tree["plots"]) == (made.run_id, True, list(made.plots))
