"""One archive with what Spark's workers need to run a pipeline and do not have.

    tidelog/, pyspark_tidelog.py    as installed here, with the compiled record kernel
    click/, lz4/, zstandard/, ...   tidelog's dependencies, as installed here
    pipeline/                       the folder of the pipeline, without what a run has left in it
    run_pipeline.py                 for spark-submit, where the driver has no tidelog either
    tidelog_package.json            for which Python all this is (tidelog.spark.shipped)

Spark unpacks it (`spark.archives`) into the working directory of every executor, under the name
after the `#`. Compiled modules cannot be imported from a zip, so it is no file for --py-files.
pyspark, pyarrow and pandas are left out: a worker that runs Python data sources has them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final, NamedTuple
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, is_zipfile

import tidelog
from tidelog.errors import StartupError
from tidelog.pipeline.declaration.parts import PARQUET, Pipeline
from tidelog.spark.codecs.schema_registry import RegistrySettings
from tidelog.spark.references import FILE, references_in, resolved
from tidelog.spark.shipped import MANIFEST, PackageMismatch, abi, require_fitting

UNPACKED: Final = "tidelog_package"  # the folder's name in the executors
PIPELINE_FOLDER: Final = "pipeline"
RUN_FILE: Final = "run_pipeline.py"
KERNEL: Final = "tidelog/record/_kernel"
PROVIDED: Final = frozenset({"numpy", "pandas", "py4j", "pyarrow", "pyspark", "tidelog"})

_ARCHIVES: Final = "spark.archives"
_WORKERS_PATH: Final = "spark.executorEnv.PYTHONPATH"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"extra\s*==\s*[\"']([^\"']+)[\"']")
_KEY_FILES: Final = ("ssl.keystore.location", "ssl.key.location")
_SOURCES_OF_COMPILED: Final = (".c", ".h", ".pyc", ".pyi")
_RUN: Final = f'''\
"""Runs the pipeline of this package: spark-submit ... {RUN_FILE} [options of pipeline run]"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from tidelog.tools.cli.main import main

