"""Near-duplicate pictures: `hashgrove.find_duplicates` beside the PHash rule of imagededup.

    python ../shared/data/get_cifar10.py cifar10.npz
    python benchmarks/duplicates.py cifar10.npz                                  # 1,000 photographs, 240 altered copies
    python benchmarks/duplicates.py cifar10.npz --network net.onnx --output-name feat --size 128 --preprocess symmetric

PHash is made as imagededup makes it: the picture as 32 x 32 grey values, the 8 x 8 lowest frequencies of its cosine
transform, a bit for each that is not below their median; pictures are duplicates within 10 of 64 bits. The same by the
package imagehash, if it is installed. Copies are altered in 12 ways, of which seven are like those that the radius is
measured on. A pair counts as found if a method says that the copy and its original are duplicates; precision is the
share of all pairs that a method finds that are an original and its copy, so duplicates that the data set itself has
lower it.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import itertools
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps
from scipy.fft import dctn

from hashgrove import OnnxFeatures, find_duplicates, hamming

SIDE = 256  # pixels of a picture, larger than those of the data set
PHASH_RADIUS = 10


def jpeg(picture, _):
    """The picture after a strong compression."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=20)
    return Image.open(file).convert("RGB")


def cut(share):
    """A function that cuts a share of both sides off, at a random place."""

    def alter(picture, rng):
        width, height = (round(share * side) for side in picture.size)
        left, top = rng.integers(width + 1), rng.integers(height + 1)
        return picture.crop((left, top, picture.width - width + left, picture.height - height + top))

    return alter


def marked(picture, _):
    """The picture with a white label in a corner."""
    found = picture.copy()
    width, height = found.size
    ImageDraw.Draw(found).rectangle((0.6 * width, 0.85 * height, 0.97 * width, 0.96 * height), fill="white")
    return found


ALTERATIONS = {
    "half the size": lambda picture, rng: picture.resize((picture.width // 2, picture.height // 2)),
    "another shape": lambda picture, rng: picture.resize((picture.width * 3 // 4, picture.height)),
    "JPEG quality 20": jpeg,
    "brighter": lambda picture, rng: ImageEnhance.Brightness(picture).enhance(1.4),
    "darker": lambda picture, rng: ImageEnhance.Brightness(picture).enhance(0.6),
    "more contrast": lambda picture, rng: ImageEnhance.Contrast(picture).enhance(1.5),
    "blurred": lambda picture, rng: picture.filter(ImageFilter.GaussianBlur(3)),
    "text in a corner": marked,
    "white border": lambda picture, rng: ImageOps.expand(picture, picture.width // 20, "white"),
    "cut by 5 %": cut(0.05),
    "cut by 10 %": cut(0.1),
    "cut by 20 %": cut(0.2),
}


def write_pictures(images, folder, *, n_originals, n_copies, rng):
    """Write originals and altered copies; returns the paths of both and the name of the alteration, per copy."""
    chosen = rng.choice(len(images), n_originals, replace=False)
    originals = []
    for number in chosen:
        path = str(folder / f"{number:05d}.png")
        Image.fromarray(images[number]).resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(path)
        originals.append(path)
    copies = []
    for original, (name, alter) in zip(originals[:n_copies], itertools.cycle(ALTERATIONS.items()), strict=False):
        path = original.replace(".png", "-copy.png")
        with Image.open(original) as picture:
            alter(picture.convert("RGB"), rng).save(path)
        copies.append((original, path, name))
    return originals, copies


def phash(path):
    """The PHash of a picture: bool (64,)."""
    with Image.open(path) as picture:
        grey = np.asarray(picture.convert("L").resize((32, 32), Image.Resampling.LANCZOS), np.float64)
    low = dctn(grey)[:8, :8].reshape(-1)
    return low >= np.median(low[1:])


def imagehash_phash(path):
    """The same by imagehash, whose median includes the mean of the picture."""
    import imagehash

    with Image.open(path) as picture:
        return imagehash.phash(picture).hash.reshape(-1)


def pairs_of_hashes(paths, hash_of):
    """Pairs of paths whose hashes differ in at most 10 bits."""
    codes = np.packbits(np.stack([hash_of(path) for path in paths]), axis=1)
    near = np.triu(hamming(codes, codes) <= PHASH_RADIUS, 1)
    return {(paths[i], paths[j]) for i, j in zip(*np.nonzero(near), strict=True)}


def pairs_of_groups(found):
    """Pairs of a picture that is kept and one that is removed."""
    return {(group.kept, removed) for group in found.groups for removed in group.removed}


def show(name, pairs, copies):
    """Print precision and recall of a method, and the recall per alteration."""
    both = {frozenset(pair) for pair in pairs}
    hits = {name: [] for name in ALTERATIONS}
    for original, copy, alteration in copies:
        hits[alteration].append(frozenset((original, copy)) in both)
    n_hits = sum(map(sum, hits.values()))
    precision, recall = n_hits / max(len(both), 1), n_hits / len(copies)
    print(f"\n{name}: precision {precision:.3f}, recall {recall:.3f}, {len(both)} pairs")
    print("  " + ", ".join(f"{name} {np.mean(found):.2f}" for name, found in hits.items() if found))


def main():
    """Write the pictures, search them by all methods, and print what each finds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", help="npz file with images, uint8 (n, height, width, 3)")
    parser.add_argument("--originals", type=int, default=1000)
    parser.add_argument("--copies", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--network")
    parser.add_argument("--output-name", help="output of the network with the features")
    parser.add_argument("--size", type=int, help="side of its input")
    parser.add_argument("--preprocess", default="auto")
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    with np.load(given.images) as file:
        images = file["images"]
    with tempfile.TemporaryDirectory() as folder:
        originals, copies = write_pictures(
            images, Path(folder), n_originals=given.originals, n_copies=given.copies, rng=rng
        )
        paths = sorted([*originals, *(copy for _, copy, _ in copies)])
        print(f"{len(originals):,} pictures and {len(copies):,} altered copies")
        found = find_duplicates(paths)
        show("hashgrove", pairs_of_groups(found), copies)
        print(found.explain())
        if given.network:
            how = {"output": given.output_name, "image_size": given.size, "preprocess": given.preprocess}
            found = find_duplicates(paths, network=OnnxFeatures(given.network, **how))
            show("hashgrove with a network", pairs_of_groups(found), copies)
            print(found.explain())
        show("PHash of imagededup", pairs_of_hashes(paths, phash), copies)
        if importlib.util.find_spec("imagehash"):
            show("phash of imagehash", pairs_of_hashes(paths, imagehash_phash), copies)


if __name__ == "__main__":
    main()
