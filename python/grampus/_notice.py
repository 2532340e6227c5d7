"""Whether this process has been told that it has to go."""

from __future__ import annotations

_given = False


def give() -> None:
    """It has been told."""
    global _given
    _given = True


def is_given() -> bool:
    """Whether it has been told.

    >>> is_given()
    False
    """
    return _given