folder = Path(__file__).parent / "{PIPELINE_FOLDER}"
sys.exit(main(["pipeline", "run", str(folder), *sys.argv[1:]]))
'''


class Package(NamedTuple):
    """What was written."""

    file: Path
    size_bytes: int
    has_kernel: bool
    dependencies: Mapping[str, str]  # their versions
    pipeline_files: tuple[str, ...]
    left_out: tuple[str, ...]  # of the pipeline's folder


def write_package(pipeline: Pipeline, file: Path) -> Package:
    left_out: list[str] = []
    members = dict(_tidelog_files())
    dependencies = {}
    for name in sorted(_dependencies(pipeline)):
        found = distribution(name)
        dependencies[name] = found.version
        members |= dict(_files_of(found))
    declared = dict(_pipeline_files(pipeline, file, left_out))
    members |= {f"{PIPELINE_FOLDER}/{name}": path for name, path in declared.items()}
    manifest = {
        "abi": abi(),
        "tidelog": tidelog.__version__,
        "dependencies": dependencies,
        "pipeline": pipeline.name,
    }
    unfinished = file.with_name(f"{file.name}.part")
    file.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(unfinished, "w", ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, json.dumps(manifest, indent=2) + "\n")
        archive.writestr(RUN_FILE, _RUN)
        for name, path in sorted(members.items()):
            archive.write(path, name)
    unfinished.replace(file)
    return Package(
        file=file,
        size_bytes=file.stat().st_size,
        has_kernel=any(name.startswith(KERNEL) and name.endswith(".so") for name in members),
        dependencies=dependencies,
        pipeline_files=tuple(sorted(declared)),
        left_out=tuple(sorted(left_out)),
    )


def package_settings(package: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for running from a package, with what the pipeline sets itself. Raises
    StartupError for a file that is no package, or that does not fit this Python: Spark wants the
    driver and its workers to have the same version."""
    try:
        with ZipFile(package) as archive:
            manifest: dict[str, Any] = json.loads(archive.read(MANIFEST))
    except FileNotFoundError:
        told = f"{package} is not there; tidelog pipeline package DIR -o {package} makes it"
        raise StartupError(told) from None
    except (BadZipFile, KeyError):
        raise StartupError(f"{package} was not made by tidelog pipeline package") from None
    try:
        require_fitting(manifest, package)
    except PackageMismatch as problem:
        raise StartupError(str(problem)) from None
    archives = [given[_ARCHIVES]] if _ARCHIVES in given else []
    paths = [given[_WORKERS_PATH]] if _WORKERS_PATH in given else []
    return {
        _ARCHIVES: ",".join([*archives, f"{package.absolute()}#{UNPACKED}"]),
        _WORKERS_PATH: os.pathsep.join([*paths, f"./{UNPACKED}"]),
    }


# What goes in


def _tidelog_files() -> Iterator[tuple[str, Path]]:
    """The package itself, PySpark's way to it, and the library of the compiled modules."""
    root = Path(tidelog.__file__).parent.parent
    yield "pyspark_tidelog.py", root / "pyspark_tidelog.py"
    for library in root.glob("tidelog_*__mypyc*.so"):
        yield library.name, library
    for path in (root / "tidelog").rglob("*"):
        if path.is_file() and path.suffix not in _SOURCES_OF_COMPILED:
            yield path.relative_to(root).as_posix(), path


def _dependencies(pipeline: Pipeline) -> set[str]:
    """Names of distributions: what tidelog requires, what the formats of this pipeline require,
    and what these require."""
    extras = {source.format.kind for source in pipeline.sources}
    extras |= {sink.format.kind for sink in pipeline.sinks}
    found: set[str] = set()
    waiting = list(_required(_must_find("tidelog"), extras))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _required(_must_find(name), set())
    return found


def _required(owner: Distribution, extras: set[str]) -> Iterator[str]:
    """A requirement under a condition counts where it is installed."""
    for requirement in owner.requires or ():
        text, _, condition = requirement.partition(";")
        matched = _NAME.match(text)
        assert matched is not None, requirement
        name = matched[0].lower()
        extra = _EXTRA.search(condition)
        if name in PROVIDED or (extra is not None and extra[1] not in extras):
            continue
        if extra is None and condition and _find(name) is None:
            continue
        yield name


def _find(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _must_find(name: str) -> Distribution:
    found = _find(name)
    if found is None:
        raise StartupError(f"the package needs {name}, which is not installed: pip install {name}")
    return found


def _files_of(owner: Distribution) -> Iterator[tuple[str, Path]]:
    """Those that stand in site-packages; commands stand elsewhere."""
    for file in owner.files or ():
        path = Path(str(file.locate()))
        if ".." not in file.parts and file.suffix not in _SOURCES_OF_COMPILED and path.is_file():
            yield file.as_posix(), path


def _pipeline_files(
    pipeline: Pipeline, package: Path, left_out: list[str]
) -> Iterator[tuple[str, Path]]:
    """Without hidden files, and without what runs have written and secrets are read from."""
    written = {pipeline.checkpoint, str(package.absolute()), str(pipeline.folder / "spark.log")}
    written |= {sink.target for sink in pipeline.sinks if sink.kind == PARQUET}
    written |= {
        reference.name
        for text in pipeline.references
        for reference in references_in(text)
        if reference.kind == FILE
    }
    written |= _private_keys(pipeline)
    unwanted = {Path(path).resolve() for path in written if "://" not in path}

    def is_left_out(path: Path) -> bool:
        return path.resolve() in unwanted or (path.suffix == ".zip" and _is_package(path))

    folder = pipeline.folder
    for directory, folders, files in os.walk(folder):
        here = Path(directory)
        shown = [name for name in [*folders, *files] if not _is_hidden(name)]
        kept = {name for name in shown if not is_left_out(here / name)}
        left_out += [
            (here / name).relative_to(folder).as_posix() for name in shown if name not in kept
        ]
        folders[:] = [name for name in folders if name in kept]
        for name in kept.intersection(files):
            yield (here / name).relative_to(folder).as_posix(), here / name


def _private_keys(pipeline: Pipeline) -> set[str]:
    """Files of keys, of registries and of the Kafka clients, which look for theirs in the working
    directory; the folder of the pipeline may be that."""
    formats = [row.format for row in pipeline.sources] + [row.format for row in pipeline.sinks]
    found = {row.schemas.key_file for row in formats if isinstance(row.schemas, RegistrySettings)}
    options = [row.options for row in pipeline.sources] + [row.options for row in pipeline.sinks]
    for settings in (pipeline.kafka, *options):
        for name, text in settings.items():
            if name.lower().removeprefix("kafka.") in _KEY_FILES:
                found |= {resolved(text), str(pipeline.folder / resolved(text))}
    return found - {""}


def _is_hidden(name: str) -> bool:
    return name == "__pycache__" or name.startswith(".")


def _is_package(path: Path) -> bool:
    if not is_zipfile(path):
        return False
    with ZipFile(path) as archive:
        return MANIFEST in archive.namelist()
