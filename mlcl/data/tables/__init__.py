"""One reader for files of rows as people have them: `init`, `prepare`, `check` and `predict` share it."""
