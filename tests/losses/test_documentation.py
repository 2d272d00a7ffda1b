"""Tests that the code in docs/losses runs, that its names exist and that its facts hold."""

import contextlib
import io
import re
import socket
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from losses.documented_ranks import work
from losses.oracles import ORACLES

from mlcl.labels import LabelRows
from mlcl.losses import LOSSES, build_loss, positive_weights
from mlcl.testing.ranks import run_ranks

ROOT = Path(__file__).resolve().parents[2]
PAGES = {page.name: page.read_text() for page in sorted((ROOT / "docs" / "losses").glob("*.md"))}
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(*block, id=f"{name}-{number}")
    for name, page in PAGES.items()
    for number, block in enumerate(BLOCK.findall(page))
]
TESTS = [(name, *test) for name in PAGES for test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGES[name])]
WITH_RANKS = "init_process_group"
INDEX = {
    name: (page, *cells)
    for name, page, cells_text in re.findall(
        r"^\| \[`(\w+)`\]\((.+\.md)\) \|(.*) \|$", PAGES["README.md"], re.MULTILINE
    )
    for cells in [[cell.strip() for cell in cells_text.split("|")]]
}
"""The page of each loss, and the cells after its name: what attracts, labels, paper and year, verdict."""


@pytest.mark.parametrize(("code", "printed"), [b for b in BLOCKS if WITH_RANKS not in b.values[0]])
def test_a_block_runs_and_prints_what_is_said(code, printed):
    torch.manual_seed(0)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, {"__name__": "__main__"})
    assert output.getvalue() == printed


def test_the_block_with_processes_gives_the_loss_of_all_rows():
    (code,) = [b.values[0] for b in BLOCKS if WITH_RANKS in b.values[0]]
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    answers = run_ranks(work, (2, port, code), 2)
    shares = [answer["share"] for answer in answers]
    assert sum(shares) / 2 == pytest.approx(answers[0]["whole"], rel=1e-5)
    assert answers[0]["whole"] == pytest.approx(answers[1]["whole"], rel=1e-5)


def test_the_index_has_every_loss_the_labels_it_reads_its_paper_and_year():
    assert sorted(INDEX) == list(LOSSES)
    for name, spec in LOSSES.items():
        _, _, labels, paper, _ = INDEX[name]
        assert labels == f"`{spec.labels}`"
        assert re.fullmatch(rf"(\d{{4}}\.\d{{5}}|AAAI|ACL), {spec.year}", paper)
        for number in re.findall(r"\d{4}\.\d{5}", spec.source):
            assert paper.startswith(number)


def test_the_verdicts_of_the_index_are_those_of_the_leaderboard():
    board = ROOT / "docs" / "leaderboard"
    rows = (board / "data-sets.md").read_text().replace("supcon and global (MLCL)", "jaccard").splitlines()
    board_page = (board / "README.md").read_text()
    for name in LOSSES:
        verdict_counts = Counter(row.split("|")[4] for row in rows if row.startswith(f"|{name}|"))
        summary = ", ".join(f"{verdict} ({count})" for verdict, count in verdict_counts.most_common())
        measured = re.search(rf"^\| ?{name} ?\|", board_page, re.MULTILINE) is not None
        verdict = INDEX[name][4]
        assert verdict == summary or (not summary and (verdict == "not measured") is not measured)


@pytest.mark.parametrize("name", list(LOSSES))
def test_the_page_of_a_loss_names_it_and_its_options(name):
    page = PAGES[INDEX[name][0]]
    assert f"`{name}`" in page
    for option in LOSSES[name].options:
        assert re.search(rf"`{option}[`=]", page)


@pytest.mark.parametrize(("name", "file", "test"), TESTS)
def test_tests_that_a_page_names_exist(name, file, test):
    assert f"def {test}(" in (ROOT / file).read_text()


@pytest.mark.parametrize(
    ("name", "samples", "views", "weight"), [("knn", 64, 1, 0.1), ("supcon", 8, 2, 0.03)]
)
def test_a_weight_on_the_sum_is_b_times_larger_on_the_mean(name, samples, views, weight, make):
    """The objective is L = L_BCE + g sum_i L_i, with the sum of the papers and with mlcl's reductions."""
    rows = make(samples=samples, views=views)
    linear = torch.randn(rows.z.shape[1], rows.width, dtype=torch.float64)
    targets = LabelRows.from_lists([sorted(s) for s in rows.sets], rows.width).dense(torch.float64)

    def objective(reduction, factor):
        z = rows.z.clone().requires_grad_()
        bce = F.binary_cross_entropy_with_logits(z @ linear, targets)
        loss = build_loss(name, temperature=0.5, reduction=reduction)
        value = bce + factor * loss(z, rows.labels(name))
        return bce.detach(), value.detach(), torch.autograd.grad(value, z)[0]

    count = samples * views
    bce, total, gradient = objective("sum", weight)
    _, mean_total, mean_gradient = objective("mean", weight * count)
    _, small_total, _ = objective("mean", weight)
    paper_total = bce + weight * sum(ORACLES[name](rows.z.tolist(), rows.plain_labels(name), 0.5))
    torch.testing.assert_close(total, paper_total, rtol=1e-12, atol=0)
    torch.testing.assert_close(mean_total, total, rtol=1e-12, atol=0)
    torch.testing.assert_close(mean_gradient, gradient, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(small_total - bce, (total - bce) / count, rtol=1e-9, atol=0)


def test_himulcon_is_one_supcon_a_level():
    """The label of a level determines the coarser labels."""
    fine_labels = torch.tensor([0, 0, 1, 2, 3, 3, 4])
    coarse_labels = fine_labels // 2
    w = positive_weights("himulcon", torch.stack([coarse_labels, fine_labels], 1), level_weights=[1.0, 3.0])
    parts = [positive_weights("supcon", level) for level in (coarse_labels, fine_labels)]
    assert torch.allclose(w, (1.0 * parts[0] + 3.0 * parts[1]) / 2)


def test_the_changelog_and_the_readme_name_every_loss():
    for file in ("README.md", "CHANGELOG.md"):
        assert set(LOSSES) <= set(re.findall(r"\w+", (ROOT / file).read_text()))
