"""`python -m octavo` is the command `octavo`."""

from octavo.cli import program

if __name__ == "__main__":
    program()
