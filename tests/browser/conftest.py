"""Chromium, and the pages of a sweep as `mlcl up` serves them.

`MLCL_PICTURES=FOLDER` takes pictures of the pages; `MLCL_PICTURES_HOME=HOME` takes them of the last complete
sweep of that home.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest
from browser.pages import Pages
from builders import tiny_job
from e2e.conftest import Cli
from mlflow import MlflowClient
from mlflow.entities import Run
from PIL import Image
from playwright.sync_api import Browser, expect, sync_playwright
from reproduced import Tables
from sweeps import World

from mlcl.service.local.processes import free_port
from mlcl.service.local.settings import ServiceFolder, read_secret

MILLISECONDS = 120_000
"""The most milliseconds that a page may take, so that a test that waits in vain fails soon."""
NAMES = ("chromium", "chromium-browser", "google-chrome")
SPACE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  objective.heads.*.weight: {simplex: {total: [0.1, 0.6]}}
search: {scheduler: none}
"""


@dataclass(frozen=True)
class Served:
    """A sweep, a table, and the server that shows them."""

    url: str
    login: dict[str, str]
    cli: Cli
    client: MlflowClient
    experiment: str
    sweep: Run
    trials: list[Run]
    table: Run | None


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Yields the Chromium that is installed on the system."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} is on the PATH, and CHROMIUM is not set")
    # Chromium's own sandbox does not start for root.
    sandbox = [] if os.getuid() else ["--no-sandbox"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=sandbox)
        yield browser
        browser.close()


@contextmanager
def service(cli: Cli) -> Iterator[dict[str, str]]:
    """Runs `mlcl up` and yields its output; runs `mlcl down` afterwards."""
    ports = {option: str(free_port()) for option in ("--ray-port", "--dashboard-port", "--mlflow-port")}
    try:
        answer = cli("up", *(word for pair in ports.items() for word in pair), "--json", "--home", cli.home)
        assert answer.status == 0, answer.err
        yield answer.json
    finally:
        cli("down", "--force", "--home", cli.home)


def latest(client: MlflowClient, kind: str) -> Run | None:
    """Returns the latest complete sweep or table."""
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    filter_string = f"tags.`mlcl.kind` = '{kind}' and tags.`mlcl.state` = 'COMPLETE'"
    return next(iter(client.search_runs(experiments, filter_string, order_by=["start_time DESC"])), None)


def read(cli: Cli, url: str, login: dict[str, str]) -> Served:
    """Returns the runs of the latest sweep and table of a store, with the server's address and login."""
    client = MlflowClient(url)
    sweep = latest(client, "sweep")
    assert sweep is not None
    filter_string = f"tags.`mlflow.parentRunId` = '{sweep.info.run_id}' and tags.`mlcl.kind` = 'trial'"
    trials = client.search_runs([sweep.info.experiment_id], filter_string)
    experiment = client.get_experiment(sweep.info.experiment_id).name
    return Served(url, login, cli, client, experiment, sweep, list(trials), latest(client, "table"))


@pytest.fixture(scope="module")
def served(chromium, tmp_path_factory, tiny) -> Iterator[Served]:
    """Runs a small sweep and a table that log to the server as a user's do, and yields them."""
    cli = Cli(tmp_path_factory.mktemp("served"), tiny)
    pictures_home = os.environ.get("MLCL_PICTURES_HOME")
    cli.home = Path(pictures_home).resolve() if pictures_home else cli.home
    with service(cli) as urls, pytest.MonkeyPatch.context() as patch:
        folder = ServiceFolder(cli.home)
        login = {
            "username": read_secret(folder.mlflow_user),
            "password": read_secret(folder.mlflow_password),
        }
        patch.setenv("MLFLOW_TRACKING_URI", urls["mlflow"])
        for key, value in login.items():
            patch.setenv(f"MLFLOW_TRACKING_{key.upper()}", value)
        if not pictures_home:
            with pytest.MonkeyPatch.context() as world_patch:
                world = World(cli.home, world_patch, urls["mlflow"])
                world.run(world.plan(tiny_job(tiny), SPACE, trials=5, seeds=1))
            with pytest.MonkeyPatch.context() as table_patch:
                tables = Tables(cli.home, table_patch, tiny, urls["mlflow"])
                tables.run(tables.plan())
        yield read(cli, urls["mlflow"], login)


@contextmanager
def visit(chromium: Browser, login: dict[str, str] | None):
    """Yields a page of a browser without history."""
    context = chromium.new_context(http_credentials=login, viewport={"width": 1360, "height": 900})
    context.set_default_timeout(MILLISECONDS)
    expect.set_options(timeout=MILLISECONDS)
    try:
        yield context.new_page()
    finally:
        context.close()


@pytest.fixture
def pages(chromium, served) -> Iterator[Pages]:
    """Yields a logged-in page of MLflow."""
    with visit(chromium, served.login) as page:
        yield Pages(page, served.url)


@pytest.fixture
def picture(pages):
    """Returns a function that saves a picture of the page in 256 colours, if pictures are wanted."""

    def take(name: str) -> None:
        if folder := os.environ.get("MLCL_PICTURES"):
            shot = Image.open(BytesIO(pages.page.screenshot())).convert("RGB")
            shot.quantize(256, dither=Image.Dither.NONE).save(Path(folder) / f"{name}.png", optimize=True)

    return take
