"""Python imports this at its start, in all processes that have this folder in PYTHONPATH."""

import os
import sys

from pretend_cuda import LIBRARY, BeforeTorch

if LIBRARY in os.environ:
    sys.meta_path.insert(0, BeforeTorch())
