"""`python -m robodyn` is the `robodyn` command."""

from robodyn.cli import main

main()
