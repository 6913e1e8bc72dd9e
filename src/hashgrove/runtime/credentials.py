"""Hiding of passwords in whatever is shown: messages of errors, logs, the page, names of places."""

from __future__ import annotations

import re

__all__ = ["hide_credentials"]

# A password may hold any character that should have been percent-encoded, so it goes up to the last @ before a space;
# if it holds a space itself, to the first @ after that.
ACCOUNT = re.compile(r"(\b[a-zA-Z][\w+.-]*://[^\s/:@'\"]*):(?:\S*@|[^@\n]*@)")
OPTION = re.compile(r"([?&;](?:pass(?:word|wd)?|pwd|token|secret|(?:api[_-]?)?key)=)[^\s&;'\"]+", re.IGNORECASE)


def hide_credentials(text: str) -> str:
    """A text without the passwords and keys of the URLs in it.

    >>> hide_credentials("Got 'postgres://ann:se/cr@t@db/photos?token=abc&table=x' instead.")
    "Got 'postgres://ann@db/photos?token=...&table=x' instead."
    """
    return OPTION.sub(r"\1...", ACCOUNT.sub(r"\1@", text)) if "://" in text else text
