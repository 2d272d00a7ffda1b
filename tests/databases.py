"""A separate PostgreSQL server, for tests that need a real one."""

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
    """Returns the folder of PostgreSQL's programs, or None if it is not installed."""
    initdb = shutil.which("initdb")
    if initdb:
        return Path(initdb).resolve().parent
    for place in PLACES:
        folders = sorted(Path("/").glob(f"{place[1:]}/initdb"))
        if folders:
            return folders[-1].parent
    return None


@contextmanager
def postgres() -> Iterator[str]:
    """Yields the URL of a new, empty database on a server that listens only on a socket file."""
    programs = postgres_folder()
    assert programs is not None, "PostgreSQL is not installed"
    # The server refuses to run as root, and other users cannot read pytest's folder, so it has its own.
    with tempfile.TemporaryDirectory(prefix="mlcl-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        user = "nobody" if os.getuid() == 0 else None
        (folder / "password").write_text(PASSWORD)
        if user:
            shutil.chown(folder, user)
            shutil.chown(folder / "password", user)
        data = str(folder / "data")

        def run(*command: str) -> None:
            # The server would inherit pipes and keep them open.
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
