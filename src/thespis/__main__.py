"""`python -m thespis` is the command `thespis`."""

import sys

from thespis.cli import main

if __name__ == "__main__":
    sys.exit(main())
