"""Python imports this at its start where this folder is in PYTHONPATH: the processes of the rehearsal."""

import os
import sys

from pretend_cuda import LIBRARY, BeforeTorch

if LIBRARY in os.environ:
    sys.meta_path.insert(0, BeforeTorch())
