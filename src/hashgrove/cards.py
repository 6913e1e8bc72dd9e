"""Model cards: what a model file says about its model, as a short page of Markdown. No date, so bytes do not change."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hashgrove.storage.formats import PathLike
from hashgrove.storage.modelfile import ModelFileError, read_header
from hashgrove.storage.models import Learned, read_learned

__all__ = ["model_card"]

LONGEST = 200  # characters of a value
METRICS = {"map": "MAP", "precision@10": "precision at 10"}


def model_card(path: PathLike) -> str:
    """A short page in Markdown about the model in a file: data, codes, choice, quality, use and limits.

    The file is not trusted: its texts are shown without what Markdown or a terminal would obey.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_digits
    >>> from hashgrove import ITQ
    >>> path = tempfile.mkdtemp() + "/digits.hashgrove"
    >>> ITQ(16, random_state=0).fit(load_digits().data).save(path)
    >>> print(model_card(path)[:48])
    # digits.hashgrove
    <BLANKLINE>
    16-bit codes by ITQ, 2 bytes
    """
    header, learned = read_header(path), read_learned(path)
    if header["kind"] != "encoder":
        raise ModelFileError(f"{os.fspath(path)}: must be a model. Got a file of the kind {header['kind']!r} instead.")
    try:
        return _card(header["header"], learned, _text(os.path.basename(os.fspath(path))))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ModelFileError(f"{os.fspath(path)}: damaged: what it says about its model cannot be read") from error


def _card(facts: Mapping[str, Any], learned: Learned, name: str) -> str:
    notes, n_bits = facts.get("learned", {}), facts["n_bits"]
    sections = [
        f"# {name}",
        f"{n_bits:,}-bit codes by {_text(facts.get('hasher'))}, {-(-n_bits // 8):,} bytes per item.",
        "## Data",
        _bullets(_data(facts, notes)),
        "## Codes",
        _bullets(_codes(facts, notes)),
        *_choice(notes.get("choice")),
        "## Quality on rows that were held out",
        _quality(learned, notes.get("validation")),
        "## Use",
        _use(name, takes_images="features" in facts),
        "## Limits",
        _bullets(_limits(facts, learned)),
    ]
    return "\n\n".join(sections) + "\n"


def _data(facts: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterable[str]:
    data, features = notes.get("data"), facts.get("features")
    if isinstance(data, dict):
        yield f"{_number(data.get('rows'))} rows of {_number(facts.get('n_features'))} features"
        if "labels" in data:
            kinds = {"classes": "one class each", "tags": "tags", "pairs": "pairs of similar and of other rows"}
            count = f", {_number(data['n_labels'])} different ones" if "n_labels" in data else ""
            yield f"{_number(data.get('labelled'))} of them with labels: {kinds.get(data['labels'], 'unknown')}{count}"
        else:
            yield "learned without labels"
    else:
        yield f"rows of {_number(facts.get('n_features'))} features; the file does not say how many"
    if isinstance(features, dict):
        given = features.get("parameters")
        settings = ", ".join(f"{key}={value}" for key, value in given.items()) if isinstance(given, dict) else ""
        yield f"features of images by {_text(features.get('name'))} ({_text(settings)})"


def _codes(facts: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterable[str]:
    n_generic = notes.get("generic_bits")
    if isinstance(n_generic, int) and n_generic:
        yield f"{facts['n_bits'] - n_generic} bits learned from labels, {n_generic} generic bits, which need none"
    function = notes.get("hash_function")
    if function is not None:
        yield f"hash function: {_described(function)}"
    parameters = facts.get("parameters")
    if isinstance(parameters, dict):
        left_out = {"hash_function", "n_bits", "generic_bits"}
        shown = [f"{name}={_described(value)}" for name, value in parameters.items() if name not in left_out]
        yield "settings: " + ", ".join(shown)


def _choice(choice: Any) -> list[str]:
    """Why the hash function was chosen, with the trials; nothing if it was named."""
    if not isinstance(choice, dict) or not isinstance(choice.get("trials"), list) or not choice["trials"]:
        return []
    metric = METRICS.get(str(choice.get("metric")), "measure")
    trials = [trial for trial in choice["trials"] if isinstance(trial, dict)]
    rows = [
        (_text(trial.get("hash_function")), _figure(trial.get("value")), _figure(trial.get("error")))
        for trial in trials
    ]
    return [
        "## Why this hash function",
        f"{_text(choice.get('why'))} The trial learned from {_number(choice.get('n_rows'))} rows and searched "
        f"{_number(choice.get('n_held_out'))} others.",
        _table(("hash function", metric, "standard error"), rows),
    ]


def _quality(learned: Learned, validation: Any) -> str:
    if not learned.validation:
        return (
            "Not measured. `train --validate 0.2` or `fit(..., validation=0.2)` holds out rows and measures the codes."
        )
    leads = [row.get("lead") for row in validation["rows"]]  # `read_learned` has checked that these are rows
    rows = [
        (_text(method), f"{n_bytes:,}", f"{value:.4f}", f"{at_10:.4f}", _interval(lead))
        for (method, n_bytes, value, at_10), lead in zip(learned.validation, leads, strict=True)
    ]
    head = "method", "bytes per item", "MAP", "precision at 10", "lead of these codes in MAP (95 %)"
    return f"{learned.n_held_out:,} rows, each searched for among the others.\n\n{_table(head, rows)}"


def _interval(lead: Any) -> str:
    found = lead.get("map") if isinstance(lead, dict) else None
    ends = [found.get("low"), found.get("high")] if isinstance(found, dict) else []
    return " to ".join(f"{end:+.3f}" for end in ends) if ends and all(type(end) is float for end in ends) else ""


def _use(name: str, *, takes_images: bool) -> str:
    what, argument = ("images", "photos/") if takes_images else ("rows", "X.npy")
    search = "query items.hgi new.jpg" if takes_images else "search items.hgi new.npy"
    return (
        f'```python\nfrom hashgrove import FlatIndex, load\n\nmodel = load("{name}")\n'
        f"index = FlatIndex(model.encode({what}))\n"
        f"distances, ids = index.search(model.encode(new_{what}), k=10)\n```\n\n"
        f"```sh\nhashgrove index build {argument} --model {name} -o items.hgi\n"
        f"hashgrove {search} -k 10\n```"
    )


def _limits(facts: Mapping[str, Any], learned: Learned) -> Iterable[str]:
    yield "Codes of another model cannot be compared with these, even if they have the same length."
    if facts.get("hasher") in ("ITQ", "LSH", "SignThreshold"):
        yield "Codes were learned without labels: near items have similar features, whatever they show."
    else:
        yield "Codes say of what kind an item is. Kinds that were not in training are told apart less well."
        yield "Items that were trained on are nearer to each other than new items will be."
    if learned.profile is None:
        yield "The file remembers nothing of its training rows, so `hashgrove drift` cannot compare new rows with them."
    else:
        yield "`hashgrove drift` tells whether new rows are still like those that the model learned from."


def _described(value: Any) -> str:
    """A parameter as it would be written; estimators as ``Name(parameter=value)`` without defaults of None."""
    if isinstance(value, dict) and isinstance(value.get("params"), dict):
        inside = ", ".join(f"{name}={_described(item)}" for name, item in value["params"].items() if item is not None)
        return f"{_text(value.get('class'))}({inside})"
    return _text(value)


def _number(value: Any) -> str:
    return f"{value:,}" if type(value) is int else "?"


def _figure(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else "?"


def _text(value: Any) -> str:
    """Text of an untrusted value on one line, without marks of Markdown."""
    plain = re.sub(r"[^\w .,:;=+\-*/()'%#@&^~?!{}\[\]]", " ", str(value))
    plain = plain.replace("[", "(").replace("]", ")")
    return " ".join(plain.split())[:LONGEST]


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
