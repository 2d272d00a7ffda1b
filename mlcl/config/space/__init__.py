"""Reads space files, which name the keys that a search varies, and checks them against a job."""
