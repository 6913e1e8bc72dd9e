"""Who is similar to whom: labels, tags, pairs and triplets become one `Supervision`."""

from hashgrove.supervision.affinity import Affinity

__all__ = ["Affinity"]
