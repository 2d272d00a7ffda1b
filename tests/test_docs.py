"""The Markdown pages: links lead somewhere, and files that they name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(
    r"(?<![\w./~-])(?:mlcl|tests|benchmarks|tools|jobs|tables|tune_spaces|cluster|docker|examples)/"
    r"[\w./-]*(?:\.(?:py|yaml|yml|sbatch|sh)\b|\w/(?![\w{*<]))"
)
"""A file of the repository, or a folder with its slash behind it."""
NOT_HERE = {"mlcl/data/sources/NAME.py", "cluster/lab.yaml"}
"""Names that stand for others."""


def links_of(page: Path) -> list[str]:
    return LINK.findall(page.read_text())


def anchors(text: str) -> set[str]:
    """Those that GitHub makes of a page's headings."""
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
    missing = {name for name in NAMED.findall(page.read_text()) if not (ROOT / name).exists()}
    assert missing <= NOT_HERE


def test_every_page_is_linked():
    """From the README, or from a page that the README links."""
    known, new = set(), {ROOT / "README.md"}
    while new:
        known |= new
        links = {page.parent / link.partition("#")[0] for page in new for link in links_of(page)}
        new = {link.resolve() for link in links if link.suffix == ".md" and link.exists()} - known
    assert set(PAGES) <= known


def test_the_picture_of_the_packages_names_them_and_the_layers_of_the_import_checks():
    page = (ROOT / "docs" / "architecture.md").read_text()
    (picture,) = re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL)
    packages = {folder.parent.name for folder in (ROOT / "mlcl").glob("*/__init__.py")}
    assert set(re.findall(r"\b[a-z]+\b", picture)) - {"flowchart"} == packages | {"plugins"}
    for folder in [*packages - {"service"}, *(f"service/{part}" for part in service_parts())]:
        assert f"`mlcl/{folder}/`" in page


def service_parts() -> list[str]:
    return [folder.parent.name for folder in (ROOT / "mlcl" / "service").glob("*/__init__.py")]
