"""`Collection`: an index with its model, and the labels, fields and images of its items.

Encoders and features are imported only if there is a model, because they take longer to load than all the rest.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from hashgrove.codes import unpack
from hashgrove.index import Index
from hashgrove.index.ids import MAX_ID, check_ids
from hashgrove.index.stored_features import StoredFeatures
from hashgrove.runtime.parameters import ParameterError
from hashgrove.web.additions import Additions
from hashgrove.web.contents import Contents
from hashgrove.web.details import Details, folder_of
from hashgrove.web.images import FindImage

if TYPE_CHECKING:
    from hashgrove.encoders import Encoder
    from hashgrove.features import FeatureExtractor, ImageEncoder
    from hashgrove.storage.models import Learned

    LookUp = Callable[["Collection"], tuple[Details, FindImage | None]]

__all__ = ["Collection", "as_hex"]

ENGINE_SECONDS = 60  # after which an engine is read anew even if its number of items is the same
INTEGER = re.compile(r"-?[0-9]{1,19}")


def as_hex(code: NDArray[np.uint8]) -> str:
    """A packed code as hexadecimal digits.

    >>> as_hex(np.array([1, 255], np.uint8))
    '01ff'
    """
    return code.tobytes().hex()


@dataclass(eq=False)
class Collection:
    """An index with its model, and the labels, fields and images of its items.

    Attributes
    ----------
    index : Index
    name : str
        The name that the page shows.
    model : Encoder or ImageEncoder, optional
        Encodes queries and new items. It must be the model of the index, if the index knows it.
    details : Details, optional
        Labels, names and fields of items.
    find_image : function, optional
        From the id of an item to its image file; None if it has none.
    read_only : bool
        Whether changes are refused.
    learned : Learned, optional
        What the file of the model says about its fit.
    additions : Additions, optional
        Labels, fields and pictures of items that clients have added; None if they cannot be kept.
    by_folder : bool
        Whether the label of an item is the folder in its id.
    look_up : function, optional
        From the collection to its details and its ``find_image`` as they are now; `refresh` calls it.

    Examples
    --------
    >>> from hashgrove import FlatIndex
    >>> collection = Collection(FlatIndex(np.array([[1], [2]], np.uint8)), name="two")
    >>> collection.n_bits, collection.described(collection.listed())
    (8, [{'id': '0'}, {'id': '1'}])
    """

    index: Index
    name: str
    model: Encoder | ImageEncoder | None = None
    details: Details = field(default_factory=lambda: Details(np.empty(0, np.int64)))
    find_image: FindImage | None = None
    read_only: bool = False
    learned: Learned | None = None
    additions: Additions | None = field(default_factory=Additions)
    by_folder: bool = False
    look_up: LookUp | None = None

    def __post_init__(self) -> None:
        self._reading = threading.Lock()
        self._contents: Contents | None = None
        self.describe_added()
        if self.model is not None:
            empty = np.empty((0, -(-self.model.n_bits // 8)), np.uint8)
            self.index.search(empty, 1, model=self.model)  # refuses a model of other codes

    @property
    def encoder(self) -> Encoder | None:
        """The encoder of features."""
        images = self._image_encoder()
        return self.model if images is None else images.encoder  # type: ignore[return-value]

    @property
    def extractor(self) -> FeatureExtractor | None:
        """The extractor of features from images."""
        images = self._image_encoder()
        return None if images is None else images.features

    def _image_encoder(self) -> ImageEncoder | None:
        if self.model is None:
            return None
        from hashgrove.features import ImageEncoder

        return self.model if isinstance(self.model, ImageEncoder) else None

    @property
    def digest(self) -> str | None:
        """Digest of the model; None if there is none."""
        return None if self.model is None else self.model.digest

    @property
    def stored_features(self) -> StoredFeatures | None:
        """The features that the index stores, for re-ranking."""
        stored: StoredFeatures | None = getattr(self.index, "features", None)
        return stored

    @property
    def can_rerank(self) -> bool:
        """Whether a search can order items by their features, which must be those that the model takes."""
        stored, encoder = self.stored_features, self.encoder
        return stored is not None and encoder is not None and stored.n_features == encoder.n_features

    @property
    def knows_ranking(self) -> bool:
        """Whether `default_ranking` is known at once; after a change, it may have to look at all items."""
        contents = self._contents
        return self.can_decode or not self.can_rerank or (contents is not None and contents.is_counted)

    @property
    def default_ranking(self) -> str:
        """The way items are ranked if a request does not say it and its query has features."""
        if self.can_decode:
            return "classes"
        return "features" if self.can_rerank and self.read().have_features else "bits"

    @property
    def can_decode(self) -> bool:
        """Whether a search can rank items by the classes that their codes state."""
        return self.encoder is not None and self.encoder.decoder is not None

    @property
    def takes_weights(self) -> bool:
        """Whether a search can weight the bits of a query."""
        return self.encoder is not None and self.index.accepts_weights

    @property
    def n_bytes(self) -> int | None:
        """Bytes of a code; None if the index is empty and there is no model."""
        return self.index.n_bytes or (None if self.model is None else -(-self.model.n_bits // 8))

    @property
    def n_bits(self) -> int | None:
        """Bits of a code."""
        if self.model is not None:
            return self.model.n_bits
        return None if self.n_bytes is None else 8 * self.n_bytes

    def read(self) -> Contents:
        """All items of this moment. They are read anew after `changed`."""
        with self._reading:
            if self._contents is None:
                self._contents = Contents(*self.index.items(), self.stored_features)  # ids and codes of one moment
            return self._contents

    @property
    def last_read(self) -> Contents | None:
        """What `read` would return at once; None if it had to look at all items first."""
        return self._contents

    def contents(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """All ids and codes, in the order in which the items were added."""
        read = self.read()
        return read.ids, read.codes

    def changed(self) -> None:
        """Forget what was read of the items; call it after a change."""
        with self._reading:
            self._contents = None

    def describe_added(self) -> None:
        """Take over what the additions say; call it after a change of them."""
        if self.additions is not None and self.details.added is not self.additions.entries:
            self.details = self.details.with_added(self.additions.entries, are_texts=self.id_kind == "text")

    def read_again(self) -> bool:
        """Read an engine anew if its number of items is another, or after a while; return whether it has changed."""
        if self._contents is None:  # it is read when it is needed
            return False
        n_items = len(self.index)
        with self._reading:
            old = self._contents
            if old is None or (n_items == len(old.ids) and time.monotonic() < old.since + ENGINE_SECONDS):
                return False
            new = Contents(*self.index.items(), self.stored_features)
            if np.array_equal(old.ids, new.ids) and np.array_equal(old.codes, new.codes):
                old.since = new.since
                return False
            self._contents = new
        return True

    def which(self, given: Sequence[str]) -> list[bool]:
        """Whether there is an item with each of these ids; what cannot be an id of the index is none."""
        try:
            found: list[bool] = self.index.contains(self.as_ids(given)).tolist()
        except ParameterError:
            return [self.which([id_])[0] for id_ in given] if len(given) > 1 else [False]
        return found

    @property
    def id_kind(self) -> str | None:
        """Whether ids are "int" or "text"; None if there are no items."""
        return self.index.id_kind

    def default_label(self, id_: str) -> str:
        """The label of a new item for which none was given; an empty text if there is none."""
        return folder_of(id_) if self.by_folder else ""

    def picture_of(self, id_: str) -> str | None:
        """The image file of an item; None if it has none."""
        added = None if self.additions is None else self.additions.picture(id_)
        return added or (None if self.find_image is None else self.find_image(id_))

    @property
    def has_images(self) -> bool:
        """Whether items can have images."""
        added = self.additions
        return self.find_image is not None or (added is not None and any(e.picture for e in added.entries.values()))

    def as_ids(self, given: Sequence[str | int]) -> NDArray[Any]:
        """Ids of a request in the type that the index has; ParameterError for what cannot be an id of it.

        >>> from hashgrove import FlatIndex
        >>> Collection(FlatIndex(np.array([[1]], np.uint8)), name="one").as_ids(["9007199254740993", 2])
        array([9007199254740993,                2])
        """
        kind = self.id_kind or ("text" if any(isinstance(id_, str) for id_ in given) else "int")
        if kind == "text":
            return check_ids([str(id_) for id_ in given])
        for id_ in given:
            if not INTEGER.fullmatch(str(id_)) or not -MAX_ID - 1 <= int(id_) <= MAX_ID:
                got = f"Got {str(id_)[:80]!r} instead."
                raise ParameterError("ids", f"must be integers of 64 bits, as in the index. {got}")
        return np.array([int(id_) for id_ in given], np.int64)

    def codes_of(self, ids: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """The codes of some items, and whether each of them is in the index; if not, its code is arbitrary."""
        return self.read().codes_of(ids)

    def has(self, ids: NDArray[Any]) -> bool:
        """Whether all of these items are in the index."""
        return bool(self.index.contains(ids).all())

    def features_of(self, ids: NDArray[Any]) -> NDArray[np.float32] | None:
        """The stored features of some items; None if one of them has none."""
        stored = self.stored_features
        if stored is None:
            return None
        rows, known = stored.find(ids)
        return rows if len(ids) and known.all() else None

    def described(self, ids: NDArray[Any], *, codes_in: Contents | None = None) -> list[dict[str, Any]]:
        """Items as they are in JSON: id, label, name, fields and image; with ``codes_in``, also their codes."""
        found = self.details.of(ids)
        entries = {} if self.additions is None else self.additions.entries
        may_have_images = self.find_image is not None or len(entries) > 0
        for id_, item in zip(ids.tolist(), found, strict=True):
            item["id"] = str(id_)
            if may_have_images and self.picture_of(str(id_)) is not None:
                entry = entries.get(str(id_))
                digest = "" if entry is None else entry.picture  # of another picture, the address is another
                item["image"] = f"/images/{quote(str(id_), safe='')}{digest and f'?v={digest[:8]}'}"
                item.setdefault("name", os.path.basename(str(id_)))
        if codes_in is not None:
            codes, known = codes_in.codes_of(ids)
            for item, code, there in zip(found, codes, known.tolist(), strict=True):
                if there:  # another process may have added it a moment ago
                    item |= self.shown_code(code)
        return found

    def shown_code(self, code: NDArray[np.uint8]) -> dict[str, str]:
        """A code in hexadecimal digits and as a text of zeros and ones, the first bit first."""
        bits = unpack(code[None], n_bits=self.n_bits or 8 * len(code))[0]
        return {"code": as_hex(code), "bits": "".join("01"[bit] for bit in bits.astype(int))}

    def listed(self, label: str | None = None, name: str | None = None) -> NDArray[Any]:
        """The ids of all items, or of those with a label or a name, in the order in which they were added."""
        read = self.read()
        if label is None and name is None:
            return read.ids
        ids = self._named(name, read.ids) if name is not None else self.details.ids_with(label or "")
        if name is not None and label is not None:
            ids = np.intersect1d(ids, self.details.ids_with(label))
        return read.ids[read.places_of(ids)]

    def _named(self, name: str, ids: NDArray[Any]) -> NDArray[Any]:
        """Those of some ids that `described` gives this name."""
        if ids.dtype.kind == "U":  # the name of a file is the end of its path
            ids = ids[np.char.endswith(ids, name) | np.isin(ids, self.details.named(name))]
        else:
            ids = self.details.named(name)
        return ids[[item.get("name") == name for item in self.described(ids)]]
