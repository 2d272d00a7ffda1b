"""The local service: a Ray head and an MLflow server on this machine, with their state in one folder."""
