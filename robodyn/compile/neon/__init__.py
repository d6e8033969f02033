"""Machine code of straight-line programs for aarch64 processors: the steps, the order and the images of
`robodyn.compile.x86`, with other instructions."""
