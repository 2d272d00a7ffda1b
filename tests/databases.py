"""A PostgreSQL server of one's own, for tests that need a real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER, PASSWORD = "mlcl", "s3cret"
PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")


def postgres_folder() -> Path | None:
    """The folder of PostgreSQL's programs; None where it is not installed."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    for place in PLACES:
        folders = sorted(Path("/").glob(f"{place[1:]}/initdb"))
        if folders:
            return folders[-1].parent
    return None


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a new, empty database that is gone afterwards. It listens on a socket file alone."""
    programs = postgres_folder()
    assert programs is not None, "PostgreSQL is not installed"
    # Not pytest's folder: the server refuses to run as root, and nobody else may look into that one.
    with tempfile.TemporaryDirectory(prefix="mlcl-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        user = "nobody" if os.getuid() == 0 else None
        (folder / "password").write_text(PASSWORD)
        if user:
            shutil.chown(folder, user)
            shutil.chown(folder / "password", user)
        data = str(folder / "data")

        def run(*command: str) -> None:
            # No pipes: the server would inherit and hold them.
            with (folder / "log").open("a") as log:
                subprocess.run(
                    [str(programs / command[0]), *command[1:]],
                    check=True,
                    user=user,
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )

        login = ("-U", USER, "--auth=scram-sha-256", f"--pwfile={folder / 'password'}")
        run("initdb", "-D", data, *login, "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        run("pg_ctl", "-D", data, "-w", "-t", "120", "-o", options, "start")
        try:
            yield f"postgresql+psycopg://{USER}:{PASSWORD}@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
