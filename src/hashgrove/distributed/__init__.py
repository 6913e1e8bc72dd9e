"""Fits and encoding on many machines, as Dask tasks: they depend on their arguments only, so that any worker will do.

The coordinator, the process that calls `fit` or `encode`, holds the truth; Dask repeats what a worker that died had not
finished. The bytes are those of one machine, for any number of workers. This room needs the extra ``dask``.
"""

from hashgrove.distributed.cluster import DistributedError, connect
from hashgrove.distributed.encoding import encode
from hashgrove.distributed.fitting import fit

__all__ = ["DistributedError", "connect", "encode", "fit"]
