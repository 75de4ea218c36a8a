"""A small checkpoint for trying the engine without the real weights."""

from aimabuild.demo.model import DemoModel, write_demo_model

__all__ = ["DemoModel", "write_demo_model"]
