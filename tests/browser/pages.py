"""MLflow's pages (3.17) as a person walks them, by what is written on them."""

import re

from mlflow.entities import Run
from playwright.sync_api import Locator, Page, expect

from mlcl.tracking.shared_view import view_path

# The comparison draws with Plotly, which keeps on its element what it draws; the charts draw with D3.
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
    """A logged-in browser's page, and the walks on it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        # MLflow's assistant opens by itself at the first visit, whenever it is ready.
        assistant = page.locator("[data-assistant-ui]").get_by_role("button", name="Close")
        page.add_locator_handler(assistant, lambda button: button.click())

    def open_experiment(self, name: str) -> None:
        """From the list of experiments to the runs of one."""
        self.page.goto(f"{self.url}/#/experiments")
        self.page.get_by_role("button", name="Model training").click()
        self.page.get_by_role("link", name=name, exact=True).click()
        expect(self.page.get_by_role("heading", name="Runs")).to_be_visible()

    def open_view(self, sweep: Run, *, charts: bool = False) -> None:
        """By the link that the sweep's command prints."""
        path = view_path(sweep.info.experiment_id, sweep.data.tags["mlcl.id"], charts=charts)
        self.page.goto(f"{self.url}/{path}")

    def row(self, run_id: str) -> Locator:
        """A run's in the list."""
        return self.page.locator(".ag-row", has=self.page.locator(f"a[href$='{run_id}']"))

    def show_trials(self, sweep: Run) -> None:
        """Unfolds a sweep and leaves its search trials in the list."""
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
        """Ticks columns of the list that are not ticked, and the reverse."""
        button = self.page.get_by_role("button", name="Columns", exact=True)
        button.click()
        for name in names:
            self.page.get_by_placeholder("Search columns").fill(name)
            tree = self.page.get_by_test_id("column-selector-tree")
            tree.locator("span", has_text=re.compile(f"^{re.escape(name)}$")).first.click()
        button.click()

    def column(self, param: str) -> Locator:
        """The text of a parameter in the list."""
        return self.page.locator(f"[role=gridcell][col-id='params.`{param}`']")

    def compare(self, run_ids: list[str]) -> None:
        """Ticks runs in the list and opens their comparison."""
        for run_id in run_ids:
            self.row(run_id).get_by_role("checkbox").first.check()
        self.page.get_by_role("button", name="Compare", exact=True).click()
        self.page.get_by_role("button", name="Toggle sidebar").click()  # names of axes need the room
        expect(self.page.get_by_role("heading", name=f"Comparing {len(run_ids)} Runs")).to_be_visible()

    def choose(self, box: Locator, names: list[str]) -> None:
        """Picks names in a box that offers a list."""
        for name in names:
            if box.get_attribute("aria-expanded") != "true":
                box.click()
            box.fill(name)
            self.page.get_by_title(name, exact=True).locator("visible=true").last.click()
        box.blur()

    def compared_on(self, params: list[str], metric: str) -> dict[str, list[float]]:
        """The comparison's parallel coordinates: each axis and its values, in the order of the runs."""
        panel = self.page.get_by_role("tabpanel")
        panel.get_by_role("button", name="Clear All").click()
        self.choose(panel.get_by_role("combobox").nth(0), params)
        self.choose(panel.get_by_role("combobox").nth(1), [metric])
        names = [*params, metric]
        axes = self.page.wait_for_function(COMPARED, arg=names).json_value()
        assert not any(axis["words"] for axis in axes)
        return dict(zip(names, (axis["values"] for axis in axes), strict=True))

    def contour(self, **axes: str) -> None:
        """The comparison's contour plot, with what is on its axes `x`, `y` and `z`."""
        self.page.get_by_role("tab", name="Contour Plot").click()
        panel = self.page.get_by_role("tabpanel")
        for axis, name in axes.items():
            panel.get_by_role("combobox", name=f"{axis.upper()}-axis").click()
            self.page.get_by_role("option", name=name, exact=True).click()

    def show_charts(self) -> None:
        """The experiment's charts, in the place of its table."""
        self.page.locator("label", has=self.page.locator("input[value=CHART]")).click()
        self.page.get_by_role("button", name="Toggle visibility of runs").click()
        self.page.get_by_text("Show all runs").click()

    def add_parallel_coordinates(self, params: list[str], metric: str) -> dict[str, list[str]]:
        """A chart among the experiment's: each axis and what is written at its ticks."""
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
        card.get_by_role("button").first.click()  # the whole window for it
        names = [*params, metric]
        return dict(zip(names, self.page.wait_for_function(CHARTED, arg=names).json_value(), strict=True))

    def open_run(self, run: Run) -> None:
        """From where it is listed to a run's page."""
        self.page.locator(f"a[href$='/runs/{run.info.run_id}']").first.click()
        expect(self.page.get_by_role("heading", name=run.info.run_name, exact=True)).to_be_visible()

    def table(self, title: str) -> Locator:
        """Metrics or parameters of a run's page, once they are counted."""
        heading = self.page.get_by_text(re.compile(rf"^{title} \(\d+\)$"))
        expect(heading).to_be_visible()
        return heading.locator("xpath=..")

    def open_artifact(self, *path: str) -> None:
        """On a run's page: its files, down to one."""
        self.page.get_by_role("tab", name="Artifacts").click()
        for name in path:
            self.page.get_by_text(name, exact=True).first.click()
