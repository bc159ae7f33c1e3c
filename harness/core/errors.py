"""Errors that a user can fix: what was expected, what was found, what to do, in one sentence."""

import os
import signal
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches

from harness.core import process

_MANY = 40  # names that nobody wants to read


class UserError(Exception):
    """An error that a user can fix; commands print it without a traceback and exit with 2."""


def expected(what: str, found: object, remedy: str) -> UserError:
    """The error `expected <what>, found <found>; <remedy>.`"""
    return UserError(f"expected {what}, found {found!s}; {remedy}{'' if remedy[-1] == '?' else '.'}")


def unknown(kind: str, found: object, known: Iterable[str], where: str) -> UserError:
    """The error for a name that is not known, with the nearest one."""
    return UserError(f"expected a known {kind} in {where}, found {found!r}; {nearest(found, known)}")


def nearest(found: object, known: Iterable[object]) -> str:
    """The remedy for a name that is not known: the nearest one, or all; of many, the nearest three."""
    names = sorted(str(name) for name in known)
    near = get_close_matches(str(found), names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    if len(names) > _MANY:
        three = get_close_matches(str(found), names, n=3, cutoff=0)
        return f"of {len(names)} the nearest are {', '.join(three)}"
    return f"known are {', '.join(names)}" if names else "none is known"


def run_command(main: Callable[[], None]) -> None:
    """Run a command's main: a user error or file error becomes one line and exit code 2.

    SIGTERM becomes one line and exit code 143 (harness/core/process.py), Ctrl-C one and 130. A reader
    that closed the pipe, such as `head`, has enough: no line.
    """
    process.listen()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as in `>&-`
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    try:
        main()
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # too late: everything is done
        return
    except process.Stopped as stopped:
        reason, code = str(stopped), process.CODE
    except UserError as error:
        reason, code = str(error), 2
    except KeyboardInterrupt:
        reason = str(expected("to come to the end", "Ctrl-C", "start the same command again"))
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # for what is still to be flushed
        raise SystemExit(128 + signal.SIGPIPE) from None
    except OSError as error:
        what = f"to read or write {error.filename or 'a file'}"
        remedy = "give a folder that can be written (and has room), then start again"
        if isinstance(error, FileNotFoundError | IsADirectoryError):
            remedy = "give the path of a file that is there"
        elif isinstance(error, PermissionError):
            remedy = "give a folder of your own, or ask its owner to let you use it"
        reason, code = str(expected(what, error.strerror or error, remedy)), 2
    line = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in reason)
    print(f"error: {line}", file=sys.stderr)
    raise SystemExit(code)
