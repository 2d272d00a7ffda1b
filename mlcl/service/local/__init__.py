"""The local service: a Ray head and an MLflow server for this machine, with their state in one folder."""
