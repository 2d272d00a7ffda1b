"""`mlcl jobs`: lists and copies the packaged jobs, spaces, tables and cluster files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlcl.cli.options import Json
from mlcl.cli.output import answer, boxed_table
from mlcl.config.packaged import FOLDERS, PackagedFile, packaged_files, packaged_root, with_references
from mlcl.errors import UserError, did_you_mean
from mlcl.files import replace_text

app = typer.Typer(help="List or copy the packaged jobs, spaces, tables and cluster files.")


@app.callback(invoke_without_command=True)
def list_files(context: typer.Context, json: Json = False) -> None:
    """List packaged jobs, spaces, tables and cluster files. Commands accept the names of the first three."""
    if context.invoked_subcommand is not None:
        return
    files = _known_files()
    rows = [(file.kind, file.name, file.about) for file in files.values()]
    tree = {
        name: {"kind": file.kind, "about": file.about, "file": str(file.display_path)}
        for name, file in files.items()
    }
    answer(tree, boxed_table(("kind", "name", "about"), rows, fold=True), as_json=json)


@app.command(epilog="Example: mlcl jobs copy icd10cm_features")
def copy(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of `mlcl jobs`.")],
    to: Annotated[Path, typer.Option(help="The folder, which gets jobs/, tables/ and so on.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that differ.")] = False,
    json: Json = False,
) -> None:
    """Copy packaged files, and the packaged files that they name, so that you can change them."""
    known_files, root = _known_files(), packaged_root()
    for name in names:
        if name not in known_files:
            problem = f"no packaged file of this name{did_you_mean(name, known_files)}"
            raise UserError(problem, key="NAME", found=name, allowed="a name of `mlcl jobs`")
    sources = dict.fromkeys(file for name in names for file in with_references(known_files[name].path))
    targets = {to / source.relative_to(root): source.read_text(encoding="utf-8") for source in sources}
    for target, text in targets.items():
        if target.exists() and not force and not (target.is_file() and target.read_bytes() == text.encode()):
            raise UserError(
                "already exists with other content", file=target, allowed="another --to, or --force"
            )
    for target, text in targets.items():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_text(target, text)
        except OSError as error:
            raise UserError("cannot be written", file=target, key="--to", found=error) from None
    files = [str(target) for target in targets]
    answer({"files": files}, *files, as_json=json)


def _known_files() -> dict[str, PackagedFile]:
    return {name: file for kind in FOLDERS for name, file in packaged_files(kind).items()}
