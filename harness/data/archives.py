"""Downloaded archives: checked before they are opened, unpacked only below their folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from pathlib import Path

from harness.core.errors import UserError


def check_md5(archive: Path, md5: str) -> None:
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "md5").hexdigest()
    if found != md5:
        raise UserError(
            f"expected {archive} with the md5 {md5}, found {found}; delete it and fetch it again."
        )


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar into `folder`, which appears whole or not at all."""
    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        with tarfile.open(archive) as tar:
            members = tar.getmembers()
            for member in members:
                _refuse_escape(archive, member)
            # Python has this filter from 3.11.4 on; before, `_refuse_escape` alone protects.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(aside, members)
        os.replace(aside, folder)
    except (tarfile.TarError, EOFError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")  # a list of what it tried follows
        raise UserError(
            f"expected a whole archive in {archive}, found one that cannot be unpacked ({reason}); "
            f"delete it and fetch it again."
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _refuse_escape(archive: Path, member: tarfile.TarInfo) -> None:
    path = Path(member.name)
    if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
        raise UserError(
            f"expected only files below its own folder in {archive}, found {member.name!r}; "
            f"delete it and fetch it from its official address."
        )
