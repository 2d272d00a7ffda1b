"""Code that several sources share: distributions, reviews, clinical notes."""
