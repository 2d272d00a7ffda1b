"""Ctrl-C and the signals like it, while a command runs."""

import os
import signal
import threading
from contextlib import closing
from functools import partial
from unittest.mock import Mock

import pytest

from mlcl.service.process import signals
from mlcl.service.process.signals import STOP_SIGNALS, stop_on_signal


@pytest.fixture(autouse=True)
def each(monkeypatch):
    """Every signal counts, however soon it comes."""
    monkeypatch.setattr(signals, "SAME", 0.0)


def test_signals_that_come_together_are_one(monkeypatch):
    monkeypatch.setattr(signals, "SAME", 0.5)
    with stop_on_signal() as stop:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        assert stop()


def test_the_second_of_two_signals_may_come_when_all_is_done(monkeypatch):
    monkeypatch.setattr(signals, "SAME", 1.0)
    before = signal.getsignal(signal.SIGINT)
    second = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    with stop_on_signal():
        os.kill(os.getpid(), signal.SIGINT)
        second.start()
    second.join()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_the_first_signal_asks_and_the_second_insists(number):
    before = signal.getsignal(number)
    with stop_on_signal() as stop:
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_shield_keeps_even_a_second_signal_out():
    with stop_on_signal() as stop:
        with stop.shielded():
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_one_signal_interrupts_what_may_be_interrupted_also_within_a_shield():
    ask = partial(os.kill, os.getpid(), signal.SIGINT)
    with stop_on_signal() as stop, stop.shielded():
        with pytest.raises(KeyboardInterrupt), stop.interruptible(), closing(Mock(close=ask)):
            ask()
        assert stop()
        ask()  # the shield is back
        with pytest.raises(KeyboardInterrupt), stop.interruptible():
            ask()


def test_handlers_are_put_back_after_an_error():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError), stop_on_signal():
        raise RuntimeError
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_of_the_main_thread_nothing_is_installed():
    seen = []

    def work():
        with stop_on_signal() as stop:
            stop.set()
            seen.append(stop())

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
    assert signal.getsignal(signal.SIGINT) is before
