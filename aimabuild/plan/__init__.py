"""What a recipe builds: a pure function of its loaded documents."""

from aimabuild.plan.make import make_plan
from aimabuild.plan.model import Plan, PlannedArg, PlannedAxis, PlannedKernel, PlannedObject

__all__ = ["Plan", "PlannedArg", "PlannedAxis", "PlannedKernel", "PlannedObject", "make_plan"]
