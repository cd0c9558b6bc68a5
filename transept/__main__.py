"""``python -m transept``: the command line."""

import sys

from transept.cli import main

sys.exit(main())
