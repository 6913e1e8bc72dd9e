"""Reads the batches of CIFAR's "python version", which are pickles, without unpickling them.

A pickle is a program for a stack machine, and Python's machine can call any function. The machine here knows only
dictionaries, lists, tuples, text, bytes, integers and arrays of uint8, in the few instructions that Python 2 and 3
write for them. It refuses every other instruction and every other name.

A few instructions can repeat a value that is already there, so a small file could ask for any amount of memory.
Therefore the number of instructions is limited, and all bytes that are copied out of text are counted: a real batch
copies each of its bytes at most once.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hashgrove.storage.formats import FileError, one_line

__all__ = ["read_batch"]

CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
VALUES = {
    "BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE",
    "BINBYTES", "SHORT_BINBYTES",
}  # fmt: skip
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
PUTS, GETS = {"BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}
IGNORED = {"PROTO", "FRAME"}
MAX_INSTRUCTIONS = 2**19  # the largest real batch, that of CIFAR-100, has 0.2 million
NAMES = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}


class _Refused(ValueError):
    """An instruction or a value that does not belong in a batch."""


@dataclass(frozen=True)
class _Name:
    """A name that a pickle calls; here it is only a word, never a function."""

    word: str


@dataclass
class _Made:
    """The result of a call: an array or the type of one, once `BUILD` has set its state."""

    word: str
    value: Any = None


_MARK = _Name("mark")


def read_batch(path: Path, content: bytes) -> dict[str, Any]:
    """The dictionary in a batch; ``path`` is for the error messages.

    Returns
    -------
    dict
        Values are text, lists or uint8 arrays. Byte strings of Python 2 become text, one character per byte.
    """
    try:
        batch = _run(content)
    except (ValueError, IndexError, KeyError, TypeError) as error:  # a damaged program may do anything to the stack
        raise FileError(f"{path}: must be a batch of CIFAR's python version. {one_line(error)}") from error
    if not isinstance(batch, dict):
        raise FileError(f"{path}: must be a batch of CIFAR's python version. It holds no dictionary.")
    return {name: value.value if isinstance(value, _Made) else value for name, value in batch.items()}


def _run(program: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    argument: Any
    encode = _Encoder(len(program))
    for count, (instruction, argument, _) in enumerate(pickletools.genops(program)):
        if count == MAX_INSTRUCTIONS:
            raise _Refused(f"It has more than {MAX_INSTRUCTIONS} instructions.")
        name = instruction.name
        if name in VALUES:
            stack.append(argument)
        elif name in PUTS:
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in GETS:
            stack.append(memo[argument])
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in EMPTY:
            stack.append(EMPTY[name]())
        elif name in TUPLES:
            stack[-TUPLES[name] :] = [tuple(stack[-TUPLES[name] :])]
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "TUPLE":
            stack.append(tuple(_pop_to_mark(stack)))
        elif name in ("APPEND", "APPENDS"):
            values = [stack.pop()] if name == "APPEND" else _pop_to_mark(stack)
            _expect(stack[-1], list).extend(values)
        elif name in ("SETITEM", "SETITEMS"):
            values = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else _pop_to_mark(stack)
            # Keys must be text: hashing the nested tuples of a hostile file could overflow the interpreter's stack.
            keys = [_expect(key, str) for key in values[::2]]
            _expect(stack[-1], dict).update(zip(keys, values[1::2], strict=True))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            words = argument if name == "GLOBAL" else " ".join(map(_text, [stack.pop(), stack.pop()][::-1]))
            if words not in NAMES:
                raise _Refused(f"It calls {words!r}, which is not run.")
            stack.append(_Name(NAMES[words]))
        elif name == "REDUCE":
            arguments = _expect(stack.pop(), tuple)
            stack.append(_call(_expect(stack.pop(), _Name).word, arguments, encode))
        elif name == "BUILD":
            state = _expect(stack.pop(), tuple)
            made = _expect(stack[-1], _Made)
            made.value = _array(state, encode) if made.word == "array" else made.value
        elif name == "STOP":
            return stack.pop()
        elif name not in IGNORED:
            raise _Refused(f"It has the instruction {name}, which is not run.")
    raise _Refused("It ends too early.")


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise _Refused(f"It has a {type(value).__name__} where a {kind.__name__} is expected.")
    return value


def _text(value: Any) -> str:
    return _expect(value, str)


def _pop_to_mark(stack: list[Any]) -> list[Any]:
    position = len(stack) - 1
    while stack[position] is not _MARK:
        position -= 1
        if position < 0:
            raise _Refused("A mark is missing.")
    values = stack[position + 1 :]
    del stack[position:]
    return values


class _Encoder:
    """Turns text into bytes, one byte per character, until a budget of bytes is spent."""

    def __init__(self, budget: int) -> None:
        self._budget = budget

    def __call__(self, text: str) -> bytes:
        self._budget -= len(text)
        if self._budget < 0:
            raise _Refused("It copies more bytes than it has.")
        return text.encode("latin-1")


def _call(word: str, arguments: tuple[Any, ...], encode: _Encoder) -> Any:
    if word == "encode":  # Python 3 writes bytes like this so that Python 2 can read them
        text, encoding = map(_text, arguments)
        if encoding not in ("latin1", "latin-1"):
            raise _Refused(f"It has the encoding {encoding!r}.")
        return encode(text)
    if word == "dtype":
        if _text(arguments[0]) not in ("u1", "|u1"):
            raise _Refused(f"Its arrays are of {arguments[0]!r}, not of uint8.")
        return _Made("dtype")
    if word == "array":
        return _Made("array")
    raise _Refused(f"It calls {word!r}, which is not run.")


def _array(state: tuple[Any, ...], encode: _Encoder) -> NDArray[np.uint8]:
    """Make an array from numpy's state: version, shape, type, whether it is in Fortran order, bytes."""
    _, shape, dtype, fortran, content = state
    if isinstance(content, str):  # a byte string of Python 2
        content = encode(content)
    sizes = [_expect(size, int) for size in _expect(shape, tuple)]
    if _expect(dtype, _Made).word != "dtype" or len(sizes) != 2 or min(sizes) < 0:
        raise _Refused("Its array has no type, or not two dimensions.")
    if sizes[0] * sizes[1] != len(_expect(content, bytes)):
        raise _Refused(f"Its array of shape {tuple(sizes)} has {len(content)} bytes.")
    return np.frombuffer(content, np.uint8).reshape(sizes, order="F" if fortran else "C")
