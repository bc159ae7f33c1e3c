# What the rules share: the plans, and functions from wildcards to files.
import sys
from contextlib import suppress
from functools import lru_cache, wraps
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger
from snakemake_interface_executor_plugins.settings import ExecMode

sys.path.insert(0, str(Path(workflow.basedir)))
from harness.core import paths
from harness.core.config import CONFIG, ROOT, scales
from harness.core.errors import UserError
from harness.grid.robustbench import entries
from harness.grid.plan import Plan
from harness.jobs.follow import SECONDS, Job, follow
from harness.jobs.resources import Machine, guess
from harness.jobs.workplace import check_writable
from harness.jobs.zygote import launch
from harness.reports.manifest import CHANGED, CURRENT, NOW, UNKNOWN, Manifest, no_future


def in_one_sentence(function):
    """A mistake in the config stops the workflow with one sentence."""

    @wraps(function)
    def stopping(*arguments):
        try:
            return function(*arguments)
        except UserError as error:
            raise WorkflowError(str(error)) from None

    return stopping


SCALE = str(config.get("scale", "smoke"))
GRID = str(config.get("grid", CONFIG / "grid.yaml"))
JOBS = config.get("jobs")  # that share an evaluation, if not as many as the scale says
RESULTS = Path("results")
# What a person sees of a build. A batch system's jobs are Snakemakes too, and nobody watches those.
FOLLOWED = workflow.exec_mode == ExecMode.DEFAULT
FOLLOWER = follow(logger, workflow.output_settings) if FOLLOWED else None
# Where jobs have an environment of their own (--sdm conda, --sdm apptainer), `python` is that environment's,
# and it takes harness/ from here. Otherwise jobs run in Snakemake's.
DEPLOYED = bool(workflow.deployment_settings.deployment_method)
PYTHON = ["env", f"PYTHONPATH={workflow.basedir}", "python"]
if not DEPLOYED:
    PYTHON = [sys.executable]
STATE = Path(".snakemake")  # of Snakemake, for a dry run too
in_one_sentence(check_writable)([STATE, *STATE.glob("*/"), RESULTS, Path("reports")])
MACHINE = in_one_sentence(Machine.of)(config)
DEVICE = MACHINE.device

if JOBS is not None and not (isinstance(JOBS, int) and JOBS > 0):
    raise WorkflowError(
        f"expected a number of jobs from 1 on, found {JOBS!r}; write --config jobs=4."
    )


RUNS = {}  # run -> the plan that has it, of the scales that were planned so far


@lru_cache
@in_one_sentence
def plan(scale):
    found = Plan.read(scale, Path(GRID))
    known = [*found.runs, *found.trunks.owners]
    RUNS.update({run: found for run in known if run not in RUNS})
    return found


def plan_of(run):
    """The plan that has a run. Reports of another scale, asked for by path, planned theirs already;
    only a job of a batch system, which is given nothing but the run, may have to look.
    """
    if run in RUNS:  # asked for each job
        return RUNS[run]
    for scale in scales():
        plan(scale)
        if run in RUNS:
            return RUNS[run]
    raise WorkflowError(
        f"expected a run that a scale plans, found {run!r}; "
        f"`generalist-bench plan --runs --scale {SCALE}` lists them."
    )


def records_of(scale, runs):
    return [
        str(paths.records(RESULTS, plan(scale).evaluations[run].id)) for run in runs
    ]


def parts_of(run, fingerprint):
    """What the jobs say that share an evaluation; a single job does it all by itself."""
    jobs = JOBS or plan_of(run).jobs
    evaluation = f"{run}-{fingerprint}"
    numbers = range(1, jobs + 1) if jobs > 1 else ()
    return [str(paths.part(RESULTS, evaluation, number, jobs)) for number in numbers]


