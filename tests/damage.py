"""Damage to files, for hypothesis: whatever is done to one, a reader reads it or says in one line what is wrong."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from hashgrove.storage.formats import FileError

few = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def damaged(draw, content):
    """Content that is cut, longer, or has some other bytes; most often near its start, where headers are."""
    content = bytearray(content)
    kind = draw(st.sampled_from(["cut", "longer", "bytes", "bytes", "piece"]))
    near = st.one_of(st.integers(0, min(200, len(content) - 1)), st.integers(0, len(content) - 1))
    if kind == "cut":
        del content[draw(near) :]
    elif kind == "longer":
        content += draw(st.binary(min_size=1, max_size=50))
    elif kind == "piece":
        start = draw(near)
        content[start : start + draw(st.integers(0, 20))] = draw(st.binary(max_size=20))
    else:
        for _ in range(draw(st.integers(1, 4))):
            content[draw(near)] = draw(st.integers(0, 255))
    return bytes(content)


def reads_or_says_why(read, path):
    """Call ``read``; an error must be one line that begins with the path. Returns what was read, or None."""
    try:
        return read()
    except FileError as error:
        message = str(error)
    assert re.match(re.escape(str(path)) + "[^\n]+$", message), message
    return None


def one_line_error(read, path, match):
    with pytest.raises(FileError, match=match) as caught:
        read()
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path)), caught.value


def file_error(function, path, match, **arguments):
    with pytest.raises(FileError, match=match) as caught:
        function(path, **arguments)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path).split(".npz:")[0])
    return caught.value
