"""Search of packed codes by Hamming distance. `Index` states the contract of every index; `INDEXES` lists them.

`connect` opens indexes in databases and other engines; `hashgrove.index.engines.ENGINES` lists these.
"""

from hashgrove.index.base import Index
from hashgrove.index.building import INDEXES, build_folder, build_index, load_index
from hashgrove.index.decoded import Decoded
from hashgrove.index.engines import connect
from hashgrove.index.flat import FlatIndex
from hashgrove.index.margins import BreakTies
from hashgrove.index.memory import MemoryIndex
from hashgrove.index.multi_index import MultiIndex
from hashgrove.index.near import RadiusChoice, groups, pairs_within, suggest_radius
from hashgrove.index.rerank import Int8Rows, Rerank
from hashgrove.index.results import SearchResult

__all__ = [
    "INDEXES",
    "BreakTies",
    "Decoded",
    "FlatIndex",
    "Index",
    "Int8Rows",
    "MemoryIndex",
    "MultiIndex",
    "RadiusChoice",
    "Rerank",
    "SearchResult",
    "build_folder",
    "build_index",
    "connect",
    "groups",
    "load_index",
    "pairs_within",
    "suggest_radius",
]
