"""Supervision: labels, tags, pairs and triplets, which say which points are similar, in one form.

`reading` turns what users have into clean arrays. `Supervision` gives each method the form that it needs. `Affinity`
holds the pairs that FastHash sums its loss over.
"""

from hashgrove.supervision.affinity import Affinity
from hashgrove.supervision.base import Supervision
from hashgrove.supervision.forms import MIN_SHARED, ClassLabels, Pairs, Tags
from hashgrove.supervision.groups import draw_groups, read_groups
from hashgrove.supervision.target import Target

__all__ = [
    "MIN_SHARED",
    "Affinity",
    "ClassLabels",
    "Pairs",
    "Supervision",
    "Tags",
    "Target",
    "draw_groups",
    "read_groups",
]
