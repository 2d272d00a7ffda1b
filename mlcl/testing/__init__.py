"""Suites of tests for authors of plugins, run by pytest: every built-in plugin passes them too."""
