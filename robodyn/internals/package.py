"""The package's folder, and the time at which this process imported it."""

from pathlib import Path
from time import time

FOLDER = Path(__file__).parents[1]
IMPORTED_AT = time()
"""Seconds since the epoch. Files of the package that change later do not affect this process."""
