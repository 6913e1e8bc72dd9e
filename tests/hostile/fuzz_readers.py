"""The readers that tests/hostile/fuzz.py attacks: for each, small valid files, and a function that reads one.

Where a file has a checksum or is compressed, a changed byte would nearly always be found at once; so some seeds are
changed before they are packed or signed.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tempfile
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import fuzz_folders
import fuzz_images
import fuzz_networks
import fuzz_service
import numpy as np
from fuzz_seeds import RNG, Reader, Seed

from paths import FORMAT1

MATRIX = RNG.normal(size=(6, 3))


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npy_seeds():
    numbers = MATRIX, MATRIX.astype("f4").T, np.arange(5), np.zeros((0, 3)), np.ones((2, 2), ">u2")
    for array in (*numbers, np.array(["cat", "dog"])):
        yield Seed(npy(array))


def zipped(content, *, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("X.npy", content)
    return buffer.getvalue()


def npz_seeds():
    for seed in npy_seeds():
        yield Seed(zipped(seed.payload))
        yield Seed(zipped(seed.payload, method=zipfile.ZIP_STORED))
        yield Seed(seed.payload, zipped)


def csv_seeds():
    yield Seed(b"a,b,kind\n1,2.5,cat\n3,-4e3,dog\n5,6,cat\n")
    yield Seed("\ufeff1,2\r\n3,4\r\n".encode())
    yield Seed(b'"x, y","z"\n"1","2"\n3,nan\n')
    yield Seed(b"cat\ndog\ncat\n")


def parquet_seeds():
    import pyarrow as pa
    from pyarrow import parquet

    kinds = pa.array(["cat", "dog", "cat"]).dictionary_encode()
    vectors = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32()))
    tables = [
        pa.table({"a": [1.0, 2.0, 3.0], "b": [1, 2, 3]}),
        pa.table({"a": [True, False, True], "kind": kinds}),
        pa.table({"v": vectors, "y": ["x", "y", "x"]}),
    ]
    for table in tables:
        for options in ({"compression": "none", "use_dictionary": False}, {"compression": "snappy"}):
            buffer = io.BytesIO()
            parquet.write_table(table, buffer, store_schema=False, write_statistics=False, **options)
            yield Seed(buffer.getvalue())
    buffer = io.BytesIO()
    parquet.write_table(tables[1], buffer, row_group_size=2)
    yield Seed(buffer.getvalue())


def idx_seeds():
    for array in (np.arange(5, dtype=np.uint8), np.arange(24, dtype=np.uint8).reshape(2, 3, 4)):
        yield Seed(bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes())


def packed_idx_seeds():
    for seed in idx_seeds():
        yield Seed(gzip.compress(seed.payload, 1))
        yield Seed(seed.payload, lambda payload: gzip.compress(payload, 1))


def read_idx_labels(path):
    from experiments.datasets.idx import read_idx

    read_idx(path, ndim=1)


def read_idx_images(path):
    from experiments.datasets.idx import read_idx

    read_idx(path, ndim=3)


def cifar_seeds():
    data = RNG.integers(0, 256, (2, 6), dtype=np.uint8)
    batch = {"batch_label": "b", "labels": [1, 2], "data": data, "filenames": ["a.png", "b.png"]}
    for protocol in (2, 3, 4):
        yield Seed(pickle.dumps(batch, protocol))
    yield Seed(pickle.dumps({"labels": [1, 2], "data": data.T}, 2))


def signed_seeds(paths, kind):
    """Model files as they are; and their header, types, shapes and arrays, to be changed before they are signed."""
    from hashgrove.storage import modelfile

    for path in paths:
        yield Seed(path.read_bytes())
        header, arrays = modelfile.read(path, kind=kind)
        shapes = {name: [array.dtype.name, array.shape] for name, array in arrays.items()}
        text = json.dumps({"header": header, "arrays": shapes}).encode()
        content = b"".join(array.tobytes() for array in arrays.values())
        yield Seed(text + b"\n" + content, lambda payload, text=text, kind=kind: signed(payload, text, kind))


def signed(payload, original, kind):
    """A model file of a payload of `signed_seeds`; where its text is no longer usable, the original one is used."""
    from hashgrove.storage import modelfile

    text, _, content = payload.partition(b"\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        for attempt in (text, original):
            try:
                parts = json.loads(attempt)
                arrays, place = {}, 0
                for name, (dtype, shape) in parts["arrays"].items():
                    size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
                    if not 0 <= size <= 2**16:
                        raise ValueError
                    part = content[place : place + size].ljust(size, b"\0")
                    arrays[name] = np.frombuffer(part, dtype).reshape(shape)
                    place += size
                modelfile.write(path, kind=kind, header=parts["header"], arrays=arrays)
            except Exception:  # any change may make the text unusable
                continue
            break
        return path.read_bytes()


def model_seeds():
    """The stored model of each encoder and that of images, and encoders inside of encoders."""
    from example_encoders import example
    from hashgrove.encoders import Mixed, Sum
    from hashgrove.storage import models

    yield from signed_seeds([*sorted(FORMAT1.glob("*.hashgrove")), FORMAT1 / "image.model"], "encoder")
    leaves = Sum(parts=(example("leaf-trees", 1), example("linear of unit rows", 1)))
    nested = Mixed(parts=(leaves, example("trees", 1)), source=np.array([1, 0], np.uint8))
    with tempfile.TemporaryDirectory() as folder:
        models.save(Path(folder) / "nested", nested, hasher="FastHash", parameters={})
        yield from signed_seeds([Path(folder) / "nested"], "encoder")


def read_model(path):
    import hashgrove
    from hashgrove.encoders import Encoder

    found = hashgrove.load(path)
    encoder = found if isinstance(found, Encoder) else found.encoder
    if encoder.n_features <= 1000:
        rows = np.random.default_rng(0).normal(size=(70, encoder.n_features))
        rows[-2:] = [[-1.7e308], [1.7e308]]
        with suppress(ValueError), np.errstate(all="ignore"):  # finite numbers of a file may overflow in products
            encoder.encode(rows, n_jobs=1)


def hasher_seeds():
    return signed_seeds([FORMAT1 / "fit.model"], "encoder")


def read_hasher(path):
    import hashgrove

    hashgrove.load_hasher(path)


def checkpoint_seeds():
    from hashgrove import BoostedTrees, FastHash
    from hashgrove.storage.checkpoints import Checkpoint, Progress

    hasher = FastHash(2, hash_function=BoostedTrees(n_trees=2, max_depth=2), random_state=0, n_jobs=1)
    hasher.fit(MATRIX, np.arange(len(MATRIX)) % 2)
    with tempfile.TemporaryDirectory() as folder:
        bits = np.ones((2, len(MATRIX)), np.int8)
        Checkpoint(Path(folder) / "run", "print").write(Progress(hasher.encoder_, bits, hasher.history_, 0))
        yield from signed_seeds([Path(folder) / "run"], "checkpoint")


def read_checkpoint(path):
    from hashgrove.storage.checkpoints import Checkpoint
    from hashgrove.two_step import BitRecord

    Checkpoint(path, "print").read(shape=MATRIX.shape, record=BitRecord)


def features_seeds():
    return signed_seeds([FORMAT1 / "gist.features", FORMAT1 / "codebook.features"], "features")


def read_extractor(path):
    from hashgrove.features import load_extractor

    load_extractor(path)


def folder_seeds():
    return fuzz_folders.folder_seeds()


def onnx_seeds():
    import tiny_onnx

    yield Seed(tiny_onnx.model())
    yield Seed(tiny_onnx.model(input_shape=("n", 3, 4, 4)))
    yield Seed(tiny_onnx.model(input_shape=("n", "h", "w", 3), axes=(1, 2), outputs=("mean",)))


def read_onnx(path):
    from hashgrove.features import OnnxFeatures

    OnnxFeatures(path, output="mean", image_size=4, n_jobs=1).fit(np.zeros((1, 4, 4, 3), np.uint8))


def read_features(path):
    from hashgrove.storage.matrices import read_matrix

    np.asarray(read_matrix(path)).tobytes()


def read_column(path):
    from hashgrove.storage.matrices import read_table

    read_table(path, label_column=-1)


def read_classes(path):
    from hashgrove.storage.matrices import read_labels

    np.unique(read_labels(path))


def faiss_seeds():
    """Files of faiss alone, and with our footer, whose checksum is computed after the change for some."""
    import faiss

    from hashgrove import connect

    flat = faiss.IndexBinaryFlat(16)
    flat.add(np.arange(8, dtype=np.uint8).reshape(4, 2))
    yield Seed(faiss.serialize_index_binary(flat).tobytes())
    for ids in ([7, 3, 5, 1], ["b", "a", "é", "long"]):
        with tempfile.TemporaryDirectory() as folder:
            with connect(f"faiss:///{folder}/codes.faiss") as index:
                index.add(np.arange(8, dtype=np.uint8).reshape(4, 2), ids=ids)
            content = Path(folder, "codes.faiss").read_bytes()
        yield Seed(content)
        yield Seed(content, with_checksum)


def with_checksum(content):
    return content[:-12] + zlib.crc32(content[:-32]).to_bytes(4, "little") + content[-8:]


def read_faiss(path):
    from hashgrove import connect
    from hashgrove.index.engines.session import EngineError
    from hashgrove.storage.formats import FileError

    try:
        search_faiss(connect(f"faiss:///{path}", create=False))
    except EngineError as error:
        raise FileError(str(error).removeprefix("faiss:///")) from error


def search_faiss(index):
    with index:
        queries = np.zeros((2, index.n_bytes or 1), np.uint8)
        if len(index):
            assert len(index.codes) == len(index.ids) == len(index)
            index.search(queries, 3, n_jobs=1)
            index.search_radius(queries, 9, n_jobs=1)


def read_pickle(path):
    from experiments.datasets.batches import read_batch

    read_batch(path, path.read_bytes())


READERS = {
    "npy": Reader(npy_seeds, ".npy", (read_features, read_classes)),
    "npz": Reader(npz_seeds, ".npz", (read_features, read_classes)),
    "csv": Reader(csv_seeds, ".csv", (read_features, read_column, read_classes)),
    "parquet": Reader(parquet_seeds, ".parquet", (read_features, read_column, read_classes)),
    "idx": Reader(idx_seeds, ".idx", (read_idx_labels, read_idx_images)),
    "idx-gz": Reader(packed_idx_seeds, ".gz", (read_idx_labels, read_idx_images)),
    "cifar": Reader(cifar_seeds, ".pickle", (read_pickle,)),
    "model": Reader(model_seeds, ".hashgrove", (read_model,)),
    "hasher": Reader(hasher_seeds, ".hashgrove", (read_hasher,)),
    "checkpoint": Reader(checkpoint_seeds, ".run", (read_checkpoint,)),
    "features": Reader(features_seeds, ".features", (read_extractor,)),
    "folder": Reader(folder_seeds, ".zip", (fuzz_folders.search_folder, fuzz_folders.change_folder)),
    "faiss": Reader(faiss_seeds, ".faiss", (read_faiss,)),
    "onnx": Reader(onnx_seeds, ".onnx", (read_onnx,)),
    "onnx-copy": Reader(fuzz_networks.copied_seeds, ".onnx", (fuzz_networks.copy_twice,)),
    "onnx-operators": Reader(fuzz_networks.operator_seeds, ".onnx", (fuzz_networks.compute,), strict=False),
    "http-json": Reader(fuzz_service.json_seeds, ".http", (fuzz_service.ask,)),
    "http-form": Reader(fuzz_service.form_seeds, ".http", (fuzz_service.ask,)),
    "http-binary": Reader(fuzz_service.binary_seeds, ".http", (fuzz_service.ask,)),
    "fields": Reader(fuzz_service.fields_seeds, ".csv", (fuzz_service.read_fields,)),
    "journal": Reader(fuzz_service.journal_seeds, ".jsonl", (fuzz_service.read_journal,)),
    "images-json": Reader(fuzz_service.images_seeds, ".json", (fuzz_service.read_images,)),
    "image": Reader(fuzz_images.image_seeds, ".image", (fuzz_images.read_one,), fuzz_images.memory_of_pixels),
    "image-sandbox": Reader(
        fuzz_images.sandbox_seeds, ".image", (fuzz_images.read_in_sandbox,), fuzz_images.memory_of_pixels
    ),
}
