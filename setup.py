"""Builds the two compiled parts, both optional: where one cannot be built, Python serves alone.

- The record kernel, in C; its twin in Python is record/_pure.py.
- The hot modules that src/tidelog/_compiled.py lists, with mypyc; their twin is their own source.

TIDELOG_COMPILE=0 leaves the second out, TIDELOG_COMPILE=none both: that wheel is pure Python and
runs everywhere, slowly.
"""

import os
import runpy
import shlex
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from importlib.machinery import EXTENSION_SUFFIXES

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = "src"
BUILDS_NOTHING = {"dist_info", "egg_info", "sdist"}  # pip and build run some of them first
KERNEL = Extension(
    "tidelog.record._kernel",
    sources=["src/tidelog/record/_kernel.c"],
    depends=sorted(glob("src/tidelog/record/csrc/*.h")),
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    extra_compile_args=["-O3"],
    py_limited_api=True,
    optional=True,
)
# The build knows only itself, not what the modules import; `make check` looks at types strictly.
MYPY = """[mypy]
mypy_path = {sources}
explicit_package_bases = True
namespace_packages = True
ignore_missing_imports = True
follow_imports = silent
"""


class BuildSideBySide(build_ext):
    """Runs a compiler for each processor: mypyc writes a C file for each module, and setuptools
    alone would compile one after the other.
    """

    def build_extensions(self) -> None:
        self.parallel = self.parallel or os.cpu_count() or 1  # extensions, most of them tiny
        compile_in_turn = self.compiler.compile
        with ThreadPoolExecutor(self.parallel) as compilers:

            def compile_side_by_side(sources, *arguments, **options):
                objects = compilers.map(
                    lambda source: compile_in_turn([source], *arguments, **options), sources
                )
                return [each for some in objects for each in some]

            self.compiler.compile = compile_side_by_side
            super().build_extensions()


def has_compiler() -> bool:
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    try:
        return not subprocess.run([*command, "--version"], capture_output=True).returncode
    except OSError:
        return False


def compiled_modules() -> list[Extension]:
    if os.environ.get("TIDELOG_COMPILE") in ("0", "none") or BUILDS_NOTHING & set(sys.argv):
        return []
    if not has_compiler():  # mypyc would write its C files for a minute, and nobody could use them
        print("no C compiler is there: hot modules stay interpreted")
        return []
    try:
        from mypyc.build import mypycify
    except ImportError as error:
        print(f"mypyc is not there ({error}): hot modules stay interpreted")
        return []
    chosen = runpy.run_path(f"{SOURCES}/tidelog/_compiled.py")
    library = chosen["library_name"](SOURCES)
    # What an earlier build has left in the tree, perhaps of modules that are no longer compiled.
    for old in glob(f"{SOURCES}/**/*{EXTENSION_SUFFIXES[0]}", recursive=True):
        os.unlink(old)
    os.makedirs("build", exist_ok=True)
    with open("build/mypy.ini", "w") as settings:
        settings.write(MYPY.format(sources=SOURCES))
    sources = [f"{SOURCES}/{name.replace('.', '/')}.py" for name in sorted(chosen["MODULES"])]
    try:
        modules = mypycify(
            ["--config-file=build/mypy.ini", *sources],
            opt_level="1",
            debug_level="0",
            multi_file=True,
            group_name=library,
            target_dir="build/mypyc",
        )
    except SystemExit as error:
        print(f"mypyc refuses the sources ({error}): hot modules stay interpreted")
        return []
    for module in modules:
        module.optional = True
        # A newer compiler's new warning must not cost the user the compiled part. But where mypyc
        # takes a pointer for a number, interpreted modules are better.
        module.extra_compile_args = [
            "-Werror=int-conversion" if each == "-Werror" else each
            for each in module.extra_compile_args
        ]
    return modules


hot_modules = compiled_modules()
extensions = [] if os.environ.get("TIDELOG_COMPILE") == "none" else [KERNEL, *hot_modules]
# With the kernel alone one wheel serves every Python from 3.11 on.
options = {"bdist_wheel": {"py_limited_api": "cp311"}} if extensions == [KERNEL] else {}
setup(
    cmdclass={"build_ext": BuildSideBySide},
    ext_modules=extensions,
    options=options,
)
