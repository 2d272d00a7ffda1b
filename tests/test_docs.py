"""Tests that links of the Markdown pages lead somewhere, and that files that the pages name exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(
    r"(?<![\w./~-])(?:mlcl|tests|benchmarks|tools|jobs|tables|tune_spaces|cluster|docker|examples)/"
    r"[\w./-]*(?:\.(?:py|yaml|yml|sbatch|sh)\b|\w/(?![\w{*<]))"
)
"""Matches a file of the repository, or a folder that ends with a slash."""
NOT_HERE = {"mlcl/data/sources/NAME.py", "jobs/my_texts_features.yaml"}
"""The names that are placeholders."""


def links_of(page: Path) -> list[str]:
    return LINK.findall(page.read_text())


def service_parts() -> list[str]:
    return [folder.parent.name for folder in (ROOT / "mlcl" / "service").glob("*/__init__.py")]


def anchors(text: str) -> set[str]:
    """Returns the anchors that GitHub makes of a page's headings."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = [heading.lower() for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in links_of(page):
        target, _, section = link.partition("#")
        if re.match(r"\w+:", target):
            continue
        file = page.parent / target if target else page
        assert file.exists(), link
        assert not section or section in anchors(file.read_text()), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page):
    if page.name == "CHANGELOG.md":
        return
    missing_files = {name for name in NAMED.findall(page.read_text()) if not (ROOT / name).exists()}
    assert missing_files <= NOT_HERE


def test_every_page_is_linked():
    """Every page is linked from the README, or from a page that the README links."""
    known_pages, new = set(), {ROOT / "README.md"}
    while new:
        known_pages |= new
        links = {page.parent / link.partition("#")[0] for page in new for link in links_of(page)}
        new = {link.resolve() for link in links if link.suffix == ".md" and link.exists()} - known_pages
    assert set(PAGES) <= known_pages


def test_the_architecture_names_every_package():
    page = (ROOT / "docs" / "architecture.md").read_text()
    (picture,) = re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL)
    packages = {folder.parent.name for folder in (ROOT / "mlcl").glob("*/__init__.py")}
    assert set(re.findall(r"\b[a-z]+\b", picture)) - {"flowchart"} == packages - {"testing"} | {"plugins"}
    for folder in [*packages - {"service"}, *(f"service/{part}" for part in service_parts())]:
        assert f"`mlcl/{folder}/`" in page


def test_the_python_of_the_readme_is_ten_lines_that_run():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 10
    names = {}
    exec(code, names)
    assert names["value"].item() > 0
    assert names["encoder"].weight.grad.norm() > 0


@pytest.mark.usefixtures("forgotten_plugin_files")
def test_the_plugin_of_the_page_is_a_loss_of_a_job(tmp_path):
    from mlcl.config import load_job
    from mlcl.labels import LabelRows
    from mlcl.losses import positive_weights

    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "plugins.md").read_text(), re.DOTALL)
    (tmp_path / "dice.py").write_text(code)
    job = yaml.safe_load((ROOT / "jobs" / "digits_simdis.yaml").read_text()) | {"plugins": ["dice.py"]}
    (head,) = job["objective"]["heads"].values()
    head |= {"loss": "dice", "options": {}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    load_job(tmp_path / "job.yaml")
    weights = positive_weights("dice", LabelRows.from_lists([[0, 1], [0], [2]], width=3))
    assert weights[0].tolist() == pytest.approx([0, 2 / 3, 0])


def test_the_suite_of_the_page_finds_its_loss_in_a_file(tmp_path, monkeypatch):
    from mlcl.losses import LOSSES
    from mlcl.testing import register_plugins

    page = (ROOT / "docs" / "plugins.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (suite,) = re.findall(r"```py\n(from mlcl.testing.*?)```", page, re.DOTALL)
    (tmp_path / "dice.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict = {}
    exec(suite, names)
    with register_plugins(LOSSES, names["TestDice"].modules):
        assert all(name in LOSSES for name in names["TestDice"].names)
    del sys.modules["dice"]
