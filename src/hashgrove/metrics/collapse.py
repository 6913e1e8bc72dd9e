"""The number of distinct codes, and a warning where so many items share a code that a search cannot tell them apart.

Items that a hasher was trained on tend to collapse: all items of a class get one code. The nearest items of a query are
then arbitrary items of a class, however good the measures look.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hashgrove.codes import as_words, check_codes
from hashgrove.index.distinct import n_different

__all__ = ["collapse_warning", "count_distinct", "describe_codes"]

COLLAPSED = 10  # items per distinct code, on average, from which on codes count as collapsed
FEW = 2**16  # fewer codes are counted by numpy, in less time than it takes to compile a kernel
ADVICE = "index items that were not trained on, re-rank the results by their features, or use more bits"


def count_distinct(codes: ArrayLike) -> int:
    """Number of different codes.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes)

    Returns
    -------
    n_distinct : int

    Examples
    --------
    >>> count_distinct(np.array([[1, 0], [2, 0], [1, 0]], np.uint8))
    2
    """
    array = check_codes(codes)
    if len(array) > FEW:
        return n_different(array)
    if array.shape[1] <= 8:
        return len(np.unique(as_words(array)[:, 0]))
    rows = array.view(np.dtype((np.void, array.shape[1])))
    return len(np.unique(rows))


def collapse_warning(n_items: int, n_distinct: int) -> str | None:
    """A line that says that codes have collapsed and what to do about it; None if they have not.

    Parameters
    ----------
    n_items, n_distinct : int
        Number of items, and of different codes among them.

    Returns
    -------
    warning : str or None
        None if a code has fewer than ten items on average.

    Examples
    --------
    >>> collapse_warning(600, 10)
    'the codes have collapsed: 600 items share 10 codes, so the order of items with equal codes is arbitrary; index items that were not trained on, re-rank the results by their features, or use more bits'
    >>> collapse_warning(600, 590)
    """  # noqa: E501
    if n_items < COLLAPSED * max(n_distinct, 1):
        return None
    some = "1 code" if n_distinct == 1 else f"{n_distinct:,} codes"
    return (
        f"the codes have collapsed: {n_items:,} items share {some}, so the order of items with equal codes is "
        f"arbitrary; {ADVICE}"
    )


def describe_codes(codes: ArrayLike) -> tuple[str, str | None]:
    """The number of distinct codes as a sentence for the command line, and the warning if they have collapsed.

    Parameters
    ----------
    codes : uint8 array of shape (n, n_bytes)

    Returns
    -------
    distinct : str
    warning : str or None

    Examples
    --------
    >>> describe_codes(np.array([[1], [2], [1]], np.uint8))
    ('2 distinct codes among 3 items', None)
    """
    array = check_codes(codes)
    n_distinct = count_distinct(array)
    counted = "1 distinct code" if n_distinct == 1 else f"{n_distinct:,} distinct codes"
    return f"{counted} among {len(array):,} items", collapse_warning(len(array), n_distinct)
