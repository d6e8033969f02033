"""Robots to look at in a browser: `robodyn.show`, `robodyn view FILE` and `Rollout.save_html`, drawn by viser.

viser is imported when something is shown (the extra "viewer"). What is drawn is worked out before it (`shapes`,
`looks`); `scene` hands it to viser, and `view` is what users hold.
"""
