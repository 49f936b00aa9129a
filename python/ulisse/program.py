"""The program: where it is, and how it is called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO, Optional, Sequence

from .errors import UlisseError, from_program

__all__ = ["call", "find", "version"]


def find() -> str:
    """Return the path of the program.

    It is that of ``$ULISSE_BINARY``; else the one that came with this package; else
    ``ulisse`` on the ``PATH``.
    """
    named = os.environ.get("ULISSE_BINARY")
    if named:
        if not os.path.isfile(named):
            raise UlisseError(f"$ULISSE_BINARY names {named}, which is not there")
        return named
    own = Path(__file__).parent / "bin" / ("ulisse.exe" if os.name == "nt" else "ulisse")
    if own.is_file():
        return str(own)
    found = shutil.which("ulisse")
    if found is None:
        raise UlisseError(
            "there is no program ulisse: install a wheel that holds it, put it on the PATH, "
            "or name it in $ULISSE_BINARY; a cluster needs none: give its address with cluster="
        )
    return found


def call(args: Sequence[str], stdin: Optional[IO[bytes]] = None, generated: bool = True) -> str:
    """Run the program to its end and return what it printed."""
    done = subprocess.run(
        [find(), *args],
        stdin=stdin if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode != 0:
        raise from_program(done.returncode, done.stderr.decode("utf-8", "replace"), generated)
    return done.stdout.decode("utf-8")


def version() -> str:
    """Return the version of the program, with its commit and platform."""
    return call(["version"]).strip()


def main() -> None:
    """Be the program: what the command ``ulisse`` of an installed wheel does."""
    try:
        path = find()
    except UlisseError as error:
        sys.exit(f"ulisse: {error}")
    if os.name == "nt":
        sys.exit(subprocess.call([path, *sys.argv[1:]]))
    os.execv(path, [path, *sys.argv[1:]])
