"""Where Snakemake works: it must be able to write there. Torch-free."""

import os
from collections.abc import Iterable
from pathlib import Path

from harness.core.errors import expected


def check_writable(folders: Iterable[Path]) -> None:
    """Refuse the clone of somebody else, in which Snakemake itself would end in a traceback.

    A folder that is not there yet is made in the one above.
    """
    for folder in folders:
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not os.access(there, os.R_OK | os.W_OK | os.X_OK):
            found = f"{there.absolute()}, where you may not write"
            remedy = "work in a clone of your own, or elsewhere with --directory"
            raise expected(f"a folder for {folder}", found, remedy)
