"""Virtual networks: plan them, make them, run commands in their nodes, remove them.

>>> with carina.vnet.up("six.toml") as net:
...     print(net.exec("r1", "carina", "ping", "r4").stdout)

The calls run the program ``carina vnet`` (``$CARINA_PROGRAM``, else that of ``$PATH``). A document
is the path of a file, its text in TOML, or a mapping with the keys of ``docs/reference/vnet-documents.md``.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from ._program import command, json_of
from .errors import CommandError

__all__ = ["Network", "down", "list", "plan", "up"]

Document: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]


class Network:
    """A virtual network that exists. Make it with :func:`up`."""

    def __init__(self, name: str, run: str | os.PathLike[str] | None = None) -> None:
        self.name = name
        self._run = run

    def run(self, node: str) -> Path:
        """Run directory of the Carina node in a namespace: the ``run=`` of :func:`carina.allocate` and
        of :class:`carina.Node` on this host."""
        return Path(self.exec(node, "printenv", "CARINA_RUN").stdout.strip())

    def status(self) -> dict[str, Any]:
        """Return nodes and links, and how long each phase of the making took."""
        status: dict[str, Any] = json_of("vnet", "status", self.name, run=self._run)
        return status

    def exec(
        self, node: str, *arguments: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a node and return its output. With ``check``, a command that fails
        raises :class:`CommandError`."""
        return command("vnet", "exec", "--vnet", self.name, node, *arguments, run=self._run,
                       check=check)

    def exec_json(self, node: str, *arguments: str) -> Any:
        """Run a command in a node and return the JSON that it printed."""
        done = self.exec(node, *arguments)
        try:
            return json.loads(done.stdout)
        except ValueError as error:
            text = f"{' '.join(arguments)} on {node} printed no JSON: {done.stdout[:200]!r}"
            raise CommandError(text, 0) from error

    def apply(self, document: Document) -> Any:
        """Change the network to match a document."""
        with _File(document) as file:
            return json_of("vnet", "apply", file, run=self._run)

    def test(self) -> Any:
        """Probe all links, and run the tests of the document."""
        return json_of("vnet", "test", self.name, run=self._run)

    def stop(self, node: str) -> None:
        """Stop a node; it stays off until :meth:`start`."""
        json_of("vnet", "stop", "--vnet", self.name, node, run=self._run)

    def start(self, node: str) -> None:
        """Start a stopped node, and wait until it runs."""
        json_of("vnet", "start", "--vnet", self.name, node, run=self._run)

    def down(self) -> None:
        """Remove the network."""
        json_of("vnet", "down", self.name, run=self._run)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.down()

    def __repr__(self) -> str:
        return f"carina.vnet.Network({self.name!r})"


def plan(document: Document, *, run: str | os.PathLike[str] | None = None) -> Any:
    """Return what :func:`up` or :meth:`Network.apply` would do, and whether it fits."""
    with _File(document) as file:
        return json_of("vnet", "plan", file, run=run)


def up(
    document: Document,
    *,
    deadline: str | None = None,
    keep: bool = False,
    run: str | os.PathLike[str] | None = None,
) -> Network:
    """Make the network and wait until it is ready. What was made is removed when that fails, unless
    ``keep``. ``deadline`` is a time such as ``"5m"``."""
    options = ["--keep"] if keep else []
    if deadline is not None:
        options += ["--deadline", deadline]
    with _File(document) as file:
        made = json_of("vnet", "up", *options, file, run=run)
        return Network(_name(made), run)


def down(name: str | None = None, *, run: str | os.PathLike[str] | None = None) -> None:
    """Remove a network (default: the only one)."""
    json_of("vnet", "down", *([] if name is None else [name]), run=run)


def list(*, run: str | os.PathLike[str] | None = None) -> Any:
    """Return the networks of this host."""
    return json_of("vnet", "list", run=run)


def _name(made: Any) -> str:
    if isinstance(made, dict) and isinstance(made.get("name"), str):
        return str(made["name"])
    raise CommandError(f"carina vnet up named no network: {made!r}", 0)


class _File:
    """The path of a document, written to a temporary file where it is not one."""

    def __init__(self, document: Document) -> None:
        self._temporary: Path | None = None
        if isinstance(document, Mapping):
            self._path = self._written(json.dumps(document), ".json")
        elif isinstance(document, str) and "\n" in document:
            self._path = self._written(document, ".toml")
        else:
            self._path = Path(document)

    def _written(self, text: str, extension: str) -> Path:
        handle, path = tempfile.mkstemp(suffix=extension, prefix="vnet")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        self._temporary = Path(path)
        return self._temporary

    def __enter__(self) -> str:
        return str(self._path)

    def __exit__(self, *error: object) -> None:
        if self._temporary is not None:
            with suppress(FileNotFoundError):
                self._temporary.unlink()
