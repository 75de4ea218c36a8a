"""Typed, located reading of the project's input files: shapes, templates, recipes."""
