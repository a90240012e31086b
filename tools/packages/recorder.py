"""A pytest plugin, loaded into the process that runs a file: it writes each case's outcome at once,
ends a case that takes too long, and leaves out cases for which an earlier process has an outcome.

So a process that dies loses only the outcome of the case in which it died. The name of that case is
in the file too, and the next process continues behind it.
"""

import json
import os
import signal

import pytest

#: A line for each case that began, and one for its outcome.
FILE = os.environ["PACKAGES_OUTCOMES"]
#: Seconds of processor time that a case may take. Its wall time may be `WAIT` times as long, so
#: that a busy machine fails no case.
LIMIT = int(os.environ["PACKAGES_CASE_LIMIT"])
WAIT = 5


def _lines():
    if not os.path.exists(FILE):
        return []
    with open(FILE, encoding="utf-8") as opened:
        return [json.loads(line) for line in opened]


def _write(**line):
    with open(FILE, "a", encoding="utf-8") as opened:
        opened.write(json.dumps(line) + "\n")


def pytest_configure():
    """Tests of Google's libraries expect that `absltest.main` has parsed the flags."""
    try:
        from absl import flags
    except ImportError:
        return
    flags.FLAGS(["pytest"], known_only=True)


def pytest_collection_modifyitems(config, items):
    """Leaves out the cases that have an outcome, and TensorFlow's `test_session`, which is no
    test.
    """
    done = {line["case"] for line in _lines() if "case" in line}
    left = [i for i in items if i.nodeid not in done and i.name != "test_session"]
    config.hook.pytest_deselected(items=[i for i in items if i not in left])
    items[:] = left


def pytest_collectreport(report):
    """Records a file that cannot be imported as a case that fails."""
    if report.failed:
        _write(case="(import)", outcome="failed", message=_short(str(report.longrepr)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Ends a case after its time. A case that waits in C code is ended by the limit for the
    process.
    """

    def expired(*_):
        raise TimeoutError(f"more than {LIMIT} s of processor time, or {WAIT * LIMIT} s")

    _write(begun=item.nodeid)
    clocks = [
        (signal.SIGPROF, signal.ITIMER_PROF, LIMIT),
        (signal.SIGALRM, signal.ITIMER_REAL, WAIT * LIMIT),
    ]
    previous = [signal.signal(number, expired) for number, _, _ in clocks]
    for _, timer, seconds in clocks:
        signal.setitimer(timer, seconds)
    try:
        return (yield)
    finally:
        for (number, timer, _), handler in zip(clocks, previous):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


_reports = {}


def pytest_runtest_logreport(report):
    """Writes the outcome when the case is torn down: the worst of its three phases."""
    worst = _reports.setdefault(report.nodeid, {"outcome": "passed", "message": "", "seconds": 0})
    worst["seconds"] = round(worst["seconds"] + report.duration, 1)
    if report.failed and worst["outcome"] != "failed":
        worst.update(outcome="failed", message=_short(str(report.longrepr)))
    elif report.skipped and worst["outcome"] == "passed":
        worst.update(outcome="skipped")
    if report.when == "teardown":
        _write(case=report.nodeid, **_reports.pop(report.nodeid))


def _short(text):
    """The lines that pytest marks as the error, else the end."""
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return "\n".join(errors)[:1000] or text[-1000:]
