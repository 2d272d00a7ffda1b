"""Space files: the keys of a job that a search varies, checked against the job before anything starts."""
