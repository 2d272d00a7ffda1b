"""Whether one setting or method is better than another: paired tests, ranks, models against baselines."""
