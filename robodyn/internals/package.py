"""The package's folder, and when this process imported it."""

from pathlib import Path
from time import time

FOLDER = Path(__file__).parents[1]
IMPORTED_AT = time()
"""Seconds since the epoch: files of the package that change later are not what this process runs."""
