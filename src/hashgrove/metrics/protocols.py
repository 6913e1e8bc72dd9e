"""Protocols: the part of a ranking that is measured, and the divisor of average precision."""

from __future__ import annotations

from typing import NamedTuple

from hashgrove.runtime.parameters import Integer, OneOf, ParameterError

__all__ = ["FULL", "NORMALISE", "PAPER", "PROTOCOLS", "Protocol"]

NORMALISE = ("relevant", "retrieved")
FULL, PAPER = "full-ranking", "fasthash-paper"


class Protocol(NamedTuple):
    """The part of a ranking that is measured, and the divisor of average precision.

    Attributes
    ----------
    depth : int or None
        The number of first items that are measured; None means all.
    normalise : {"relevant", "retrieved"}
        The sum of the precisions is divided by the number of relevant items in the database, or of those among the
        first ``depth`` items.
    """

    depth: int | None
    normalise: str

    @property
    def name(self) -> str | None:
        """The name of the protocol; None if it has none.

        >>> Protocol(10_000, "retrieved").name
        'fasthash-paper'
        """
        return next((name for name, protocol in PROTOCOLS.items() if protocol == self), None)

    @classmethod
    def of(cls, name: str | None, *, depth: int | None, normalise: str) -> Protocol:
        """The protocol of a name or, without a name, of ``depth`` and ``normalise``; wrong values raise ValueError.

        >>> Protocol.of("full-ranking", depth=None, normalise="relevant")
        Protocol(depth=None, normalise='relevant')
        """
        OneOf((None, *PROTOCOLS)).check("protocol", name)
        Integer(1, or_none=True).check("depth", depth)
        OneOf(NORMALISE).check("normalise", normalise)
        given = cls(None if depth is None else int(depth), normalise)
        if name is None:
            return given
        if given not in (PROTOCOLS[FULL], PROTOCOLS[name]):
            raise ParameterError(
                "protocol",
                f"must be None if depth or normalise is given. Got {name!r} together with "
                f"depth={depth} and normalise={normalise!r} instead.",
            )
        return PROTOCOLS[name]


PROTOCOLS = {FULL: Protocol(None, "relevant"), PAPER: Protocol(10_000, "retrieved")}
