"""What pyproject.toml cannot say: a wheel also holds the files outside of packages that the code reads.

They lie in harness/shipped, in the same folders as here (`ROOT` in harness/core/config.py), beside the
commit that they are of. A link to this folder (`pip install -e`) needs none of it.
"""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
SHIPPED = ("Snakefile", "config/**/*.yaml", "workflow/**/*", "reports/published/*.csv", "docs/*.csv")


class WithFiles(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "harness" / "shipped"
        shutil.rmtree(target, ignore_errors=True)
        for path in (path for pattern in SHIPPED for path in HERE.glob(pattern) if path.is_file()):
            copy = target / path.relative_to(HERE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        sys.path.insert(0, str(HERE))
        from harness.core.process import commit

        (target / "COMMIT").write_text(commit() + "\n")


setup(cmdclass={"build_py": WithFiles})
