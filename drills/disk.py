"""A full disk at a random moment of a training, an evaluation, a table, the page.

Uses a small tmpfs where mounting is allowed; elsewhere a limit on the size of a file, which causes a
similar error.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drills import Attempt, Try, demand
from drills.commands import Done, command, said, sentence
from drills.ground import TABLE, Ground
from harness.core import paths

_SIZE = 8 * 2**20
_MOST = {"train": 120_000, "evaluate": 30_000, "table": 8_000, "page": 40_000}  # bytes left free


class Disk:
    def __init__(self, folder: Path) -> None:
        self.folder, self.limit = folder, resource.RLIM_INFINITY
        words = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(folder)]
        allowed = os.geteuid() == 0
        self.mounted = allowed and subprocess.run(words, capture_output=True).returncode == 0

    def fill(self, free: int) -> None:
        if not self.mounted:
            self.limit = free
            return
        room = shutil.disk_usage(self.folder).free
        (self.folder / "filler").write_bytes(b"\0" * max(0, room - free))

    def make_room(self) -> None:
        self.limit = resource.RLIM_INFINITY
        (self.folder / "filler").unlink(missing_ok=True)

    def run(self, *words: str) -> Done:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, self.limit))

        return command(*words, cwd=self.folder, preexec_fn=limit)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


@contextmanager
def disk(folder: Path) -> Iterator[Disk]:
    own = Disk(folder)
    try:
        yield own
    finally:
        own.close()


def full(ground: Ground) -> Attempt:
    """a full disk, in a training, an evaluation, a table, the page"""
    run = ground.run_of("at")
    common = ("--scale", "ci", "--grid", str(ground.grid))
    stages = {
        "train": ("harness", "train", "--run", run.id, *common),
        "evaluate": ("harness", "evaluate", "--run", run.id, *common),
        "table": ("harness", "tables", "--artefact", TABLE, *common),
        "page": ("harness", "page", *common),
    }

    def prepare(stage: str, folder: Path) -> None:
        """Copy what the stage needs; for reports also a good report, which must not be lost."""
        if stage == "evaluate":
            place = paths.model(Path("results"), run.id).parent
            shutil.copytree(ground.built / place, folder / place)
        elif stage != "train":
            ground.copy(folder)

    def check(stage: str, folder: Path) -> None:
        if stage == "train":
            ground.check_weights(run, folder)
        elif stage == "evaluate":
            ground.check_records(run, folder)
        else:
            ground.check_tables(folder)
            page = (folder / "reports" / "ci" / "index.html").read_text()
            demand(page.rstrip().endswith("</html>"), "half a page")

    def attempt(this: Try) -> str:
        stage = list(stages)[this.number % len(stages)]
        with disk(this.folder) as own:
            prepare(stage, this.folder)
            own.fill(this.random.randrange(_MOST[stage]))
            done = own.run(*stages[stage])
            refused = done.returncode != 0
            if refused:
                sentence(done)
                left = [path.name for path in this.folder.rglob(".*.part")]
                demand(not left, f"left over: {left}")
                if stage in ("table", "page"):
                    check(stage, this.folder)  # the good ones are still there
            own.make_room()
            done = own.run(*stages[stage])
            demand(done.returncode == 0, f"not even with room: {said(done)}")
            check(stage, this.folder)
        return f"{stage} {'refused, right with room' if refused else 'fitted'}"

    return attempt
