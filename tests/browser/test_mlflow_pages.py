"""Tests in Chromium that MLflow's own pages show a sweep, as `mlcl up` serves them."""

import json
import re
from urllib.parse import urlsplit

import pytest
from browser.conftest import visit
from playwright.sync_api import expect

from mlcl.tracking.pyfunc import log_model
from mlcl.tracking.shared_view import CLASSIC, view_path, view_tag

pytestmark = pytest.mark.slow  # a server, sweeps and a browser: over a minute in all

SWEPT = re.compile(r"log10\.tau\.\w+|alpha\.(?!classifier)\w+")
METRIC = "val/accuracy"


def swept(trial):
    return sorted(filter(SWEPT.fullmatch, trial.data.params))


def point(trial):
    """Returns a trial's swept settings and metric as numbers; raises ValueError for a word."""
    return (*(float(trial.data.params[key]) for key in swept(trial)), trial.data.metrics[METRIC])


def run_id_of(link):
    """Returns the run id in the address of a run's page."""
    return link.rpartition("/")[2].partition("?")[0]


@pytest.mark.parametrize("user", ["admin", "nobody"])
def test_with_a_wrong_password_nothing_is_shown(chromium, served, user):
    with visit(chromium, {"username": user, "password": "wrong"}) as page:
        for path in ("", f"get-artifact?path=job.yaml&run_uuid={served.sweep.info.run_id}"):
            assert page.goto(f"{served.url}/{path}").status == 401
            assert page.locator("body").inner_text().startswith("You are not authenticated")


def test_trials_are_compared_on_temperatures_and_weights(served, pages, picture):
    pages.open_experiment(served.experiment)
    expect(pages.row(served.sweep.info.run_id)).to_be_visible()
    picture("runs")
    pages.show_trials(served.sweep)
    settings = [key.removeprefix("log10.") for key in swept(served.trials[0])]
    pages.change_columns(["Dataset", "Source", "Models", METRIC, *settings])
    for trial in served.trials:
        for key in settings:
            cells = pages.column(key).get_by_text(trial.data.params[key], exact=True)
            expect(cells.first).to_be_visible()
    picture("trials")
    pages.compare([trial.info.run_id for trial in served.trials])
    axes = pages.compared_on(swept(served.trials[0]), METRIC)
    picture("comparison")
    assert len(axes) == 5
    points = sorted(zip(*axes.values(), strict=True))
    assert points == [pytest.approx(trial) for trial in sorted(map(point, served.trials))]
    weight, temperature = swept(served.trials[0])[1::2]
    pages.contour(x=temperature, y=weight, z=METRIC)
    expect(pages.page.locator(".js-plotly-plot .contourlayer path")).not_to_have_count(0)
    picture("contour")


def test_one_link_shows_all_trials_best_first_with_what_was_searched(served, pages, picture):
    pages.open_view(served.sweep)
    names = [name.removeprefix("log10.") for name in swept(served.trials[0])]
    trials = sorted(served.trials, key=lambda trial: -trial.data.metrics["score"])
    expect(pages.page.locator(".ag-row a[href*='/runs/']").first).to_be_visible()
    for name in names:
        expect(pages.column(name)).to_have_text([trial.data.params[name] for trial in trials])
    picture("view")


def test_the_second_link_shows_charts_of_what_was_searched(served, pages, picture):
    pages.open_view(served.sweep, charts=True)
    expect(pages.page.get_by_text("What was searched")).to_be_visible()
    expect(pages.page.locator(".js-plotly-plot .contourlayer path")).not_to_have_count(0)
    expect(pages.page.locator(".js-plotly-plot .scatterlayer")).not_to_have_count(0)
    tags = served.client.get_experiment(served.sweep.info.experiment_id).tags
    view = json.loads(tags[view_tag(served.sweep.data.tags["mlcl.id"])])
    (axes,) = (chart["selectedParams"] for chart in view["compareRunCharts"] if chart["type"] == "PARALLEL")
    assert {name for trial in served.trials for name in swept(trial)} <= set(axes)
    expect(pages.page.locator(".parcoords .dimension")).to_have_count(1 + len(axes))
    picture("view-charts")
    # MLflow draws a chart when it comes into view.
    curves = pages.page.get_by_test_id("experiment-view-compare-runs-card").filter(has_text=METRIC).first
    curves.scroll_into_view_if_needed()
    expect(curves.locator(".scatterlayer .js-line").nth(len(served.trials) - 1)).to_be_attached()
    picture("view-curves")


