"""The line that a person sees of a build: on a terminal of any width, and in a pipe."""

import io
import logging
import os
import sys
import termios
from types import SimpleNamespace

import pytest

from harness.jobs.follow import Follower, Job, Pace, Screen, follow
from harness.jobs.resources import guess

JOBS = {
    1: Job("train", "digits-tiny-nt-s0", 10.0),
    2: Job("train", "digits-tiny-at-s0", 30.0),
    3: Job("table", "cvpr23_table1a", 2.0),
}


def record(event: str | None, text: str = "", level: int = logging.INFO, **told) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, "levelno": level, "event": event, **told})


@pytest.fixture
def follower():
    stream = io.StringIO()
    found = Follower(logging.StreamHandler(stream), stream)
    yield found
    found.close()


def said(follower: Follower) -> list[str]:
    return follower.screen.stream.getvalue().splitlines()


def test_a_build_in_a_pipe(follower):
    for text in ("Building DAG of jobs...", "Using shell: /bin/bash"):
        follower.handle(record(None, text))
    follower.handle(record("run_info", "Job stats: ..."))
    follower.begin(JOBS)
    assert said(follower) == ["0/3 jobs, 0/2 models"]
    follower.handle(record("job_info", jobid=1))
    assert follower.line() == "0/3 jobs, 0/2 models | train digits-tiny-nt-s0"
    follower.running[1] -= 20  # twice as long as expected
    follower.began -= 20
    follower.handle(record("job_finished", job_id=1))
    follower.handle(record("progress", done=1, total=3))
    assert follower.line() in {
        f"1/3 jobs, 1/2 models, {left} left" for left in ("1:04", "1:03")
    }  # 2 * 32
    assert len(said(follower)) == 1  # it is not yet time for another one
    follower.handle(record(None, "Select jobs to execute..."))
    follower.handle(record(None, "Complete log(s): here"))
    assert said(follower)[1:] == [
        "1 of 3 jobs done, 1 models trained, in 0:20",
        "Complete log(s): here",
    ]


def test_a_failed_job_is_told_with_its_log(follower, tmp_path):
    log = tmp_path / "at.log"
    log.write_text("\n".join(f"line {i}\x1b[2J" for i in range(50)) + "\n\nerror: expected a model\n")
    follower.begin(JOBS)
    follower.handle(record("job_info", jobid=2))
    error = "RuleException:\nCalledProcessError in file Snakefile, line 5:\nCommand ... returned"
    follower.handle(record("error", error, logging.ERROR))
    told = {"rule_name": "train", "jobid": 2, "log": [str(log)]}
    follower.handle(record("job_error", "Error in rule", logging.ERROR, **told))
    lines = said(follower)
    assert f"failed: train digits-tiny-at-s0, log: {log}" in lines
    assert "    error: expected a model" in lines
    assert len(lines) == 1 + 1 + 10  # the end of a long log
    assert not any("CalledProcessError" in line or "\x1b" in line for line in lines)
    assert follower.line() == "0/3 jobs, 1 failed, 0/2 models"
    follower.handle(record(None, "Trying to restart job 2."))
    assert "failed" not in follower.line()


def test_what_must_be_read_is_shown(follower):
    follower.handle(record(None, "Nothing to be done (all requested files are present)."))
    follower.handle(record("error", "MissingRuleException: nosuch", logging.ERROR))
    follower.begin(JOBS)
    follower.handle(record(None, "a warning", logging.WARNING))
    follower.handle(record(None, "Job 5 has been submitted with SLURM jobid 7"))
    follower.handle(record(None, "Terminating processes on user request, this might take some time."))
    text = "\n".join(said(follower))
    for shown in ("Nothing to be done", "nosuch", "a warning", "Terminating"):
        assert shown in text
    assert "submitted" not in text


@pytest.mark.parametrize("columns", [80, 40])
def test_a_terminal_has_one_line_that_is_never_wider_than_it(columns, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    with os.fdopen(theirs, "w") as stream:
        screen = Screen(stream)
        for text in ("x" * 200, "second"):
            screen.draw(text)
        screen.say("done")
        shown = ""
        while "done\r\n" not in shown:  # a terminal passes on what was written in pieces
            shown += os.read(ours, 10_000).decode()
    os.close(ours)
    first, second, done = shown.removeprefix("\r\x1b[K").split("\r\x1b[K")
    assert first == "x" * (columns - 1)
    assert second == "second"
    assert done.strip() == "done"
    assert shown.count("\n") == 1


def test_a_closed_pipe_ends_no_build():
    read, write = os.pipe()
    os.close(read)
    with (
        pytest.raises(BrokenPipeError),
        os.fdopen(write, "w") as stream,
    ):  # what is left, when it closes
        Screen(stream).draw("a line", now=True)


def test_time_left_follows_each_kind_of_job():
    pace = Pace()
    assert pace.left(JOBS.values(), []) is None
    pace.add(JOBS[1], 5.0)  # half of what was expected
    pace.add(JOBS[3], 6.0)  # three times
    assert pace.left([JOBS[2], JOBS[3]], []) == 15 + 6
    assert pace.left([], [(JOBS[2], 10.0), (JOBS[3], 100.0)]) == 5
    assert pace.left([Job("page", "", 6.0)], []) == 6 * 11 / 12  # of no known kind


def test_a_user_who_wants_snakemakes_lines_gets_them():
    settings = {"dryrun": False, "verbose": False, "quiet": None, "stdout": False}
    for other in ({"dryrun": True}, {"verbose": True}, {"quiet": {"all"}}, {"stdout": True}):
        logger, own = logging.Logger("one"), logging.StreamHandler(sys.stderr)
        own.name = "DefaultStreamHandler"
        logger.addHandler(own)
        assert follow(logger, SimpleNamespace(**{**settings, **other})) is None
        assert logger.handlers == [own]
    follower = follow(logger, SimpleNamespace(**settings))
    assert logger.handlers == [follower]
    assert follow(logging.Logger("of a plugin"), SimpleNamespace(**settings)) is None


def test_jobs_of_more_work_are_expected_to_take_longer(plan):
    averaged = ("nt_averaged", "at_averaged")
    nt, at = (plan.train_run(slug, "cifar10", "resnet18", seed=0).id for slug in averaged)
    assert guess(plan, "trunk", at, end=1) > guess(plan, "trunk", nt, end=1) > 1
    assert guess(plan, "train", at) == 1  # its trunk goes to the end
    assert guess(plan, "evaluate", at) > guess(plan, "evaluate_part", at, parts=4) > 1
