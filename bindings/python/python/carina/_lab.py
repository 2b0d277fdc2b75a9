"""Networks of systems on this host, for tests: ``carina lab``."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ._program import command, json_of
from .node import Node

__all__ = ["Lab", "lab"]


class Lab:
    """A lab that is up. Make it with :func:`carina.lab`."""

    def __init__(self, name: str, directory: Path, status: dict[str, Any], owned: bool) -> None:
        self.name = name
        self._directory = directory
        self._status = status
        self._owned = owned

    @property
    def systems(self) -> list[str]:
        """Names of the systems."""
        return [system["name"] for system in self._status["systems"]]

    def run(self, system: str) -> Path:
        """Run directory of a system's node: the ``run=`` of :func:`carina.allocate` and others. A
        program of this host uses the node of a system in a namespace by it."""
        if system not in self.systems:
            raise ValueError(f"lab {self.name} has no system {system!r}; it has {self.systems}")
        return self._directory / self.name / system

    def node(self, system: str) -> Node:
        """Management of a system's node."""
        return Node(self.run(system))

    def exec(
        self, system: str, *arguments: str, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a system and return its output."""
        return command("lab", "exec", "--labs", str(self._directory), "--lab", self.name, system,
                       *arguments, check=check)

    def status(self) -> dict[str, Any]:
        """Return systems, members, neighbours and applications."""
        status: dict[str, Any] = json_of(
            "lab", "status", "--labs", str(self._directory), self.name
        )
        return status

    def down(self) -> None:
        """Remove the lab."""
        json_of("lab", "down", "--labs", str(self._directory), self.name)
        if self._owned:
            shutil.rmtree(self._directory, ignore_errors=True)

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
        return f"carina.Lab({self.name!r}, {self.systems})"


def lab(
    description: str | os.PathLike[str],
    *,
    name: str | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> Lab:
    """Make a lab and return it; ``with`` removes it at the end.

    ``description`` is the path of a ``.lab`` file, or its text. ``directory`` is where labs are
    (default: a temporary one). Systems in namespaces need root, or user namespaces.
    """
    owned = directory is None
    labs = Path(tempfile.mkdtemp(prefix="labs")) if directory is None else Path(directory)
    try:
        text = os.fspath(description)
        file = Path(text)
        if "\n" in text:
            file = labs / f"{name or f'py{os.getpid()}'}.lab"
            file.write_text(text)
        options = [] if name is None else ["--name", name]
        status = json_of("lab", "up", str(file), "--labs", str(labs), *options)
        return Lab(status["name"], labs, status, owned)
    except BaseException:
        if owned:
            shutil.rmtree(labs, ignore_errors=True)
        raise