def test_the_links_of_a_table_show_its_trainings_best_first_and_bars(served, pages, picture):
    if served.table is None:
        pytest.skip("this home has no table")
    filter_string = f"tags.`mlflow.parentRunId` = '{served.table.info.run_id}'"
    order = ["metrics.`test/accuracy` DESC"]
    cells = served.client.search_runs([served.table.info.experiment_id], filter_string, order_by=order)
    pages.open_view(served.table)
    expect(pages.column("tau.detail")).to_have_text([cell.data.params["tau.detail"] for cell in cells])
    cell_column = pages.page.locator("[role=gridcell][col-id='tags.`mlcl.cell`']")
    expect(cell_column).to_have_text([cell.data.tags["mlcl.cell"] for cell in cells])
    picture("table")
    pages.open_view(served.table, charts=True)
    expect(pages.page.locator(".js-plotly-plot .barlayer .point")).to_have_count(len(cells))
    picture("table-charts")


def test_the_description_of_a_sweep_has_the_links(served, pages):
    pages.open_experiment(served.experiment)
    pages.open_run(served.sweep)
    link = pages.page.get_by_role("link", name="All runs, best first")
    assert view_path(
        served.sweep.info.experiment_id, served.sweep.data.tags["mlcl.id"]
    ) in link.get_attribute("href")


def test_the_page_of_a_model_has_the_figures_parameters_and_data_set_of_its_run(
    served, pages, picture, tmp_path
):
    (tmp_path / "MLmodel").write_text("flavors: {}")
    trial = max(served.trials, key=lambda trial: trial.data.metrics["score"])
    model = log_model(served.client, trial, lambda _: tmp_path)
    pages.page.goto(
        f"{served.url}/#/experiments/{trial.info.experiment_id}/models/{model.model_id}?{CLASSIC}"
    )
    expect(pages.page.get_by_role("link", name=trial.info.run_name, exact=True)).not_to_have_count(0)
    expect(pages.page.get_by_text(trial.data.tags["mlcl.data"]).first).to_be_visible()
    for name in ("Metrics", "Parameters"):
        expect(pages.table(name)).to_be_visible()
    expect(pages.table("Metrics")).to_contain_text(METRIC)
    expect(pages.table("Parameters")).to_contain_text(swept(trial)[0])
    picture("model")
    served.client.delete_logged_model(model.model_id)


@pytest.mark.slow
def test_charts_have_numbers_at_their_axes(served, pages, picture):
    pages.open_experiment(served.experiment)
    pages.show_trials(served.sweep)
    pages.show_charts()
    axes = pages.add_parallel_coordinates(swept(served.trials[0]), METRIC)
    picture("charts")
    assert len(axes) == 5
    for ticks in axes.values():
        assert [float(tick.replace("\N{MINUS SIGN}", "-")) for tick in ticks]


def test_a_run_shows_its_metrics_settings_and_files(served, pages, picture):
    trial = served.trials[0]
    pages.open_experiment(served.experiment)
    pages.open_run(served.sweep)
    expect(pages.table("Metrics")).to_contain_text("sweep/best")
    expect(pages.page.get_by_role("link", name=trial.info.run_name, exact=True)).not_to_have_count(0)
    picture("sweep")
    pages.open_artifact("job.yaml")
    expect(pages.page.get_by_text("objective:")).to_be_visible()
    pages.page.get_by_role("tab", name="Overview").click()
    pages.open_run(trial)
    pages.page.get_by_placeholder("Search parameters").fill("tau")
    table = pages.table("Parameters")
    temperatures = [key for key in swept(trial) if "tau" in key]
    assert len(temperatures) == 2
    for key in temperatures:
        expect(table).to_contain_text(key)
        expect(table).to_contain_text(trial.data.params[key])
    assert METRIC in pages.table("Metrics").inner_text()
    table.get_by_text(temperatures[0], exact=True).scroll_into_view_if_needed()
    picture("trial")


def test_the_report_opens_inside_mlflow(served, pages, picture):
    sweep = served.sweep
    answer = served.cli("report", sweep.data.tags["mlcl.id"], "--quick", "--home", served.cli.home)
    assert answer.status == 0, answer.err
    pages.open_experiment(served.experiment)
    pages.open_run(sweep)
    pages.open_artifact("report", "report.html")
    report = pages.page.frame_locator("iframe")
    expect(report.get_by_role("heading", level=1)).to_contain_text(sweep.data.tags["mlcl.name"])
    expect(report.locator("footer")).to_be_attached()
    report.locator("nav a").last.click()
    expect(report.locator("section").last).to_be_in_viewport()
    picture("report")
    links = report.locator("a[href*='/runs/']")
    runs = {link.get_attribute("href") for link in links.all()}
    assert {urlsplit(link).netloc for link in runs} == {urlsplit(served.url).netloc}
    assert {trial.info.run_id for trial in served.trials} <= set(map(run_id_of, runs))
    with pages.page.context.expect_page() as page_info:  # MLflow's frame allows no other click to open a page
        links.first.click(modifiers=["ControlOrMeta"])
    run = served.client.get_run(run_id_of(links.first.get_attribute("href")))
    expect(page_info.value.get_by_role("heading", name=run.info.run_name, exact=True)).to_be_visible()
