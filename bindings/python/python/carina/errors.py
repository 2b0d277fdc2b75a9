"""Exceptions of the package.

Every exception has a ``code`` for programs and a message for people. Most are also one of Python's
own exceptions, so that ``except ConnectionError`` and ``except TimeoutError`` work.
"""

from __future__ import annotations

__all__ = [
    "CarinaError",
    "CommandError",
    "FlowClosedError",
    "FlowFailedError",
    "MessageTooLargeError",
    "NoAnswerError",
    "NoNodeError",
    "NodeGoneError",
    "NotOpenError",
    "ProtocolError",
    "RefusedError",
    "SystemCallError",
    "WaitTimeoutError",
]


class CarinaError(Exception):
    """Base of all exceptions of this package.

    ``code`` is a word such as ``"unknown-name"``. ``final`` is true when the same call fails again
    until someone corrects the cause.
    """

    code: str
    final: bool

    def __init__(self, message: str, code: str = "error", final: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.final = final

    def __str__(self) -> str:
        return self.message


class NoNodeError(CarinaError, ConnectionError):
    """No node listens on the socket. Code ``no-node``."""


class RefusedError(CarinaError):
    """The node refused the request. The code is the node's: ``unknown-name``, ``duplicate-name``,
    ``access-denied``, ``spec-not-met``, ``flow-denied``, ``not-found``, ``bad-request`` and others.
    """


class NodeGoneError(CarinaError, ConnectionError):
    """The node ended, or closed the connection. Code ``node-gone``."""


class NoAnswerError(CarinaError, TimeoutError):
    """The node has not answered: it is stopped, stuck or very busy. Code ``no-answer``."""


class FlowClosedError(CarinaError, EOFError):
    """The remote application closed the flow, and every message was received. Code ``closed``."""


class FlowFailedError(CarinaError, ConnectionError):
    """The flow failed: the remote application or its system died. Code ``flow-failed``."""


class MessageTooLargeError(CarinaError, ValueError):
    """The message is longer than the flow or the buffer takes. Code ``message-too-large``."""


class WaitTimeoutError(CarinaError, TimeoutError):
    """The call's ``timeout`` passed. Nothing was lost. Code ``timeout``."""


class NotOpenError(CarinaError, ValueError):
    """This process has closed the object. Code ``not-open``."""


class ProtocolError(CarinaError):
    """The node sent something that the protocol does not allow. Code ``protocol``."""


class SystemCallError(CarinaError, OSError):
    """A system call failed. Code ``system``."""


class CommandError(CarinaError):
    """The program ``carina`` ended with a failure. The code is the program's, such as ``refused``, or
    ``command``; ``status`` is its exit code."""

    status: int

    def __init__(self, message: str, status: int, code: str = "command") -> None:
        super().__init__(message, code, status in (2, 3))
        self.status = status
