"""`python -m robodyn` is the `robodyn` command."""

from robodyn.tools.cli import main

main()
