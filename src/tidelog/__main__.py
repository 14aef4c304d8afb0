"""`python -m tidelog`: the same as the command `tidelog`."""

import sys

from tidelog.tools.cli.main import main

sys.exit(main())
