"""aimabuild: templates + shapes + a recipe -> one relocatable archive with the AIMA engine."""

__version__ = "0.1.0"
