"""`make test-device`: the tests of this folder on a pretend GPU, for which a CPU and g++ are enough.

Every process has the device: pytest, where most checks run, and the commands that some of them start.
"""

import os
import subprocess
import sys
from pathlib import Path

from pretend_cuda import LIBRARY, build, lacking

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def main() -> int:
    if why := lacking():
        print(f"SKIPPED the pretend device: {why}")
        return 0
    own = {LIBRARY: str(build()), "PYTHONPATH": f"{HERE}:{ROOT}", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **own}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    words = [sys.executable, "-m", "pytest", "-vv", *sys.argv[1:], str(HERE)]
    return subprocess.call(words, cwd=ROOT, env=environment)


if __name__ == "__main__":
    sys.exit(main())
