"""The test suite of data sources. The author of a source writes:

    from mlcl.testing.sources import SourceTestCase, Wart

    class TestMine(SourceTestCase):
        name = "mine"
        files = {"texts.txt": "one\\ntwo\\nthree\\n", "labels.txt": "a\\nb\\na\\n"}
        warts = (
            Wart({"labels.txt": "a\\n"}, "labels.txt: fewer lines than texts"),
            Wart({"labels.txt": None}, "labels.txt"),
        )

`files` has the files of a small version of the data in their original format. If no installed package has
the source, `modules` names its module.
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
"""The content of a file; None stands for a file that does not exist."""


@dataclass(frozen=True)
class Wart:
    """Wrong files (None removes a file) or options, and a part of the error line that they must cause."""

    files: Mapping[str, Content]
    message: str
    options: Mapping[str, Any] = field(default_factory=dict)


class SourceTestCase(PluginTestCase):
    """The tests of a data source. A subclass sets `name`, and `files` if the source reads files.

    `path` is the source's option `path`, relative to the folder with the files; `options` has its other
    options. `touched` names the files whose change must change the source's state, by default all. `warts`
    are wrong inputs.
    """

    registry = SOURCES
    name: ClassVar[str] = ""
    files: ClassVar[Mapping[str, Content]] = {}
    path: ClassVar[str] = "."
    options: ClassVar[Mapping[str, Any]] = {}
    touched: ClassVar[Sequence[str] | None] = None
    warts: ClassVar[Sequence[Wart]] = ()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrises tests that take a `wart` by `warts`."""
        if "wart" in metafunc.fixturenames:
            metafunc.parametrize("wart", self.warts, ids=[wart.message for wart in self.warts])

    @pytest.fixture
    def source(self) -> Source[Any]:
        """The declaration of the source."""
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
        """The source's options as a job has them. A subclass may add options that depend on the folder."""
        return {**({"path": str(given / self.path)} if source.needs_input else {}), **self.options}

    def test_it_says_what_it_is(self, source: Source[Any]) -> None:
        """Tests that the source has title, licence and version, and an option `path` if it reads files."""
        assert source.title
        assert source.licence
        assert source.full_version()
        assert "path" in source.options.model_fields or not source.needs_input

    def test_what_it_writes_is_sound(
        self, source: Source[Any], settings: Mapping[str, Any], tmp_path: Path
    ) -> None:
        """Tests that the written data set is valid, and that the same options give the same rows."""
        folders = [tmp_path / "one", tmp_path / "two"]
        for folder in folders:
            source.write(folder, source.options(**settings), 0)
            check(folder)
        one, two = (Dataset.open(folder, verify=True).info for folder in folders)
        assert one == two
        assert one.licence

    def test_it_is_prepared_once(self, settings: Mapping[str, Any], tmp_path: Path) -> None:
        """Tests that a second call of `prepare` returns the folder of the first."""
        assert prepare(self.name, tmp_path / "home", settings) == prepare(
            self.name, tmp_path / "home", settings
        )

    def test_its_state_changes_with_each_file(
        self, source: Source[Any], given: Path, settings: Mapping[str, Any]
    ) -> None:
        """Tests that the state is JSON, changes with each file, and stays equal where nothing has changed."""
        if source.state is None:
            assert not self.files, f"{self.name} reads files, so it needs a state, see mlcl.data.Source"
            pytest.skip("reads no files")
        options = source.options(**settings)
        for name in self.files if self.touched is None else self.touched:
            old_state = json.dumps(source.state(options))
            assert json.dumps(source.state(options)) == old_state
            with (given / name).open("ab") as file:
                file.write(b"\n")
            assert json.dumps(source.state(options)) != old_state, name

    def test_an_unknown_option_is_named(self, settings: Mapping[str, Any], tmp_path: Path) -> None:
        """Tests that an unknown option raises an error that names it, before anything is written."""
        with pytest.raises(UserError, match="unknown key") as excinfo:
            prepare(self.name, tmp_path / "home", {**settings, "no_such_option": 1})
        assert excinfo.value.key == "data.options.no_such_option"
        assert not (tmp_path / "home").exists()

    def test_every_wart_gives_its_one_line(
        self, wart: Wart, given: Path, settings: Mapping[str, Any], tmp_path: Path
    ) -> None:
        """Tests that each wart raises an error with its message, and leaves no data set behind."""
        put(given, wart.files)
        with pytest.raises(UserError) as excinfo:
            prepare(self.name, tmp_path / "home", {**settings, **wart.options})
        assert wart.message in excinfo.value.line()
        assert not list(tmp_path.glob("home/*/*"))


def put(folder: Path, files: Mapping[str, Content]) -> None:
    """Writes files to a folder, and removes those whose content is None."""
    for name, content in files.items():
        file = folder / name
        if content is None:
            file.unlink()
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
