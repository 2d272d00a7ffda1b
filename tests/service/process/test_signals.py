"""Tests of Ctrl-C and other stop signals while a command runs."""

import signal
import threading
from contextlib import closing
from functools import partial
from unittest.mock import Mock

import pytest

from mlcl.service.process import signals
from mlcl.service.process.signals import STOP_SIGNALS, stop_on_signal

press = partial(signal.raise_signal, signal.SIGINT)


@pytest.fixture(autouse=True)
def handlers(monkeypatch):
    """Makes signals in quick succession count separately, and checks that the test restores all handlers."""
    monkeypatch.setattr(signals, "SAME", 0.0)
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    yield
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_signals_that_come_together_are_one(monkeypatch):
    monkeypatch.setattr(signals, "SAME", 0.5)
    with stop_on_signal() as stop:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
        assert stop()


def test_the_second_of_two_signals_may_come_when_all_is_done(monkeypatch):
    monkeypatch.setattr(signals, "SAME", 1.0)
    second = threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    with stop_on_signal() as stop:
        press()
        second.start()
    second.join()  # the second signal raised no KeyboardInterrupt
    assert stop()


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_the_first_signal_asks_and_the_second_insists(number):
    with stop_on_signal() as stop:
        assert not stop()
        signal.raise_signal(number)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


def test_a_shield_keeps_even_a_second_signal_out():
    with stop_on_signal() as stop:
        with stop.shielded():
            with stop.shielded():
                press()
            for _ in range(3):
                press()
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            press()


def test_one_signal_interrupts_what_may_be_interrupted_also_within_a_shield():
    with stop_on_signal() as stop, stop.shielded():
        with pytest.raises(KeyboardInterrupt), stop.interruptible(), closing(Mock(close=press)):
            press()
        assert stop()
        press()  # after the `with` block the shield applies again
        with pytest.raises(KeyboardInterrupt), stop.interruptible():
            press()


def test_after_an_error_and_outside_of_the_main_thread_no_handler_is_installed():
    results, before = [], signal.getsignal(signal.SIGINT)

    def work():
        with stop_on_signal() as stop:
            stop.set()
            results.append((stop(), signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [(True, before)]
    with pytest.raises(RuntimeError), stop_on_signal():
        raise RuntimeError
    assert signal.getsignal(signal.SIGINT) is before