@in_one_sentence
def claim_files(scale):
    """What the claims are judged on: records, and the checks of the models behind them."""
    from harness.papers.claims import read, runs

    found = read(plan(scale))
    named = dict.fromkeys(name for claim in found for name in claim.artefacts)
    checks = [
        check_file(scale, name) for name in named if name in plan(scale).artefacts
    ]
    sources = [CONFIG / "claims.yaml", ROOT / "reports" / "published" / "values.csv"]
    return [*map(str, sources), *records_of(scale, runs(plan(scale), found)), *checks]


@lru_cache(maxsize=None)
def processes(run):
    """How many processes train a run side by side; each gets the scale's threads."""
    plan = plan_of(run)
    return max(plan.run(run).processes, plan.data_parallel(run))


def parents_of(run):
    parents = plan_of(run).run(run).parents
    return [str(paths.model(RESULTS, parent)) for parent in parents]


def states_of(run, end=None):
    """The states that a training starts from. A model that is there keeps those that it was given: so no
    plan that changes, and no state that is gone, asks for it again.
    """
    plan = plan_of(run)
    own = plan.trunks.stretch(plan.run(run), end)
    given = [(owner.id, own.begin) for owner in own.owners]
    if end is None and paths.model(RESULTS, run).exists():
        with suppress(UserError):  # a damaged run.json is named where it is used
            given = paths.read_description(RESULTS, run).get("states", [])
    return [ancient(str(paths.state(RESULTS, *state))) for state in given]


@lru_cache(maxsize=None)
def evaluation_of(run):
    """The spec of an evaluation, which all of its parts are given."""
    return plan_of(run).evaluation_spec(run)


def asks(job):
    """A rule's `resources`: job is `MACHINE.train` or `MACHINE.evaluate`. On one machine Snakemake counts
    what `--resources` limits and ignores the rest; a cluster is asked for all of it."""

    @lru_cache(maxsize=None)
    def request(run, attempt, parts):
        return job(plan_of(run), run, attempt, parts)

    def ask(wildcards, attempt):
        return request(wildcards.run, attempt, int(wildcards.get("parts", 1)))

    return {
        "runtime": lambda wildcards, attempt: ask(wildcards, attempt).minutes,
        "mem_mb": lambda wildcards, attempt: ask(wildcards, attempt).megabytes,
        "gpu": lambda wildcards, attempt: ask(wildcards, attempt).gpus,
    }


@in_one_sentence
def artefact(scale, name):
    return plan(scale).artefact(name)


def source_files(scale, name):
    """Numbers are made of records; a figure of training, of what the runs wrote down."""
    wanted = artefact(scale, name)
    if wanted.columns:
        return records_of(scale, wanted.runs)
    places = (paths.history, paths.trace)
    return [str(place(RESULTS, run)) for run in wanted.runs for place in places]


def entries_of(scale):
    return entries(plan(scale).artefacts)


@in_one_sentence
def leaderboard_files(scale):
    """Tables that have an AutoAttack number, other people's reports, published numbers."""
    found = [
        entry.artefact.name for some in entries_of(scale).values() for entry in some
    ]
    tables = [f"reports/{scale}/tables/{name}.csv" for name in dict.fromkeys(found)]
    printed = [
        CONFIG / "papers.yaml",
        ROOT / "reports" / "published" / "robustbench.csv",
    ]
    return [*tables, *map(str, [*RESULTS.glob("external/*/report.json"), *printed])]


@in_one_sentence
def entry_files(scale):
    """What RobustBench's entries are made of."""
    from harness.reports.robustbench import read

    read(
        plan(scale)
    )  # config/papers.yaml: a mistake in it is said now, not after the last training
    found = [entry for some in entries_of(scale).values() for entry in some]
    checks = [check_file(scale, entry.artefact.name) for entry in found]
    return [
        *records_of(scale, dict.fromkeys(e.run for e in found)),
        *dict.fromkeys(checks),
    ]


def check_file(scale, name):
    return artefact_files(scale, name)[-1]


def artefact_files(scale, name):
    wanted = artefact(scale, name)
    stem = f"reports/{scale}/{wanted.folder}/{name}"
    return [stem + suffix for suffix in wanted.suffixes]


