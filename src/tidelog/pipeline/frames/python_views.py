"""Views that are functions of Python files.

A view's file may import the files and packages beside it. They are put on the path of this process,
and one archive of them goes to the workers of Spark, where functions of a view may run. What the
view's own file defines travels by value, since it runs under no module's name.
"""

from __future__ import annotations

import hashlib
import io
import runpy
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.declaration.parts import PipelineError, Place, Problem
from tidelog.pipeline.spark_errors import summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.pipeline.declaration.parts import View

# An archive holds the same bytes for the same files, whenever it is made.
_ARCHIVE_TIME: Final = (1980, 1, 1, 0, 0, 0)
# Archives that the workers of an application have; batches would send them again and again.
_SHIPPED: Final[set[tuple[str, Path]]] = set()


def python_view(spark: SparkSession, view: View, frames: dict[str, DataFrame]) -> DataFrame:
    """Raises PipelineError with the line of the view's file where its function failed."""
    from pyspark.sql import DataFrame

    assert view.python_file is not None, view
    place = Place(view.python_file, 0)
    try:
        ship_neighbours(spark, view.python_file)
        names = _names(view.python_file, view.python_file.read_bytes())
        if view.function not in names:
            raise PipelineError(Problem(place, f"has no function {view.function}"))
        made = names[view.function](spark, *(frames[name] for name in view.inputs))
    except PipelineError:
        raise
    except Exception as error:
        told = f"{view.function}: {type(error).__name__}: {summary(error)}"
        raise PipelineError(
            Problem(Place(view.python_file, _line_in(view, error)), told)
        ) from error
    if not isinstance(made, DataFrame):
        told = f"{view.function} returned {type(made).__name__}; it must return a DataFrame"
        raise PipelineError(Problem(place, told))
    return made


@cache
def _names(file: Path, content: bytes) -> dict[str, Any]:
    """What the file defines; it runs once for each content that it has had."""
    return runpy.run_path(str(file))


def ship_neighbours(spark: SparkSession, file: Path) -> None:
    """Makes what stands beside the file importable, here and on the workers."""
    folder = str(file.parent.absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    modules = neighbours(file)
    if not modules:
        return
    archive = _archive(file.parent, modules)
    if not hasattr(spark, "_jsparkSession"):
        spark.addArtifacts(str(archive), pyfile=True)
        return
    context = spark.sparkContext
    if (context.applicationId, archive) not in _SHIPPED:
        context.addPyFile(str(archive))
        _SHIPPED.add((context.applicationId, archive))


def neighbours(file: Path) -> list[Path]:
    """Python files in the view's folder and in packages in it, but for the view's own."""
    folder = file.parent
    packages = [init.parent for init in folder.glob("*/__init__.py")]
    inside = [module for package in packages for module in package.rglob("*.py")]
    return sorted({*folder.glob("*.py"), *inside} - {file})


def _archive(folder: Path, modules: list[Path]) -> Path:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for module in modules:
            entry = zipfile.ZipInfo(str(module.relative_to(folder)), _ARCHIVE_TIME)
            archive.writestr(entry, module.read_bytes())
    content = held.getvalue()
    digest = hashlib.sha256(content).hexdigest()[:16]
    path = _temporary_folder() / f"beside_{folder.name}_{digest}.zip"
    if not path.exists():
        path.write_bytes(content)
    return path


@cache
def _temporary_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="tidelog-views-"))


def _line_in(view: View, error: BaseException) -> int:
    if isinstance(error, SyntaxError) and error.filename == str(view.python_file):
        return error.lineno or 0
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(view.python_file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
