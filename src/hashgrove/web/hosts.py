"""Names of this machine. It needs no package of the service, so that a wrong call is refused at once."""

from __future__ import annotations

import ipaddress

__all__ = ["LOOPBACK", "is_loopback"]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
