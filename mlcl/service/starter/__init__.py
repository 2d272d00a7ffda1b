"""The files that `mlcl init` writes: a job and a space that fit a file of data, by rules that it prints."""
