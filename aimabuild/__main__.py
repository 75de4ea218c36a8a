"""`python -m aimabuild`."""

from aimabuild.cli import main

main()
