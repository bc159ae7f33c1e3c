"""Which runs start from the states of which others, and the trunks that leave these states.

A relation between runs that is no part of their identity: a run alone ends with the same bits.

A run's parts are the methods that train without each other at first. A part is trained by its owner:
itself or, if that is wanted too, the average of it, which contains it. The epochs that an owner's users
share are trained once. A run that shares no part with another is trained whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.grid.artefacts import Artefact
from harness.training.averaged import Averaged
from harness.training.contracts import Method
from harness.training.runs import Selection, Stretch, TrainRun, parts

Family = tuple[Any, ...]  # runs of one family have the same batches at the same steps
Owner = tuple[Family, Method]


class Trunks:
    """How the runs of a plan start, and the trunks for that."""

    def __init__(self, runs: Mapping[str, TrainRun], artefacts: Iterable[Artefact]) -> None:
        # A figure of training shows how the learners differ, also while they are alone.
        figures = [own.runs for own in artefacts if not own.columns]
        whole = {run for own in figures for run in own if len(parts(runs[run].method)) > 1}
        self.starts = branches(tuple(runs.values()), whole)
        self.trunks = trunks(self.starts)
        self.owners = {trunk.run.id: trunk.run for trunk in self.trunks.values()}

    def stretch(self, run: TrainRun, end: int | None = None) -> Stretch:
        """A run from where it starts, or the trunk of it that ends there."""
        return self.trunks[run.id, end] if end else self.starts.get(run.id, Stretch(run))


def branches(runs: Sequence[TrainRun], whole: Collection[str]) -> dict[str, Stretch]:
    """Run -> how it starts from the states of others. All in `whole` are trained whole."""
    candidates = [run for run in runs if run.id not in whole and not run.watch and _alone(run)]
    averages: dict[Owner, Method] = {}  # what an average contains -> that average
    for run in candidates:
        for part in parts(run.method):
            if isinstance(part, Averaged):
                averages.setdefault((_family(run), part.of), part)

    def owners(run: TrainRun) -> list[Owner]:
        family = _family(run)
        return [(family, averages.get((family, part), part)) for part in parts(run.method)]

    users: dict[Owner, list[TrainRun]] = defaultdict(list)
    for run in candidates:
        for owner in owners(run):
            users[owner].append(run)
    known = {(_family(run), run.method): run for run in reversed(runs)}
    found = {}
    for run in candidates:
        own = owners(run)
        if any(len(users[owner]) > 1 for owner in own):
            trained = tuple(known.get(owner) or _owner(owner[1], users[owner][0]) for owner in own)
            found[run.id] = Stretch(run, _begin(run, users[own[0]]), trained)
    return found


def trunks(starts: Mapping[str, Stretch]) -> dict[tuple[str, int], Stretch]:
    """(Owner, epoch) -> the trunk that leaves its state there, from its state before that."""
    users: dict[TrainRun, list[Stretch]] = defaultdict(list)
    for start in starts.values():
        for owner in start.owners:
            users[owner].append(start)
    found = {}
    for owner, own in users.items():
        before = 0
        for end in sorted({start.begin for start in own}):
            judges = {
                start.judge: None for start in own if _judged(start, owner) and start.begin >= end
            }
            again = (owner,) if before else ()
            found[owner.id, end] = Stretch(owner, before, again, end, tuple(judges))
            before = end
    return found


def _judged(start: Stretch, owner: TrainRun) -> bool:
    return start.run.selection.use != "last" and start.owners[0] == owner


def _alone(run: TrainRun) -> int:
    """The epochs in which a run's parts do not see each other; its processes neither."""
    share = getattr(run.method, "alone_until", 1)
    return 0 if run.processes > 1 else max(0, int(share * run.recipe.epochs))


def _begin(run: TrainRun, users: list[TrainRun]) -> int:
    """Learners' runs go on from the latest of the states that others need, or end with another one."""
    alike = [user for user in users if len(parts(user.method)) == 1]
    if len(parts(run.method)) > 1 or len(alike) > 1:
        return _alone(run)
    return max(_alone(user) for user in users if user is not run)


def _family(run: TrainRun) -> Family:
    on_test = run.selection.use == "paper-test"  # then the training set is another one
    return (run.dataset, run.network, run.recipe, run.seed, run.parents, on_test)


def _owner(method: Method, user: TrainRun) -> TrainRun:
    """A training that no table shows, so its id depends on no user's selection but for the images."""
    on_test = user.selection.use == "paper-test"
    return replace(user, method=method, selection=user.selection if on_test else Selection())
