"""Search of packed codes by Hamming distance; `FlatIndex` states the contract of every index."""

from hashgrove.index.base import Index
from hashgrove.index.flat import FlatIndex

__all__ = ["FlatIndex", "Index"]
