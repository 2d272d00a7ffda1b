"""A stand-in for Ray's jobs server behind its client: it keeps the submitted jobs and runs nothing."""

from pathlib import Path
from types import SimpleNamespace

import ray.job_submission


class Cluster:
    """A stand-in for Ray's client, with the jobs by their submission ids."""

    def __init__(self):
        self.jobs, self.error, self.headers, self.stopped = {}, None, None, []

    def __call__(self, address, headers=None):
        self.address, self.headers = address, headers
        return self

    def submit_job(self, *, entrypoint, submission_id, runtime_env, metadata):
        if self.error:
            raise self.error
        assert submission_id not in self.jobs
        files = {
            str(f.relative_to(runtime_env["working_dir"]))
            for f in Path(runtime_env["working_dir"]).rglob("*")
        }
        self.jobs[submission_id] = SimpleNamespace(
            submission_id=submission_id, entrypoint=entrypoint, runtime_env=runtime_env, metadata=metadata,
            status=SimpleNamespace(value="RUNNING"), driver_exit_code=None, start_time=1000, end_time=None,
            message="", files=files,
        )  # fmt: skip

    def list_jobs(self):
        if self.error:
            raise self.error
        foreign_job = SimpleNamespace(submission_id="raysubmit_1", metadata={})
        return [foreign_job, *self.jobs.values()]

    def get_job_logs(self, id):
        return f"log of {id}\n"

    async def tail_job_logs(self, id):
        yield f"log of {id}\n"
        self.end(id, "SUCCEEDED", 0)
        yield "its end\n"

    def stop_job(self, id):
        self.stopped.append(id)
        self.end(id, "STOPPED")

    def end(self, id, status, code=None):
        job = self.jobs[id]
        job.status, job.driver_exit_code, job.end_time = SimpleNamespace(value=status), code, 61_000


def enter_workdir(monkeypatch):
    """Replaces Ray's client by a new `Cluster` during a test, and returns the cluster."""
    cluster = Cluster()
    monkeypatch.setattr(ray.job_submission, "JobSubmissionClient", cluster)
    return cluster
