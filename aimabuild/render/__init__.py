"""Plan -> sources and specs. Runs no process."""

from aimabuild.render.sources import render_object, render_plan
from aimabuild.render.spec import kernel_spec, object_spec, spec_bytes, specs

__all__ = ["kernel_spec", "object_spec", "render_object", "render_plan", "spec_bytes", "specs"]
