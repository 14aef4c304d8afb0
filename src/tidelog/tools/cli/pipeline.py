"""`tidelog pipeline COMMAND DIR`: pipelines declared in one file, run by Spark.

    init       writes a commented example
    validate   checks the file, shows schemas and plans; with --structure without Spark
    test       runs the tests of a pipeline on Spark, without a broker
    plan       what a run would do to each query of the checkpoint, without Spark
    run        runs the queries with live figures, until Ctrl-C or the end of the data
    status     what runs, from another process
    restart    starts one query of a running pipeline again
    package    makes one archive for a Spark whose workers have no tidelog
    export     writes a project of Spark Declarative Pipelines

Every problem of a file is a line on standard error with the file, the line and the fix. Spark's own
log goes to spark.log beside the file.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tidelog import __version__
from tidelog.pipeline.declaration.parts import PipelineError
from tidelog.pipeline.spark_errors import spark_failures, summary
from tidelog.tools.cli.frame import CommandFailed, Group, together

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipeline.declaration.parts import Pipeline
    from tidelog.pipeline.queries.running import RunningPipeline

LOG_NAME = "spark.log"
POLL_S = 0.5


class Wishes(NamedTuple):
    """What the options say; None where they say nothing."""

    folder: Path
    master: str | None = None
    remote: str | None = None
    bootstrap: str | None = None
    spark_log: bool = False
    trigger: str | None = None
    checkpoint: str | None = None
    new_state: tuple[str, ...] = ()
    keep_state: tuple[str, ...] = ()
    package: Path | None = None


folder_argument = click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
spark_options = together(
    click.option("--master", metavar="URL", help="A Spark master; local[*] by default."),
    click.option("--remote", metavar="URL", help="Spark Connect, sc://host:15002."),
    click.option("--bootstrap", metavar="HOST:PORT", help="Brokers to use."),
    click.option("--spark-log", is_flag=True, help=f"Spark's log here, not in {LOG_NAME}."),
)


@click.group("pipeline", cls=Group)
def command() -> None:
    """Make, check and run data pipelines on Spark."""


@command.command("init")
@folder_argument
def init_command(folder: Path) -> int:
    """Write a commented example into DIR."""
    return reporting(lambda: init(folder))


@command.command("validate")
@folder_argument
@click.option("--structure", is_flag=True, help="Check the file alone, without Spark.")
@spark_options
def validate_command(structure: bool, **given: Any) -> int:
    """Check the file in DIR, show schemas and plans."""
    wishes = Wishes(**given)
    return reporting(
        lambda: hiding(load(wishes), lambda made: validate(made, wishes, structure=structure))
    )


@command.command("test")
@folder_argument
@spark_options
def test_command(**given: Any) -> int:
    """Run the tests of the pipeline in DIR, without a broker."""
    wishes = Wishes(**given)
    return reporting(lambda: run_tests(load(wishes), wishes))


checkpoint_option = click.option(
    "--checkpoint", metavar="PATH", help="Where to keep how far it has come."
)


@command.command("plan")
@folder_argument
@checkpoint_option
def plan_command(**given: Any) -> int:
    """Show what a run would do to each query."""
    return reporting(lambda: plan(load(Wishes(**given))))


@command.command("run")
@folder_argument
@click.option("--trigger", metavar="TEXT", help='"1 second", "available-now", ...')
@checkpoint_option
@click.option(
    "--new-state",
    metavar="QUERY",
    multiple=True,
    help="Set its checkpoint aside and read from the start.",
)
@click.option(
    "--keep-state",
    metavar="QUERY",
    multiple=True,
    help="Go on with its state, though the file has changed.",
)
@click.option(
    "--package",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What `pipeline package` made, for workers without tidelog.",
)
@spark_options
def run_command(**given: Any) -> int:
    """Run the pipeline in DIR, with live figures."""
    wishes = Wishes(**given)
    return reporting(lambda: hiding(load(wishes), lambda made: execute(made, wishes)))


@command.command("package")
@folder_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The archive to write; NAME.zip by default.",
)
def package_command(folder: Path, output: Path | None) -> int:
    """Make one archive for Spark workers without tidelog."""
    return reporting(lambda: package(load(Wishes(folder)), output))


@command.command("export")
@folder_argument
@click.option(
    "--sdp",
    "project",
    type=click.Path(path_type=Path),
    metavar="DIR",
    required=True,
    help="A new folder for the Spark Declarative Pipelines project.",
)
@click.option("--bootstrap", metavar="HOST:PORT", help="Brokers to use.")
def export_command(project: Path, **given: Any) -> int:
    """Write the pipeline in DIR as a project for spark-pipelines."""
    return reporting(lambda: export(load(Wishes(**given)), project))


@command.command("status")
@folder_argument
def status_command(folder: Path) -> int:
    """Show how far the running pipeline is."""
    return reporting(lambda: status(beside(folder)))


@command.command("restart")
@folder_argument
@click.argument("query")
@click.option("--timeout", "timeout_s", default=60.0, metavar="SECONDS", help="60 by default.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def restart_command(folder: Path, query: str, timeout_s: float, dry_run: bool) -> int:
    """Start one query of the running pipeline again."""
    return reporting(lambda: restart(beside(folder), query, timeout_s, dry_run=dry_run))


def reporting(do: Callable[[], int]) -> int:
    """Problems of a pipeline's file have lines of their own; what Spark does not like is one line,
    wherever it was met."""
    try:
        return do()
    except PipelineError as error:
        print(error, file=sys.stderr)
        return 1
    except UnicodeDecodeError as error:
        raise CommandFailed(f"a file of the pipeline is not UTF-8: {error}") from error
    except spark_failures() as error:
        raise CommandFailed(f"Spark: {summary(error)}") from error


def hiding(pipeline: Pipeline, do: Callable[[Pipeline], int]) -> int:
    """Problems of a pipeline show its references instead of their values."""
    from tidelog.spark.references import without_values

    try:
        return do(pipeline)
    except PipelineError as error:
        problems = [
            problem._replace(message=without_values(problem.message, pipeline.references))
            for problem in error.problems
        ]
        raise PipelineError(*problems) from error


def init(folder: Path) -> int:
    from tidelog.pipeline.declaration.example import write_example

    file = write_example(folder)
    print(f"{file} written. Next:")
    quoted = shlex.quote(str(folder))
    print(f"  tidelog pipeline validate {quoted}")
    print(f"  tidelog pipeline run {quoted}      (with a broker: tidelog serve, or tidelog demo)")
    return 0


def load(wishes: Wishes) -> Pipeline:
    from tidelog.pipeline.declaration.file import load_pipeline

    names = ("trigger", "checkpoint", "master", "remote", "bootstrap")
    given = {name: getattr(wishes, name) for name in names}
    made = load_pipeline(wishes.folder, {name: text for name, text in given.items() if text})
    return made if wishes.package is None else from_package(made, wishes.package)


def from_package(pipeline: Pipeline, package: Path) -> Pipeline:
    from tidelog.pipeline.package import package_settings
    from tidelog.pipeline.spark_session import is_local, is_submitted

    if is_local(pipeline) or pipeline.remote or is_submitted():
        where = pipeline.remote or ("spark-submit" if is_submitted() else pipeline.master)
        raise CommandFailed(
            f"--package is for a Spark master such as spark://HOST:7077, and this runs on {where}"
        )
    settings = package_settings(package, pipeline.spark)
    return replace(pipeline, spark={**pipeline.spark, **settings})


def validate(pipeline: Pipeline, wishes: Wishes, *, structure: bool) -> int:
    counts = ", ".join(
        f"{len(parts)} {name}{'' if len(parts) == 1 else 's'}"
        for name, parts in (
            ("source", pipeline.sources),
            ("view", pipeline.views),
            ("sink", pipeline.sinks),
        )
    )
    used = f"values from {', '.join(pipeline.references)}" if pipeline.references else ""
    if structure:
        print(f"{pipeline.file}: the structure is valid: {counts}")
        if used:
            print(used)
        return 0

    from tidelog.pipeline.console.plan_report import plan_report
    from tidelog.pipeline.spark_session import open_session
    from tidelog.spark.references import without_values

    spark = open_session(pipeline, log_file(pipeline, wishes))
    try:
        lines = plan_report(spark, pipeline)
    finally:
        spark.stop()
    print(f"{pipeline.file} is valid: {counts}")
    if used:
        print(used)
    print(without_values("\n".join(lines), pipeline.references))
    return 0


def run_tests(pipeline: Pipeline, wishes: Wishes) -> int:
    """1 when rows differ; `-` marks rows that are missing, `+` those that nobody expected."""
    from tempfile import TemporaryDirectory

    from tidelog.pipeline.fixtures import FixtureRun, load_fixtures
    from tidelog.pipeline.spark_session import open_session

    if pipeline.remote:
        raise CommandFailed("tests run on a Spark in this process, not on Spark Connect")
    fixtures = load_fixtures(pipeline)
    spark = open_session(pipeline, log_file(pipeline, wishes))
    failed = 0
    try:
        for fixture in fixtures:
            started_s = time.monotonic()
            with TemporaryDirectory(prefix="tidelog-test-") as folder:
                found = FixtureRun(spark, pipeline, fixture, Path(folder)).differences()
            word = "differs" if found else "passes"
            print(f"{fixture.name} {word} ({time.monotonic() - started_s:.1f} s)")
            for difference in found:
                print("\n".join(difference.lines()))
            failed += bool(found)
    finally:
        spark.stop()
    print(f"{len(fixtures) - failed} of {len(fixtures)} tests pass")
    return 1 if failed else 0


def plan(pipeline: Pipeline) -> int:
    """1 when a run would refuse to start."""
    from tidelog.pipeline.queries.checkpoint import Checkpoint
    from tidelog.pipeline.queries.restart_plan import NEW_STATE, RestartPlan, plan_lines

    made = RestartPlan(pipeline, Checkpoint(pipeline))
    print(f"{pipeline.name} on the checkpoint {pipeline.checkpoint}")
    print("\n".join(plan_lines(made)))
    refused = [row.name for row in made.queries if row.outcome == NEW_STATE]
    if refused:
        print(f"\nrun refuses to start; --new-state {refused[0]} reads it from the start again,")
        print(f"--keep-state {refused[0]} goes on with the state that is there")
    return 1 if refused else 0


def execute(pipeline: Pipeline, wishes: Wishes) -> int:
    from tidelog.pipeline.console.progress_table import summary_line
    from tidelog.pipeline.queries.checkpoint import Checkpoint
    from tidelog.pipeline.queries.restart_plan import RestartPlan, allowed, refuse_occupied
    from tidelog.pipeline.queries.start import start_queries
    from tidelog.pipeline.spark_session import is_submitted, open_session
    from tidelog.pipeline.topics import prepare_topics
    from tidelog.stop_signals import interrupt_on_signals

    interrupt_on_signals()
    where = pipeline.remote or ("spark-submit's master" if is_submitted() else pipeline.master)
    spark: SparkSession | None = None
    running: RunningPipeline | None = None
    try:
        made = allowed(
            RestartPlan(pipeline, Checkpoint(pipeline)),
            new_state=wishes.new_state,
            keep_state=wishes.keep_state,
        )
        refuse_occupied(pipeline, made)
        if not pipeline.remote:
            prepared = prepare_topics(pipeline)
            for remark in prepared.remarks:
                print(f"warning: {remark}", file=sys.stderr)
            for topic in prepared.made:
                print(f"topic {topic} made")
        print(f"{pipeline.name}: starting Spark on {where} ...", flush=True)
        started_s = time.monotonic()
        spark = open_session(pipeline, log_file(pipeline, wishes))
        interrupt_on_signals()
        running = start_queries(spark, pipeline, made)
        print(
            f"{pipeline.name}: {len(running.queries)} queries, trigger {pipeline.trigger}, Spark "
            f"up in {time.monotonic() - started_s:.1f} s; Ctrl-C stops it\n"
        )
        watch(running)
        print(f"ended: {summary_line(running)}")
        running.raise_failure()
    except KeyboardInterrupt:
        print("stopped; the next run goes on from the checkpoint")
        if running is not None:
            print(f"until now: {summary_line(running)}")
            running.raise_failure()
    finally:
        if running is not None:
            running.stop()
        if spark is not None:
            spark.stop()
    return 0


def package(pipeline: Pipeline, output: Path | None) -> int:
    from tidelog.pipeline.package import RUN_FILE, UNPACKED, write_package
    from tidelog.spark.shipped import abi

    made = write_package(pipeline, output or Path(f"{pipeline.name}.zip"))
    kernel = "with" if made.has_kernel else "WITHOUT"
    needed = ", ".join(f"{name} {version}" for name, version in made.dependencies.items())
    print(f"{made.file}: {made.size_bytes / 1e6:.1f} MB for {abi()}, with")
    print(f"  tidelog {__version__} {kernel} its compiled record kernel")
    print(f"  {needed}")
    print(f"  the pipeline: {', '.join(made.pipeline_files)}")
    if made.left_out:
        print(f"and without {', '.join(made.left_out)} of the pipeline's folder")
    file, folder = shlex.quote(str(made.file)), shlex.quote(str(pipeline.folder))
    unpacked = f"{pipeline.name}-package".replace(" ", "-")
    print(f"""
