"""`python -m mlcl` is `mlcl`."""

from mlcl.cli.main import main

if __name__ == "__main__":
    main()
