"""Builds the compiled kernel; where no C compiler is found the pure-Python twin serves alone."""

from glob import glob

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "tidelog.record._kernel",
            sources=["src/tidelog/record/_kernel.c"],
            depends=sorted(glob("src/tidelog/record/csrc/*.h")),
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            extra_compile_args=["-O3"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