Spark's workers need that Python with pyarrow and pandas, and nothing of tidelog. The checkpoint
must be where all of them can write. With tidelog on the driver's machine:

  tidelog pipeline run {folder} --master spark://HOST:7077 --package {file}

Without it:

  python3 -m zipfile -e {file} {unpacked}
  PYTHONPATH=$PWD/{unpacked} spark-submit --master spark://HOST:7077 \\
    --archives {file}#{UNPACKED} --conf spark.executorEnv.PYTHONPATH=./{UNPACKED} \\
    {unpacked}/{RUN_FILE} --checkpoint PATH""")
    return 0


def export(pipeline: Pipeline, project: Path) -> int:
    from tidelog.pipeline.declarative_project import SPEC_FILE, TOPICS_FILE, write_project

    written = write_project(pipeline, project)
    print("\n".join(f"{file} written" for file in written))
    print("Next:")
    if project / TOPICS_FILE in written:
        print(f"  python {shlex.quote(str(project / TOPICS_FILE))}")
    spec = shlex.quote(str(project / SPEC_FILE))
    print(f'  spark-pipelines --remote "{pipeline.master}" run --spec {spec}')
    print(
        "It reads what there is and ends, whatever `trigger` says. It has a checkpoint of its own, "
        "so its first run reads from the start."
    )
    return 0


def watch(running: RunningPipeline) -> None:
    from tidelog.pipeline.console.progress_table import progress_lines
    from tidelog.pipeline.console.terminal import LiveLines
    from tidelog.pipeline.queries.run_status import StatusFile

    live = LiveLines(sys.stdout)
    file = StatusFile(running.pipeline.folder)

    def show() -> None:
        file.grant_wishes(running)
        file.tell(running)
        live.show(progress_lines(running, time.monotonic()))

    try:
        running.watch(show, POLL_S)
        live.show(progress_lines(running, time.monotonic()), force=True)
    finally:
        live.end()
        file.tell(running, has_ended=True)


def beside(folder: Path) -> Path:
    """The folder of a pipeline, which may be named by its file."""
    return folder.parent if folder.is_file() else folder


def status(folder: Path) -> int:
    """0 when it runs and nothing in it has failed."""
    from tidelog.pipeline.queries.run_status import FAILED, is_alive, read_status, status_lines

    found = read_status(folder)
    if found is None:
        raise CommandFailed(f"{folder}: no run of a pipeline has told anything here")
    runs = found.runs(time.time(), is_alive)
    print("\n".join(status_lines(found, runs=runs, now_s=time.time())))
    return 0 if runs and all(row.state != FAILED for row in found.members) else 1


def restart(folder: Path, query: str, timeout_s: float, *, dry_run: bool = False) -> int:
    from tidelog.pipeline.queries.run_status import is_alive, read_status, wish_restart

    found = read_status(folder)
    if found is None or not found.runs(time.time(), is_alive):
        raise CommandFailed(f"{folder}: no pipeline runs here")
    names = {row.name: row.query for row in found.members} | {
        row.query: row.query for row in found.members
    }
    if query not in names:
        raise CommandFailed(f"there is no query {query}; there is {', '.join(names)}")
    if dry_run:
        print(f"{names[query]} would be started again")
        return 0
    wish = wish_restart(folder, names[query])
    give_up_at_s = time.monotonic() + timeout_s
    while wish.exists():
        if time.monotonic() > give_up_at_s:
            raise CommandFailed(f"{names[query]} was not started again within {timeout_s:g} s")
        time.sleep(POLL_S / 5)
    print(f"{names[query]} started again")
    return 0


def log_file(pipeline: Pipeline, wishes: Wishes) -> Path | None:
    return None if wishes.spark_log else pipeline.folder / LOG_NAME
