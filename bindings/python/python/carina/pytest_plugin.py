"""Fixtures for pytest: networks of nodes that a test makes and removes.

``carina_lab`` is a function: ``lab = carina_lab("two.lab")`` makes a lab, which is removed when the
test ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ._lab import Lab, lab
from .errors import CommandError

__all__ = ["carina_lab"]


@pytest.fixture
def carina_lab() -> Iterator[Callable[[str | os.PathLike[str]], Lab]]:
    """Make labs that are removed when the test ends. A test is skipped where the program ``carina``
    is missing."""
    with ExitStack() as labs:

        def make(description: str | os.PathLike[str]) -> Lab:
            try:
                return labs.enter_context(lab(description))
            except CommandError as error:
                if error.status == 127:
                    pytest.skip(str(error))
                raise

        yield make
