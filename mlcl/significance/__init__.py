"""Statistical tests of whether one setting or method is better than another."""
