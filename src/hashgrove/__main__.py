"""``python -m hashgrove`` is the command ``hashgrove``."""

from hashgrove.cli import main

if __name__ == "__main__":
    main(prog_name="hashgrove")
