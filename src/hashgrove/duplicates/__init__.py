"""Near-duplicate pictures, without labels: `find_duplicates`.

Copies of a picture that were saved again, resized, brightened or cut have codes near its own. How near is measured on
the pictures themselves: altered copies of some of them say how far copies are, and pictures that cannot be copies, for
they are turned over, say how near others come by chance.
"""

from hashgrove.duplicates.finding import DuplicateGroup, Duplicates, find_duplicates
from hashgrove.duplicates.radius import RadiusEvidence

__all__ = ["DuplicateGroup", "Duplicates", "RadiusEvidence", "find_duplicates"]
