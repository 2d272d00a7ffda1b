"""Tests that Sphinx builds the site of the docs without a warning, so that it has no dead link."""

import pytest
from sphinx.cmd.build import build_main


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(root, tmp_path):
    site = tmp_path / "site"
    settings = [str(word) for word in ("-q", "-W", "--keep-going", "-c", root / "docs" / "site")]
    assert build_main([*settings, "-d", str(tmp_path / "read"), str(root), str(site)]) == 0
    assert "Similarity-Dissimilarity" in (site / "docs" / "losses" / "multi-label.html").read_text()
    assert "mlcl.losses.build_loss" in (site / "docs" / "site" / "api.html").read_text()
    address = (site / "index.html").read_text().split("url=")[1].split('"')[0]
    assert (site / address).exists()
