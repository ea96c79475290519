"""A wheel has params/ and notebooks/ too, so that an installed klear can begin a project."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithProject(build_py):
    def run(self):
        super().run()
        project = Path(self.build_lib, "klearlib", "project")
        for name in () if self.editable_mode else ("params", "notebooks"):
            shutil.rmtree(project / name, ignore_errors=True)
            shutil.copytree(name, project / name, ignore=shutil.ignore_patterns(".*"))


setup(cmdclass={"build_py": BuildWithProject})
