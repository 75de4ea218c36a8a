"""The build graph: writes build.ninja, runs ninja, says why something was built."""

from aimabuild.graph.build import BuildResult, build, build_plan
from aimabuild.graph.tools import Tools, needed_parts, tools_of

__all__ = ["BuildResult", "Tools", "build", "build_plan", "needed_parts", "tools_of"]
