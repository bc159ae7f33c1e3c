"""The clone of another user, a copy in another repository, folders where one may not write."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ENVIRONMENT
from conftest import ROOT

from harness.core.errors import UserError
from harness.data import load
from harness.jobs.workplace import check_writable

NOBODY = 65534
ASK = "from harness.core.process import provenance; print(provenance()['commit'])"
GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]


def clone(folder: Path) -> Path:
    """A repository with a copy of the code in it, and one commit."""
    shutil.copytree(ROOT / "harness", folder / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*GIT, *words], cwd=folder, check=True)
    return folder


def commit(folder: Path, **variables: str) -> str:
    environment = {**os.environ, **ENVIRONMENT, **variables, "PYTHONPATH": str(folder)}
    words = [sys.executable, "-B", "-c", ASK]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def head(folder: Path) -> str:
    words = [*GIT, "-c", f"safe.directory={folder}", "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def test_the_commit_is_that_of_the_clone(tmp_path):
    own = clone(tmp_path / "own")
    other = clone(tmp_path / "other")
    (other / "README.md").write_text("another commit")
    for words in (["add", "-A"], ["commit", "-qm", "more"]):
        subprocess.run([*GIT, *words], cwd=other, check=True)
    assert head(own) != head(other)
    hook = {"GIT_DIR": str(other / ".git"), "GIT_INDEX_FILE": str(other / ".git" / "index")}
    assert commit(own, **hook) == commit(own) == head(own)
    (own / "harness" / "__init__.py").write_text("changed = True\n")
    assert commit(own) == f"{head(own)}+"


def test_a_copy_in_another_repository_has_no_commit(tmp_path):
    outer = clone(tmp_path / "outer")
    inner = outer / "vendor"
    shutil.copytree(ROOT / "harness", inner / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    assert commit(inner) == "unknown"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_commit_of_another_users_clone(tmp_path):
    own = clone(tmp_path / "own")
    known = commit(own)
    for path in [own, *own.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    assert commit(own) == known


def refusal(act) -> str:
    """What is said to somebody who may not write here: root may write everywhere, so becomes nobody."""
    if os.geteuid() != 0:
        with pytest.raises(UserError) as error:
            act()
        return str(error.value)
    receiver, sender = os.pipe()
    if (child := os.fork()) == 0:
        said = "no refusal"
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            act()
        except UserError as error:
            said = str(error)
        except BaseException as error:
            said = repr(error)
        os.write(sender, json.dumps(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return json.loads(os.read(receiver, 10_000))


@pytest.fixture
def read_only(tmp_path):
    """A folder of another user, in which the tester may only read."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith(("pytest-", "popen-", "test_")):  # pytest's own, with xdist too
            folder.chmod(0o755)
    own = tmp_path / "theirs"
    own.mkdir()
    own.chmod(0o555)
    yield own
    own.chmod(0o755)


def test_snakemake_does_not_start_where_it_may_not_write(read_only, monkeypatch):
    monkeypatch.chdir(read_only)
    said = refusal(lambda: check_writable([Path(".snakemake"), Path("results")]))
    assert said.startswith(f"expected a folder for .snakemake, found {read_only}, where you may not")
    check_writable([read_only.parent / "results"])


def test_a_cache_of_another_user(read_only, monkeypatch):
    load("digits", "test")
    monkeypatch.setenv("GENERALIST_CACHE", str(read_only))
    said = refusal(lambda: load("digits-c/fog/3", "test"))
    assert "set GENERALIST_CACHE to a folder of your own" in said
