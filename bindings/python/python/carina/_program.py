"""Calls of the program ``carina`` with ``--json``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from .errors import CommandError

__all__ = ["command", "json_of", "program"]


def program() -> str:
    """Return the program: ``$CARINA_PROGRAM``, else ``carina`` of ``$PATH``."""
    found = os.environ.get("CARINA_PROGRAM") or shutil.which("carina")
    if found is None:
        raise CommandError(
            "the program carina is neither in $PATH nor named by $CARINA_PROGRAM", 127
        )
    return found


def command(
    *arguments: str, run: str | os.PathLike[str] | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run ``carina`` with arguments and return what it printed.

    Raises :class:`CommandError` with the program's message when it fails. Ctrl-C also ends the
    program, which then undoes what it began.
    """
    environment = dict(os.environ)
    if run is not None:
        environment["CARINA_RUN"] = str(run)
    words = [program(), *arguments]
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        stdout, stderr = process.communicate()
    except BaseException:
        process.terminate()
        process.communicate()
        raise
    done = subprocess.CompletedProcess(words, process.returncode, stdout, stderr)
    if check and done.returncode != 0:
        raise _failure(arguments, done)
    return done


def json_of(*arguments: str, run: str | os.PathLike[str] | None = None) -> Any:
    """Run ``carina --json`` with arguments and return the JSON that it printed."""
    done = command("--json", *arguments, run=run)
    try:
        return json.loads(done.stdout) if done.stdout.strip() else None
    except ValueError as error:
        text = f"carina {' '.join(arguments)} printed no JSON: {done.stdout[:200]!r}"
        raise CommandError(text, 0) from error


def _failure(
    arguments: Sequence[str], done: subprocess.CompletedProcess[str]
) -> CommandError:
    """The exception for a program that failed, with the message and code that it printed."""
    for line in done.stdout.splitlines():
        try:
            error = json.loads(line)["error"]
            return CommandError(str(error["message"]), done.returncode, str(error["code"]))
        except (ValueError, KeyError, TypeError):
            continue
    words = done.stderr.strip().removeprefix("carina: ")
    return CommandError(words or f"carina {' '.join(arguments)} failed", done.returncode)
