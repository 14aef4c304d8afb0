"""The signals that ask a process of tidelog to stop.

SIGHUP comes when the terminal closes. A process that was started to outlive it (nohup) finds it
ignored, and leaves it so.
"""

from __future__ import annotations

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    hung_up = getattr(signal, "SIGHUP", None)  # Windows has none
    if hung_up is None or signal.getsignal(hung_up) is signal.SIG_IGN:
        return signal.SIGTERM, signal.SIGINT
    return signal.SIGTERM, signal.SIGINT, hung_up
