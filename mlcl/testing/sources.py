"""The tests that every data source passes. The author of a source writes:

    from mlcl.testing.sources import SourceTestCase, Wart

    class TestMine(SourceTestCase):
        name = "mine"
        files = {"texts.txt": "one\\ntwo\\nthree\\n", "labels.txt": "a\\nb\\na\\n"}
        warts = (
            Wart({"labels.txt": "a\\n"}, "labels.txt: fewer lines than texts"),
            Wart({"labels.txt": None}, "labels.txt"),
        )

`files` are a small distribution in its real form. `modules` registers a source that is in no installed
package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mlcl.data import SOURCES, Dataset, Source, prepare
from mlcl.data.validation import check
from mlcl.errors import UserError
from mlcl.testing import PluginTestCase

Content = str | bytes | None
"""The content of a file; None for no such file."""


@dataclass(frozen=True)
class Wart:
    """Wrong files or options, and a part of the error's line."""

    files: Mapping[str, Content]
    message: str
    options: Mapping[str, Any] = field(default_factory=dict)


class SourceTestCase(PluginTestCase):
    """The tests; a subclass sets `name`, and `files` for a source that reads some.

    `path` is the option of this name, relative to the folder with the files; `options` are the others.
    `touched` are the files whose change changes the data, by default all.
    """

    registry = SOURCES
    name: ClassVar[str] = ""
    files: ClassVar[Mapping[str, Content]] = {}
    path: ClassVar[str] = "."
    options: ClassVar[Mapping[str, Any]] = {}
    touched: ClassVar[Sequence[str] | None] = None
    warts: ClassVar[Sequence[Wart]] = ()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrises a test by wart."""
        if "wart" in metafunc.fixturenames:
            metafunc.parametrize("wart", self.warts, ids=[wart.message for wart in self.warts])

    @pytest.fixture
    def source(self) -> Source[Any]:
        """Its declaration."""
        return SOURCES[self.name]

    @pytest.fixture
    def given(self, tmp_path: Path) -> Path:
        """The folder with `files`. A subclass may write the files in another way."""
        folder = tmp_path / "given"
        folder.mkdir()
        put(folder, self.files)
        return folder

    @pytest.fixture
    def settings(self, source: Source[Any], given: Path) -> dict[str, Any]:
        """The options as in a job. A subclass may add options that depend on the folder."""
        return {**({"path": str(given / self.path)} if source.needs_input else {}), **self.options}

    def test_it_says_what_it_is(self, source: Source[Any]) -> None:
        """Title, licence and version; a source that reads files names them by `path`."""
        assert source.title
        assert source.licence
        assert source.full_version()
        assert "path" in source.options.model_fields or not source.needs_input

    def test_what_it_writes_is_sound(
        self, source: Source[Any], settings: Mapping[str, Any], tmp_path: Path
    ) -> None:
        """The check of a data set passes, and the same options give the same rows."""
        folders = [tmp_path / "one", tmp_path / "two"]
        for folder in folders:
            source.write(folder, source.options(**settings), 0)
            check(folder)
        one, two = (Dataset.open(folder, verify=True).info for folder in folders)
        assert one == two
        assert one.licence

    def test_it_is_prepared_once(self, settings: Mapping[str, Any], tmp_path: Path) -> None:
        """A second call finds the folder of the first."""
        assert prepare(self.name, tmp_path / "home", settings) == prepare(
            self.name, tmp_path / "home", settings
        )

    def test_its_state_changes_with_each_file(
        self, source: Source[Any], given: Path, settings: Mapping[str, Any]
    ) -> None:
        """The state is plain data, and equal where nothing has changed."""
        if source.state is None:
            pytest.skip("reads no files")
        options = source.options(**settings)
        for name in self.files if self.touched is None else self.touched:
            before = json.dumps(source.state(options))
            assert json.dumps(source.state(options)) == before
            with (given / name).open("ab") as file:
                file.write(b"\n")
            assert json.dumps(source.state(options)) != before, name

    def test_an_unknown_option_is_named(self, settings: Mapping[str, Any], tmp_path: Path) -> None:
        """Before anything is written."""
        with pytest.raises(UserError, match="unknown key") as caught:
            prepare(self.name, tmp_path / "home", {**settings, "no_such_option": 1})
        assert caught.value.key == "data.options.no_such_option"
        assert not (tmp_path / "home").exists()

    def test_every_wart_gives_its_one_line(
        self, wart: Wart, given: Path, settings: Mapping[str, Any], tmp_path: Path
    ) -> None:
        """No data set is left behind."""
        put(given, wart.files)
        with pytest.raises(UserError) as caught:
            prepare(self.name, tmp_path / "home", {**settings, **wart.options})
        assert wart.message in caught.value.line()
        assert not list(tmp_path.glob("home/*/*"))


def put(folder: Path, files: Mapping[str, Content]) -> None:
    """Writes files, or removes those without content."""
    for name, content in files.items():
        file = folder / name
        if content is None:
            file.unlink()
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
