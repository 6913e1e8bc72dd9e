# The public names, each listed once: type checkers read this file, and `__init__.py` imports a name from the module
# that is given here when it is first used.
from hashgrove._version import __version__ as __version__
from hashgrove.baselines import ITQ as ITQ
from hashgrove.baselines import LSH as LSH
from hashgrove.codes import hamming as hamming
from hashgrove.codes import pack as pack
from hashgrove.codes import unpack as unpack
from hashgrove.encoders import Encoder as Encoder
from hashgrove.fasthash import FastHash as FastHash
from hashgrove.fasthash import load_hasher as load_hasher
from hashgrove.features import Codebook as Codebook
from hashgrove.features import Gist as Gist
from hashgrove.features import ImageEncoder as ImageEncoder
from hashgrove.features import OnnxFeatures as OnnxFeatures
from hashgrove.functions import BoostedTrees as BoostedTrees
from hashgrove.functions import KernelSVM as KernelSVM
from hashgrove.functions import LabelDirections as LabelDirections
from hashgrove.functions import LinearSVM as LinearSVM
from hashgrove.index import FlatIndex as FlatIndex
from hashgrove.inference import ICM as ICM
from hashgrove.inference import BlockGraphCut as BlockGraphCut
from hashgrove.inference import Spectral as Spectral
from hashgrove.metrics import Report as Report
from hashgrove.metrics import evaluate as evaluate
from hashgrove.storage.modelfile import ModelFileError as ModelFileError
from hashgrove.storage.models import load as load
from hashgrove.supervision import Affinity as Affinity
