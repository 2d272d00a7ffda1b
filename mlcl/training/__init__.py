"""Trains encoders on the objective of a job, and evaluates them. It needs neither Ray nor MLflow."""
