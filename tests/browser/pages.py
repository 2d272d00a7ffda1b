"""MLflow's pages (3.17) as a user navigates them, by the texts on them."""

import re

from mlflow.entities import Run
from playwright.sync_api import Locator, Page, expect

from mlcl.tracking.shared_view import view_path

# Plotly draws the comparison and keeps the drawn data on its element; D3 draws the charts.
COMPARED = """names => {
    const axes = document.querySelector(".js-plotly-plot")?.data?.[0]?.dimensions ?? [];
    return names.join() === axes.map(axis => axis.label).join()
        && axes.map(axis => ({words: axis.ticktext ?? [], values: Array.from(axis.values)}));
}"""
CHARTED = """names => {
    const axes = [...document.querySelectorAll("[role=dialog] .dimension")];
    const whole = axis => axis.querySelector(".axis-label-tooltip text") ?? axis.querySelector(".label");
    return names.join() === axes.map(axis => whole(axis).textContent).join()
        && axes.map(axis => Array.from(axis.querySelectorAll(".tick text"), tick => tick.textContent));
}"""


class Pages:
    """A page of a logged-in browser, with methods that navigate it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        # MLflow's assistant opens by itself at some moment of the first visit.
        assistant = page.locator("[data-assistant-ui]").get_by_role("button", name="Close")
        page.add_locator_handler(assistant, lambda button: button.click())

    def open_experiment(self, name: str) -> None:
        """Opens the runs of an experiment from the list of experiments."""
        self.page.goto(f"{self.url}/#/experiments")
        self.page.get_by_role("button", name="Model training").click()
        self.page.get_by_role("link", name=name, exact=True).click()
        expect(self.page.get_by_role("heading", name="Runs")).to_be_visible()

    def open_view(self, sweep: Run, *, charts: bool = False) -> None:
        """Opens the link that the sweep's command prints."""
        path = view_path(sweep.info.experiment_id, sweep.data.tags["mlcl.id"], charts=charts)
        self.page.goto(f"{self.url}/{path}")

    def row(self, run_id: str) -> Locator:
        """Returns the row of a run in the list."""
        return self.page.locator(".ag-row", has=self.page.locator(f"a[href$='{run_id}']"))

    def show_trials(self, sweep: Run) -> None:
        """Unfolds a sweep and leaves only its search trials in the list."""
        self.row(sweep.info.run_id).get_by_role("button").first.click()
        confirmation = self.page.get_by_role(
            "link", name=re.compile(r"^(as written|trial \d+), fresh seeds$")
        ).first
        expect(confirmation).to_be_visible()
        box = self.page.get_by_placeholder("metrics.rmse")
        box.fill('tags.mlcl.kind = "trial"')
        box.press("Enter")
        expect(confirmation).to_be_hidden()

    def change_columns(self, names: list[str]) -> None:
        """Ticks columns of the list that are not ticked, and unticks those that are."""
        button = self.page.get_by_role("button", name="Columns", exact=True)
        button.click()
        for name in names:
            self.page.get_by_placeholder("Search columns").fill(name)
            tree = self.page.get_by_test_id("column-selector-tree")
            tree.locator("span", has_text=re.compile(f"^{re.escape(name)}$")).first.click()
        button.click()

    def column(self, param: str) -> Locator:
        """Returns the cells of a parameter in the list."""
        return self.page.locator(f"[role=gridcell][col-id='params.`{param}`']")

    def compare(self, run_ids: list[str]) -> None:
        """Ticks runs in the list and opens their comparison."""
        for run_id in run_ids:
            self.row(run_id).get_by_role("checkbox").first.check()
        self.page.get_by_role("button", name="Compare", exact=True).click()
        self.page.get_by_role("button", name="Toggle sidebar").click()  # the names of the axes need the room
        expect(self.page.get_by_role("heading", name=f"Comparing {len(run_ids)} Runs")).to_be_visible()

    def choose(self, box: Locator, names: list[str]) -> None:
        """Selects names in a combo box."""
        for name in names:
            if box.get_attribute("aria-expanded") != "true":
                box.click()
            box.fill(name)
            self.page.get_by_title(name, exact=True).locator("visible=true").last.click()
        box.blur()

    def compared_on(self, params: list[str], metric: str) -> dict[str, list[float]]:
        """Returns the axes of the comparison's parallel coordinates with their values, in run order."""
        panel = self.page.get_by_role("tabpanel")
        panel.get_by_role("button", name="Clear All").click()
        self.choose(panel.get_by_role("combobox").nth(0), params)
        self.choose(panel.get_by_role("combobox").nth(1), [metric])
        names = [*params, metric]
        axes = self.page.wait_for_function(COMPARED, arg=names).json_value()
        assert not any(axis["words"] for axis in axes)
        return dict(zip(names, (axis["values"] for axis in axes), strict=True))

    def contour(self, **axes: str) -> None:
        """Opens the comparison's contour plot and selects the names of its axes `x`, `y` and `z`."""
        self.page.get_by_role("tab", name="Contour Plot").click()
        panel = self.page.get_by_role("tabpanel")
        for axis, name in axes.items():
            panel.get_by_role("combobox", name=f"{axis.upper()}-axis").click()
            self.page.get_by_role("option", name=name, exact=True).click()

    def show_charts(self) -> None:
        """Shows the experiment's charts in place of its table."""
        self.page.locator("label", has=self.page.locator("input[value=CHART]")).click()
        self.page.get_by_role("button", name="Toggle visibility of runs").click()
        self.page.get_by_text("Show all runs").click()

    def add_parallel_coordinates(self, params: list[str], metric: str) -> dict[str, list[str]]:
        """Adds a chart to the experiment's, and returns each axis with the texts at its ticks."""
        self.page.get_by_role("button", name="Add chart").first.click()
        self.page.get_by_role("menuitem", name="Parallel coordinates").click()
        dialog = self.page.get_by_role("dialog", name="Add new chart")
        self.choose(dialog.get_by_role("combobox").nth(1), params)
        self.choose(dialog.get_by_role("combobox").nth(2), [metric])
        dialog.get_by_role("button", name="Add chart").click()
        expect(dialog).to_be_hidden()
        card = self.page.get_by_test_id("experiment-view-compare-runs-card").filter(
            has_text="Parallel Coordinates"
        )
        card.get_by_role("button").first.click()  # the chart takes up the whole window
        names = [*params, metric]
        return dict(zip(names, self.page.wait_for_function(CHARTED, arg=names).json_value(), strict=True))

    def open_run(self, run: Run) -> None:
        """Opens a run's page from a list."""
        self.page.locator(f"a[href$='/runs/{run.info.run_id}']").first.click()
        expect(self.page.get_by_role("heading", name=run.info.run_name, exact=True)).to_be_visible()

    def table(self, title: str) -> Locator:
        """Returns the metrics or parameters of a run's page, once their number is shown."""
        heading = self.page.get_by_text(re.compile(rf"^{title} \(\d+\)$"))
        expect(heading).to_be_visible()
        return heading.locator("xpath=..")

    def open_artifact(self, *path: str) -> None:
        """Opens a file in the artifacts of a run's page."""
        self.page.get_by_role("tab", name="Artifacts").click()
        for name in path:
            self.page.get_by_text(name, exact=True).first.click()
