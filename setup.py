"""The compiled kernels. Optional: without a compiler `sidecar.native.twin` does the same, slower."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "sidecar.native._kernel",
            ["sidecar/native/_kernel.c"],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ]
)
