"""An MLflow server for a test."""

from contextlib import contextmanager

from patience import until

from mlcl.service.local.processes import end_processes, free_port, start_process
from mlcl.service.local.servers import mlflow_server as mlflow_of
from mlcl.service.local.settings import ServiceFolder, Settings, store_uri


@contextmanager
def mlflow_server(home):
    """Starts a server as `mlcl up` does, on SQLite; yields the server and the folder with its secrets."""
    folder = ServiceFolder(home)
    folder.make()
    settings = Settings(store_uri("sqlite", folder), str(folder.home / "artifacts"), mlflow_port=free_port())
    server = mlflow_of(settings, folder)
    server.prepare()
    process = start_process(server.command, server.environment, server.log)
    try:
        until(lambda: server.problem() is None)
        yield server, folder
    finally:
        end_processes([process])
