"""Ctrl-C is not lost, whatever runs at that moment."""

from __future__ import annotations

import ctypes
import sys
import threading
import time

import pytest

from hashgrove.runtime.interrupts import interruptible


@ctypes.CFUNCTYPE(None)
def losing():
    """A callback of compiled code: an exception cannot leave it."""
    raise KeyboardInterrupt


def test_what_a_callback_lost_is_raised_again():
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interruptible():  # noqa: PT012
        losing()
        time.sleep(120)
    assert time.monotonic() - started < 100


def test_a_failure_that_follows_is_an_interrupt_too():
    with pytest.raises(KeyboardInterrupt) as caught, interruptible():  # noqa: PT012
        losing()
        raise RuntimeError("no compiled object yet")
    assert isinstance(caught.value.__cause__, RuntimeError)
    time.sleep(0.3)  # a second interrupt would end this test


def test_a_block_that_ends_before_it_is_raised_again():
    with pytest.raises(KeyboardInterrupt), interruptible():
        losing()
    time.sleep(0.3)


def test_blocks_in_blocks():
    with pytest.raises(KeyboardInterrupt), interruptible(), interruptible():  # noqa: PT012
        losing()
        time.sleep(120)


def test_a_kernel_that_was_interrupted():
    with pytest.raises(KeyboardInterrupt), interruptible():  # noqa: PT012
        try:
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt as error:
                raise SystemError("returned a result with an exception set") from error
        except SystemError as error:
            raise SystemError("again") from error


@pytest.mark.parametrize("error", [ValueError, SystemError])
def test_other_errors_stay_as_they_are(error):
    with pytest.raises(error), interruptible():
        raise error


def test_other_things_that_nobody_can_catch_are_reported_as_before(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    hook = sys.unraisablehook

    @ctypes.CFUNCTYPE(None)
    def failing():
        raise ZeroDivisionError

    with interruptible():
        failing()
    assert [unraisable.exc_type for unraisable in reported] == [ZeroDivisionError]
    assert sys.unraisablehook == hook


def test_other_threads_leave_the_hook_alone():
    seen = []

    def work():
        with interruptible():
            seen.append(sys.unraisablehook)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [sys.unraisablehook]
