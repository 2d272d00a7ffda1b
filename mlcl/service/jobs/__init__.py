"""Runs commands as jobs on a Ray cluster: submit, show, stop, resume."""

from mlcl.service.jobs.client import JobsClient, JobView
from mlcl.service.jobs.submit import Submission, known_submissions, resume, submit, submit_once

__all__ = ["JobView", "JobsClient", "Submission", "known_submissions", "resume", "submit", "submit_once"]
