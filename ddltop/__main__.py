"""`python -m ddltop`."""

import sys

from ddltop.cli.main import main

sys.exit(main())
