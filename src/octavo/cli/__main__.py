"""`python -m octavo.cli` is the command `octavo`."""

from octavo.cli import main

if __name__ == "__main__":
    main()