@lru_cache
def reports_of(scale):
    """Report -> the files that it is made of, and the files that it is."""
    made = {
        name: (source_files(scale, name), artefact_files(scale, name))
        for name in plan(scale).artefacts
    }
    shown = [file for _, files in made.values() for file in files]
    claims = [f"reports/{scale}/claims{suffix}" for suffix in (".csv", ".md")]
    page = [f"reports/{scale}/index.html"]
    models = [f"reports/{scale}/robustbench/{name}.json" for name in entries_of(scale)]
    return {
        **made,
        "claims": (claim_files(scale), claims),
        "index": ([*shown, claims[0]], page),
        "robustbench": (entry_files(scale), models),
        "manifest": ([*page, *models], [*page, *models]),
    }


@lru_cache
def due(file):
    """Is it a record that is older than its model? Then Snakemake makes it again."""
    record = Path(file)
    if record.suffix != ".npz" or not record.exists():
        return False
    run = record.stem.rpartition("-")[0]
    made_of = [paths.model(RESULTS, run), paths.description(RESULTS, run)]
    times = [path.stat().st_mtime_ns for path in made_of if path.exists()]
    return any(time > record.stat().st_mtime_ns for time in times)


@lru_cache
def report_state(scale, report):
    """What checksums say of a report: harness/reports/manifest.py. If a record or another report that it
    is made of may be made again, only times can tell.
    """
    reports = reports_of(scale)
    state, inputs = manifest(scale).state(report, *reports[report]), set(
        reports[report][0]
    )
    parts = [
        name
        for name, (_, files) in reports.items()
        if name not in (report, "manifest") and inputs.intersection(files)
    ]
    if state != CURRENT:
        return state
    again = any(report_state(scale, part) != CURRENT for part in parts)
    return UNKNOWN if again or any(map(due, inputs)) else CURRENT


@lru_cache
def manifest(scale):
    return Manifest(plan(scale), Path("reports"))


def current(scale, report):
    """A report's inputs. Where checksums prove that it is made of them, their times do not count (git
    keeps none). Where they prove that it is to show something else, it is older than `NOW`.
    """
    if report not in reports_of(scale):
        artefact(scale, report)  # says which names there are
    inputs, state = reports_of(scale)[report][0], report_state(scale, report)
    if state == CURRENT:
        inputs = [ancient(file) for file in inputs]
    return [*inputs, NOW if state == CHANGED else ancient(NOW)]


def expected(job):
    """A job as a person wants to read of it: its rule, its model or artefact, how long it may take."""
    known, rule = dict(job.wildcards_dict), job.rule.name
    run = known.get("run")
    if run is None:
        name = next((known[key] for key in ("artefact", "set") if key in known), "")
        return Job(rule, name, SECONDS)
    joins = rule == "evaluate" and parts_of(run, known["hash"])
    parts = int(known.get("parts", 1))
    end = int(known["end"]) if rule == "trunk" else None
    seconds = SECONDS if joins else guess(plan_of(run), rule, run, parts, end)
    return Job(rule, run.rpartition("-")[0], seconds)


onstart:
    if FOLLOWER:
        FOLLOWER.begin(
            {job.jobid: expected(job) for job in workflow.dag.needrun_jobs()}
        )
    no_future(RESULTS.glob("models/*/*"))
    no_future(RESULTS.glob("records/*.npz"))
    no_future(Path("reports", SCALE).rglob("*"))
    # One process imports torch; train and evaluate are forked from it. Not a batch system's jobs, nor those
    # that have an environment of their own.
    if workflow.local_exec and not DEPLOYED:
        launch()


# Planned here so that a bad config is reported before anything else.
plan(SCALE)


wildcard_constraints:
    run=r"[\w.]+-[\w.]+-[\w.]+-s\d+-[0-9a-f]{10}",
    hash=r"[0-9a-f]{10}",
    artefact=r"\w+",
    scale=r"\w+",
    set=r"[\w-]+",
    part=r"\d+",
    parts=r"\d+",
    end=r"\d+",
